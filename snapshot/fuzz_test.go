package snapshot

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/policy"
)

// FuzzDecodeOmissions: what is accepted has one form.
func FuzzDecodeOmissions(f *testing.F) {
	for _, left := range [][]capture.Omission{nil, {{Path: "a\xff", Why: "excluded"}, {Path: "b"}}, make([]capture.Omission, 300)} {
		data, err := encodeOmissions(left)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte("\x9b\x00\x00\x00\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		left, err := decodeOmissions(data)
		if err != nil {
			require.ErrorIs(t, err, cas.ErrCorrupt)
			return
		}
		again, err := encodeOmissions(left)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, again), "another form is accepted")
	})
}

// FuzzDecodeArtifacts: what is accepted has one form, and each artifact of it could be
// given to a thread.
func FuzzDecodeArtifacts(f *testing.F) {
	blob := index.Blob{Hash: cas.Hash{1}, Size: 3}
	for _, list := range [][]index.Artifact{{}, {{ID: "a", Name: "n", Blob: blob}}, {{ID: "a", Name: "n", MediaType: "text/html", Blob: blob, Created: 1}, {ID: "b", Name: "n", Blob: blob, Created: -1}}} {
		data, err := encodeArtifacts(list)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := decodeArtifacts(data)
		if err != nil {
			require.ErrorIs(t, err, cas.ErrCorrupt)
			return
		}
		for _, a := range list {
			require.NoError(t, a.Validate())
		}
		again, err := encodeArtifacts(list)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, again), "another form is accepted")
	})
}

// FuzzStoreInfo: a store.json that is accepted is one of this format.
func FuzzStoreInfo(f *testing.F) {
	data, err := json.Marshal(newStoreInfo())
	require.NoError(f, err)
	f.Add(data)
	f.Add([]byte(`{"format":2,"id":"x"}`))
	f.Add([]byte(`{"format":1,"id":"x","chunking":{"min":262144,"average":1048576,"max":4194304,"single":1048577}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		info, err := decodeStoreInfo("dir", data)
		if err != nil {
			require.True(t, errorsIs(err, cas.ErrCorrupt, ErrNewerStore), "%v", err)
			return
		}
		require.Equal(t, Format, info.Format)
		require.NotEmpty(t, info.ID)
		require.Equal(t, newStoreInfo().Chunking, info.Chunking)
	})
}

// errorsIs reports whether err is one of several.
func errorsIs(err error, all ...error) bool {
	for _, is := range all {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

// FuzzDistrust: what is read of damaged objects is written the same way.
func FuzzDistrust(f *testing.F) {
	data, err := encodeDistrust(map[cas.Key]cas.Location{{NS: cas.Files, Hash: cas.Hash{1}}: {Pack: cas.PackID{2}, Offset: 3}})
	require.NoError(f, err)
	f.Add(data)
	f.Add([]byte(`[{"namespace":"files"}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := decodeDistrust(data)
		if err != nil {
			return
		}
		again, err := encodeDistrust(list)
		require.NoError(t, err)
		second, err := decodeDistrust(again)
		require.NoError(t, err)
		require.Equal(t, list, second)
	})
}

// FuzzPath: a path in JSON is the path again.
func FuzzPath(f *testing.F) {
	for _, path := range []string{"a/b", "a\xffb", "\ufffd", "\xed\xa0\x80", "a\nb", ""} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		p := NewPath(path)
		require.Equal(t, path, p.Raw())
		require.True(t, utf8.ValidString(p.Text))
		data, err := json.Marshal(p)
		require.NoError(t, err)
		var again Path
		require.NoError(t, json.Unmarshal(data, &again))
		require.Equal(t, path, again.Raw())
	})
}

// FuzzParseMounts: whatever the mount table says, what is read of it is a part of it.
func FuzzParseMounts(f *testing.F) {
	f.Add("36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n")
	f.Add("1 2 0:1 / /a\\134040 rw - fuse.snapfs a\\134b rw\nno line\n")
	f.Fuzz(func(t *testing.T, table string) {
		all, err := parseMounts(strings.NewReader(table))
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(all), strings.Count(table, " - "))
		for _, m := range all {
			require.Contains(t, table, m.Type)
			require.LessOrEqual(t, len(m.Mountpoint), len(table))
			require.Equal(t, m.Source, unescape(escapeMount(m.Source)))
		}
	})
}

