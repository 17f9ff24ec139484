package fs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// sample is the identity that the tests change.
func sample() meta {
	return meta{nlink: 1, Entry: tree.Entry{
		Kind: tree.File, Mode: 0o644, UID: 1000, GID: 1001, MtimeSec: 1_700_000_000, MtimeNsec: 7, Size: 5, Hash: cas.Hash{1, 2, 3},
	}}
}

// TestNumbersArePinned: inode numbers are the same after every mount and update;
// tar and rsync may have noted them.
func TestNumbersArePinned(t *testing.T) {
	m := sample()
	require.EqualValues(t, 0xcda7f694268a6, m.ino(placeOf("a/b")))
	m.Kind, m.Target, m.Hash = tree.Symlink, "somewhere", cas.Hash{}
	require.EqualValues(t, 0xbd9d7790748cf, m.ino(placeOf("a/b")))
	require.EqualValues(t, 0x44e60472a8596, virtualIno("thread", "t"))
}

func TestPlaces(t *testing.T) {
	require.Equal(t, place(0).below("a").below("b"), placeOf("a/b"))
	seen := map[place]string{0: "root"}
	for _, path := range []string{"a", "b", "a/b", "b/a", "ab", "a/a", "aa", "a/b/c", "a/bc", "ab/c"} {
		p := placeOf(path)
		require.Empty(t, seen[p], path)
		seen[p] = path
	}
}

// TestEveryPartCounts: whatever stat(2) shows, and the content, is part of the
// identity. Two files that differ in it must not share a node.
func TestEveryPartCounts(t *testing.T) {
	seen := map[uint64]string{}
	for name, change := range map[string]func(m *meta, at *place){
		"nothing":     func(*meta, *place) {},
		"path":        func(_ *meta, at *place) { *at = placeOf("a/c") },
		"kind":        func(m *meta, _ *place) { m.Kind = tree.Symlink },
		"mode":        func(m *meta, _ *place) { m.Mode = 0o645 },
		"uid":         func(m *meta, _ *place) { m.UID++ },
		"gid":         func(m *meta, _ *place) { m.GID++ },
		"seconds":     func(m *meta, _ *place) { m.MtimeSec++ },
		"nanoseconds": func(m *meta, _ *place) { m.MtimeNsec++ },
		"size":        func(m *meta, _ *place) { m.Size++ },
		"content":     func(m *meta, _ *place) { m.Hash[31] = 1 },
		"target":      func(m *meta, _ *place) { m.Target = "x" },
		"attributes":  func(m *meta, _ *place) { m.XAttrs[0] = 1 },
		"flags":       func(m *meta, _ *place) { m.Flags = tree.Redacted },
		"links":       func(m *meta, _ *place) { m.nlink = 2 },
	} {
		m, at := sample(), placeOf("a/b")
		change(&m, &at)
		ino := m.ino(at)
		require.Less(t, ino, uint64(1)<<53)
		require.Empty(t, seen[ino], "%s counts for nothing", name)
		seen[ino] = name
	}
}

func TestVirtualNumbers(t *testing.T) {
	seen := map[uint64]bool{}
	for _, parts := range [][]string{{"a"}, {"b"}, {"a", "b"}, {"ab"}, {"a", "", "b"}, {"", "ab"}, {"thread", "t"}, {"checkpoint", "t"}} {
		ino := virtualIno(parts...)
		require.Less(t, ino, uint64(1)<<53)
		require.False(t, seen[ino], parts)
		seen[ino] = true
	}
}
