package capture

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/policy"
)

// TestMaxFileSize: each file over the limit is named, or left out and listed.
func TestMaxFileSize(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{"a": strings.Repeat("x", 100), "d/b": strings.Repeat("y", 101), "d/c": strings.Repeat("z", 2<<20), "e": "", "db": header("1"), "db-wal": strings.Repeat("w", 101)})
	require.NoError(t, os.Link(filepath.Join(ws, "d/b"), filepath.Join(ws, "link")))
	m := newMemory()
	opt := Options{Files: rules(t), Settings: policy.Settings{MaxFileSize: 100}, SkipUnreadable: true}
	_, err := Tree(t.Context(), ws, m, opt)
	require.ErrorIs(t, err, cas.ErrTooLarge)
	found := problems(t, err)
	require.Len(t, found, 5)
	require.Equal(t, "101 bytes long (101 B), the limit is 100", found["d/b"])
	require.Contains(t, found["db"], "db-wal", "a database goes with its log")
	for _, path := range []string{"d/c", "link", "db-wal"} {
		require.Contains(t, found, path)
	}

	opt.Settings.SkipOver = true
	got, err := Tree(t.Context(), ws, m, opt)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "d", "e"}, sortedKeys(m.entries(t, got)))
	require.Equal(t, 5, got.Over)
	require.Zero(t, got.Unreadable)
	require.Equal(t, "over the limit for files: 101 bytes long (101 B), the limit is 100", omissions(got)["link"])

	opt.Settings = policy.Settings{SkipOver: true}
	got, err = Tree(t.Context(), ws, m, opt)
	require.NoError(t, err, "0 is no limit")
	require.Zero(t, got.Over)
}

// TestMaxSize: a capture over the limit ends early, and names what is large.
func TestMaxSize(t *testing.T) {
	ws := t.TempDir()
	files := map[string]string{"src/a": strings.Repeat("s", 1000), "b": "1", "skipped/x": strings.Repeat("-", 900_000)}
	for i := range 30 {
		files[fmt.Sprintf("out/run/%02d/data", i)] = strings.Repeat(string(rune('a'+i)), 10_000+100*i)
	}
	write(t, ws, files)
	opt := Options{Files: rules(t, "skipped"), Settings: policy.Settings{MaxSize: 20_000}}
	stored := 0
	m := newMemory()
	m.onPut = func(objs []cas.Object) error {
		for _, o := range objs {
			if o.Key.NS == cas.Files {
				stored += len(o.Data)
			}
		}
		return nil
	}
	_, err := Tree(t.Context(), ws, m, opt)
	require.ErrorIs(t, err, cas.ErrTooLarge)
	var sizes *SizeError
	require.True(t, errors.As(err, &sizes))
	require.EqualValues(t, 30*10_000+100*29*30/2+1001, sizes.Size)
	require.EqualValues(t, 20_000, sizes.Limit)
	require.Equal(t, []Sized{{"out/run/29/data", 12_900}, {"out/run/28/data", 12_800}, {"out/run/27/data", 12_700}, {"out/run/26/data", 12_600}, {"out/run/25/data", 12_500}}, sizes.Files)
	require.Equal(t, []Sized{{"out/run/", 343_500}, {"out/run/29/", 12_900}, {"out/run/28/", 12_800}, {"out/run/27/", 12_700}, {"out/run/26/", 12_600}}, sizes.Dirs)
	require.Contains(t, err.Error(), "344501 bytes (336 KiB) in files, the limit is 20000 (20 KiB)\n  out/run/: 335 KiB\n  out/run/29/: 13 KiB\n")
	require.LessOrEqual(t, stored, 20_000, "nothing is read beyond the limit")

	opt.Settings.MaxSize = sizes.Size
	got, err := Tree(t.Context(), ws, newMemory(), opt)
	require.NoError(t, err)
	require.EqualValues(t, sizes.Size, got.Root.Totals.Bytes)
	opt.Settings.MaxSize--
	_, err = Tree(t.Context(), ws, newMemory(), opt)
	require.ErrorAs(t, err, &sizes)

	opt.Settings = policy.Settings{MaxSize: 20_000, MaxFileSize: 9_000, SkipOver: true}
	got, err = Tree(t.Context(), ws, newMemory(), opt)
	require.NoError(t, err, "what is left out does not count")
	require.Equal(t, 30, got.Over)
}

// TestMaxSizeOfDatabases: the files of a database count too, before they are read.
func TestMaxSizeOfDatabases(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{"db": header("1"), "db-wal": strings.Repeat("w", 500), "z": "1"})
	opt := Options{Files: rules(t), Settings: policy.Settings{MaxSize: 400}}
	_, err := Tree(t.Context(), ws, newMemory(), opt)
	var sizes *SizeError
	require.ErrorAs(t, err, &sizes)
	require.Equal(t, "db-wal", sizes.Files[0].Path)
	require.Empty(t, sizes.Dirs)
}

// TestLargestDirs: the first directories in which what is large parts.
func TestLargestDirs(t *testing.T) {
	for _, tt := range []struct {
		own  map[string]int64
		want []Sized
	}{
		{map[string]int64{"": 5}, nil},
		{map[string]int64{"a/": 5, "": 1}, []Sized{{"a/", 5}}},
		{map[string]int64{"a/b/c/": 5, "a/": 0, "d/": 4}, []Sized{{"a/", 5}, {"d/", 4}}},
		{map[string]int64{"a/b/c/": 95, "a/b/d/": 5, "a/e/": 1, "f/": 2}, []Sized{{"a/b/c/", 95}}},
		{map[string]int64{"1/": 1, "2/": 2, "3/": 3, "4/": 4, "5/": 5, "6/": 6}, []Sized{{"6/", 6}, {"5/", 5}, {"4/", 4}, {"3/", 3}, {"2/", 2}}},
	} {
		s := sizes{dirs: tt.own}
		require.Equal(t, tt.want, s.largestDirs(), "%v", tt.own)
	}
}