// escapeMount does what the kernel does to a path in the mount table.
func escapeMount(s string) string {
	return strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`).Replace(s)
}

// FuzzResolve: a reference is an id, a thread's head or name, the beginning of an id,
// or nothing; and a thread's checkpoint is found whatever the thread is called.
func FuzzResolve(f *testing.F) {
	s := OpenMemory()
	f.Cleanup(func() { _ = s.Close() })
	ws := f.TempDir()
	put := func(t testing.TB, thread, id, name string) (Checkpoint, error) {
		res, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: thread, ID: id, Name: name, Files: policy.FilesOptions{NoDefaults: true}})
		return res.Checkpoint, err
	}
	for _, ref := range []string{"a", "thread@latest", "thread@name", "a@b@latest", "@latest", "latest", "x/../../PWNED@latest", "..@.", "checkp", "\xff@latest", "a\x00@latest", strings.Repeat("x", 513)} {
		f.Add(ref)
	}
	_, err := put(f, "thread", "checkpoint-1", "name")
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, ref string) {
		cp, err := s.Resolve(t.Context(), ref)
		if err != nil {
			require.True(t, errorsIs(err, index.ErrCheckpointNotFound, index.ErrInvalid, ErrAmbiguous), "%v", err)
			require.NotContains(t, err.Error(), "\n")
			require.True(t, utf8.ValidString(err.Error()))
		} else {
			same, err := s.Resolve(t.Context(), cp.ID)
			require.NoError(t, err)
			require.Equal(t, cp, same)
		}
		thread, name, ok := strings.Cut(ref, "@")
		if !ok || index.ValidID("thread id", thread) != nil || index.ValidName(name) != nil || thread == "thread" {
			return
		}
		made, err := put(t, thread, "", name)
		require.NoError(t, err)
		defer func() { require.NoError(t, s.DeleteThread(t.Context(), thread)) }()
		for _, ref := range []string{thread + "@" + name, thread + "@latest"} {
			got, err := s.Resolve(t.Context(), ref)
			require.NoError(t, err)
			require.Equal(t, made.ID, got.ID)
		}
	})
}

// TestFilesOfTheStoreThatLie: what has the name of a file of the store's own and is
// something else is damage, or is made again; nobody waits for it or fills the memory
// with it.
func TestFilesOfTheStoreThatLie(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"fifo":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"zeros":     func(path string) error { return os.Symlink("/dev/zero", path) },
		"large": func(path string) error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Truncate(path, 1<<40)
		},
		"garbage": func(path string) error { return os.WriteFile(path, []byte(`[{"namespace":"none","hash":"x"}]`), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			require.NoError(t, Create(dir))
			cache := filepath.Join(dir, cacheDir, distrustFile)
			require.NoError(t, make(cache))
			s, err := Open(t.Context(), dir, Options{})
			require.NoError(t, err)
			require.NoError(t, s.Close())

			info := filepath.Join(dir, storeFile)
			require.NoError(t, os.Remove(info))
			require.NoError(t, make(info))
			_, err = Open(t.Context(), dir, Options{})
			require.ErrorIs(t, err, cas.ErrCorrupt)
		})
	}
}

// FuzzImport: an archive of any bytes is refused, or becomes a checkpoint in which all is
// well, and whose own archive gives the same tree.
func FuzzImport(f *testing.F) {
	s := OpenMemory()
	f.Cleanup(func() { s.Close() })
	f.Add(tarOf(f, tarDir("d"), tarFile("d/a", "content"), tarLink(tar.TypeLink, "twin", "d/a"), tarLink(tar.TypeSymlink, "l", "../x"), tarLink(tar.TypeFifo, "p", "")))
	odd := tarFile("a\xff", "x")
	odd.PAXRecords = map[string]string{"SCHILY.xattr.user.a": "\x00", "mtime": "1.5"}
	f.Add(tarOf(f, odd))
	f.Add(tarOf(f))
	ws := filepath.Join(f.TempDir(), "ws")
	check(os.MkdirAll(filepath.Join(ws, "d"), 0o755))
	check(os.WriteFile(filepath.Join(ws, "d", "f"), []byte("hunter2hunter2"), 0o644))
	check(os.WriteFile(filepath.Join(ws, "x.log"), nil, 0o644))
	check(os.Link(filepath.Join(ws, "d", "f"), filepath.Join(ws, "twin")))
	saved, err := s.Save(f.Context(), SaveOptions{
		Workspace: ws, Thread: "seed", Message: "hunter2hunter2", Conversation: strings.NewReader("[]"), Secrets: declaredSet(f, "hunter2hunter2"),
		Files:     policy.FilesOptions{Exclude: []policy.Rule{{Pattern: "*.log"}}},
		Artifacts: []ArtifactFile{{Path: filepath.Join(ws, "d", "f"), Name: "a/b"}},
	})
	require.NoError(f, err)
	f.Add(exportedBytes(f, s, saved.Checkpoint.ID, Tar))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := OpenMemory()
		defer s.Close()
		res, err := s.Import(t.Context(), bytes.NewReader(data), ImportOptions{Thread: "t", MaxSize: 1 << 20, sortRun: 100})
		if err != nil {
			require.True(t, errors.Is(err, ErrBadArchive) || errors.Is(err, cas.ErrTooLarge), "%v", err)
			require.NotEmpty(t, Hint(err))
			return
		}
		require.Empty(t, faults(t, s))
		again, err := s.Import(t.Context(), bytes.NewReader(exportedBytes(t, s, res.Checkpoint.ID, Tar)), ImportOptions{Thread: "again"})
		require.NoError(t, err)
		require.Equal(t, res.Checkpoint.Tree, again.Checkpoint.Tree)
		require.Empty(t, faults(t, s))
	})
}
