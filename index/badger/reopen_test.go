package badger

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReopen breaks a store in many ways, opens it again and expects the same
// state, with a rebuild or without.
func TestReopen(t *testing.T) {
	remove := func(names ...string) func(*store) {
		return func(s *store) {
			for _, name := range names {
				require.NoError(s, os.RemoveAll(s.path(name)))
			}
		}
	}
	tests := []struct {
		name    string
		crash   bool // else it is closed
		boot    string
		harm    func(*store)
		rebuilt bool
	}{
		{name: "closed", boot: "boot-1"},
		{name: "closed, other boot", boot: "boot-2"},
		{name: "killed", crash: true, boot: "boot-1"},
		{name: "killed, other boot", crash: true, boot: "boot-2", rebuilt: true},
		{name: "index missing", boot: "boot-1", harm: remove("index"), rebuilt: true},
		{name: "mark missing", boot: "boot-1", harm: remove("index/mark"), rebuilt: true},
		{name: "mark damaged", boot: "boot-1", harm: overwrite("mark", 20), rebuilt: true},
		{name: "mark is a directory", boot: "boot-1", rebuilt: true, harm: func(s *store) {
			remove("index/mark")(s)
			require.NoError(s, os.MkdirAll(s.path("index/mark/x"), 0o700))
		}},
		{name: "manifest missing", boot: "boot-1", harm: remove("index/MANIFEST"), rebuilt: true},
		{name: "manifest garbage", boot: "boot-1", harm: overwrite("MANIFEST", 0), rebuilt: true},
		{name: "table garbage", boot: "boot-1", harm: overwrite("*.sst", 0), rebuilt: true},
		{name: "table cut", boot: "boot-1", harm: cut("*.sst"), rebuilt: true},
		{name: "memtable garbage", crash: true, boot: "boot-1", harm: overwrite("*.mem", 0), rebuilt: true},
		{name: "every file garbage", boot: "boot-1", harm: overwrite("*", 0), rebuilt: true},
		{name: "every file empty", boot: "boot-1", rebuilt: true, harm: func(s *store) {
			for _, f := range s.files("*") {
				require.NoError(s, os.Truncate(f, 0))
			}
		}},
		{name: "subdirectory in the way", boot: "boot-1", rebuilt: true, harm: func(s *store) {
			remove("index/MANIFEST")(s)
			require.NoError(s, os.MkdirAll(s.path("index/MANIFEST/x"), 0o700))
		}},
		{name: "backup of packs and journal", crash: true, boot: "boot-9", harm: remove("index"), rebuilt: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newStore(t)
			want := s.fill()
			if test.crash {
				s.crash()
			} else {
				require.NoError(t, s.ix.Close())
			}
			if test.harm != nil {
				test.harm(s)
			}
			s.ix = s.open(test.boot)
			require.Equal(t, test.rebuilt, s.ix.Rebuilt() != "", s.ix.Rebuilt())
			require.Equal(t, want, s.dump())
			s.publish("c-4", "c-2") // and it goes on
			want = s.dump()
			require.NoError(t, s.ix.Close())
			s.ix = s.open("boot-3")
			require.Empty(t, s.ix.Rebuilt())
			require.Equal(t, want, s.dump())
		})
	}
}

func (s *store) files(pattern string) []string {
	s.Helper()
	files, err := filepath.Glob(s.path("index", pattern))
	require.NoError(s, err)
	require.NotEmpty(s, files)
	return files
}

// overwrite puts 4096 bytes of garbage into each file, up to its end.
func overwrite(pattern string, offset int64) func(*store) {
	return func(s *store) {
		for _, path := range s.files(pattern) {
			st, err := os.Stat(path)
			require.NoError(s, err)
			garbage := make([]byte, min(4096, max(st.Size()-offset, 0)))
			for i := range garbage {
				garbage[i] = byte(i*7 + 13)
			}
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			require.NoError(s, err)
			_, err = f.WriteAt(garbage, offset)
			require.NoError(s, err)
			require.NoError(s, f.Close())
		}
	}
}

func cut(pattern string) func(*store) {
	return func(s *store) {
		for _, path := range s.files(pattern) {
			st, err := os.Stat(path)
			require.NoError(s, err)
			require.NoError(s, os.Truncate(path, st.Size()/2))
		}
	}
}

// flip changes one bit at offset in the first table.
func flip(offset int64) func(*store) {
	return func(s *store) {
		f, err := os.OpenFile(s.files("*.sst")[0], os.O_RDWR, 0)
		require.NoError(s, err)
		var b [1]byte
		_, err = f.ReadAt(b[:], offset)
		require.NoError(s, err)
		b[0] ^= 0x10
		_, err = f.WriteAt(b[:], offset)
		require.NoError(s, err)
		require.NoError(s, f.Close())
	}
}
