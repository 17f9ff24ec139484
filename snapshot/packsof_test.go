package snapshot

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
)

// filePacks is PacksOf for a checkpoint's reference.
func filePacks(t *testing.T, s *Store, ref string) ([]cas.PackID, error) {
	t.Helper()
	cp, rec, err := s.record(t.Context(), ref)
	require.NoError(t, err)
	hash, err := cas.ParseHash(cp.Record)
	require.NoError(t, err)
	return s.PacksOf(t.Context(), rec, hash)
}

// filesNeed returns all that the files of a checkpoint need.
func filesNeed(t *testing.T, s *Store, ref string) (keys []cas.Key) {
	t.Helper()
	cp, rec, err := s.record(t.Context(), ref)
	require.NoError(t, err)
	hash, err := cas.ParseHash(cp.Record)
	require.NoError(t, err)
	none := index.Blob{}
	rec.Conversation, rec.Artifacts, rec.Policy, rec.Omissions, rec.Secrets = none, none, none, none, none
	r := reach{source: s.blobs, seen: map[cas.Key]struct{}{}, found: func(_ context.Context, _ bool, objs ...needed) error {
		for _, o := range objs {
			keys = append(keys, o.Key)
		}
		return nil
	}}
	_, err = r.checkpoint(t.Context(), rec, hash)
	require.NoError(t, err)
	return keys
}

// TestPacksOf: a checkpoint's packs are those that its objects lie in, no more, and all
// of it can be read from them alone.
func TestPacksOf(t *testing.T) {
	s := newStore(t)
	ws := t.TempDir()
	write(t, ws, map[string]string{
		"a": "one", "empty": "", "dir/b": "two", "dir/deep/er/c": "three", "none/": "",
		"long": strings.Repeat("0123456789", 400_000), "wide/x": "x",
	})
	for i := range 600 {
		write(t, ws, map[string]string{"wide/" + strings.Repeat("n", i%50+1) + string(rune('a'+i%26)) + strings.Repeat("m", i/50): "same"})
	}
	require.NoError(t, os.Link(filepath.Join(ws, "a"), filepath.Join(ws, "linked")))
	for _, path := range []string{"", "dir", "a"} {
		if err := unix.Setxattr(filepath.Join(ws, path), "user.test", []byte("of "+path), 0); err != nil {
			t.Log("no extended attributes here: ", err)
		}
	}
	save(t, s, ws, "t")
	write(t, ws, map[string]string{"dir/deep/er/c": "changed", "more/d": "new"})
	save(t, s, ws, "t")
	other := t.TempDir()
	write(t, other, map[string]string{"quite": "different"})
	save(t, s, other, "u")
	for _, ref := range []string{"t@latest", "u@latest"} {
		keys := filesNeed(t, s, ref)
		locs, err := s.holder.Locate(t.Context(), keys)
		require.NoError(t, err)
		want := map[cas.PackID]bool{}
		for _, at := range locs {
			require.False(t, at.IsZero())
			want[at.Pack] = true
		}
		packs, err := filePacks(t, s, ref)
		require.NoError(t, err)
		require.Len(t, packs, len(want), ref)
		for _, id := range packs {
			require.True(t, want[id])
		}
		kept := local.NewKept(s.Dir())
		require.NoError(t, kept.Add(packs...))
		for _, key := range keys {
			_, err := kept.Read(t.Context(), key, nil)
			require.NoError(t, err)
		}
		require.NoError(t, kept.Close())
	}
	two, err := filePacks(t, s, "t@latest")
	require.NoError(t, err)
	require.Len(t, two, 2)
	one, err := filePacks(t, s, "u@latest")
	require.NoError(t, err)
	require.False(t, slices.Contains(two, one[0]))
}

// TestPacksOfDamaged: what is missing is named, and what was rewritten is found.
func TestPacksOfDamaged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := Open(t.Context(), dir, Options{Create: true})
	require.NoError(t, err)
	defer s.Close()
	ws := t.TempDir()
	write(t, ws, map[string]string{"a": "one"})
	save(t, s, ws, "t")
	write(t, ws, map[string]string{"b": "two"})
	save(t, s, ws, "t")
	before, err := filePacks(t, s, "t@latest")
	require.NoError(t, err)
	require.Len(t, before, 2)
	_, err = s.GC(t.Context(), GCRequest{})
	require.NoError(t, err)
	after, err := filePacks(t, s, "t@latest")
	require.NoError(t, err)
	require.NotEqual(t, before, after, "small packs are merged")

	write(t, ws, map[string]string{"c": "three"})
	save(t, s, ws, "t")
	packs, err := filePacks(t, s, "t@latest")
	require.NoError(t, err)
	cp, rec, err := s.record(t.Context(), "t@latest")
	require.NoError(t, err)
	hash, err := cas.ParseHash(cp.Record)
	require.NoError(t, err)
	for _, id := range packs {
		require.NoError(t, os.Remove(filepath.Join(dir, "packs", id.String()[:2], id.String()+".pack")))
	}
	_, err = s.PacksOf(t.Context(), rec, hash)
	require.ErrorIs(t, err, cas.ErrNotFound)
	hash[0]++
	_, err = s.PacksOf(t.Context(), rec, hash)
	require.ErrorIs(t, err, cas.ErrNotFound)
	require.ErrorContains(t, err, hash.String())

	memory := OpenMemory()
	defer memory.Close()
	_, err = memory.PacksOf(t.Context(), rec, hash)
	require.ErrorIs(t, err, ErrUnsupported)
}
