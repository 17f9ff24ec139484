package badger

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/index/indextest"
)

func TestSuite(t *testing.T) {
	indextest.Run(t, func(t *testing.T, packs *indextest.Packs) indextest.Open {
		dir := t.TempDir()
		return func(ctx context.Context) (index.Index, error) {
			return Open(ctx, filepath.Join(dir, "index"), testOptions(dir, packs))
		}
	})
}

func testOptions(dir string, packs *indextest.Packs) Options {
	return Options{Journal: filepath.Join(dir, "journal"), Records: packs.Read, Packs: packs.All, Now: packs.Now, BootID: "boot-1"}
}

// store is a directory with an index and a journal.
type store struct {
	*testing.T
	dir   string
	packs *indextest.Packs
	ix    *Index
}

func newStore(t *testing.T) *store {
	s := &store{T: t, dir: t.TempDir(), packs: indextest.NewPacks()}
	s.ix = s.open("boot-1")
	return s
}

func (s *store) open(boot string) *Index {
	s.Helper()
	ix, err := s.tryOpen(boot)
	require.NoError(s, err)
	return ix
}

func (s *store) tryOpen(boot string) (*Index, error) {
	opt := testOptions(s.dir, s.packs)
	opt.BootID = boot
	ix, err := Open(s.Context(), s.path("index"), opt)
	if err == nil {
		s.Cleanup(func() { _ = ix.Close() })
	}
	return ix, err
}

func (s *store) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

// publish adds a checkpoint to thread t.
func (s *store) publish(id, parent string) {
	s.Helper()
	_, err := indextest.Publish(s, s.ix, s.packs, "acme", "", indextest.Record("t", id, parent))
	require.NoError(s, err)
}

// fill publishes three checkpoints, makes every other kind of change, and returns
// what the index says then. What it deletes is gone from the packs too.
func (s *store) fill() map[string]indextest.State {
	s.Helper()
	ctx := s.Context()
	for _, rec := range []index.Record{indextest.Record("gone", "g-1", ""), indextest.Record("gone", "g-2", "g-1"), indextest.Record("v", "g-3", "")} {
		cp, err := indextest.Publish(s, s.ix, s.packs, "acme", "", rec)
		require.NoError(s, err)
		defer s.packs.Lose(cp.RecordHash)
	}
	blob := index.Blob{Hash: cas.Data.Sum(nil), Size: 1}
	require.NoError(s, s.ix.AddArtifact(ctx, "acme", "v", index.Artifact{ID: "a-1", Name: "kept", Blob: blob}))
	require.NoError(s, s.ix.AddArtifact(ctx, "acme", "v", index.Artifact{ID: "a-2", Name: "removed", Blob: blob}))
	require.NoError(s, s.ix.RemoveArtifact(ctx, "acme", "v", "a-2"))
	require.NoError(s, s.ix.DeleteThread(ctx, "acme", "gone"))
	_, _, err := s.ix.Delete(ctx, "acme", "g-3")
	require.NoError(s, err)
	s.publish("c-1", "")
	s.publish("c-2", "c-1")
	_, err = indextest.Publish(s, s.ix, s.packs, "acme", "named", indextest.Record("u", "c-3", ""))
	require.NoError(s, err)
	_, err = s.ix.Rename(ctx, "acme", "c-3", "renamed")
	require.NoError(s, err)
	// Three whose deletion is decided, two of them with records that are gone.
	for _, rec := range []index.Record{indextest.Record("half", "h-1", ""), indextest.Record("half", "h-2", "h-1"), indextest.Record("u", "h-3", "c-3"), indextest.Record("u", "h-4", "h-3")} {
		cp, err := indextest.Publish(s, s.ix, s.packs, "acme", "", rec)
		require.NoError(s, err)
		if rec.Thread == "half" {
			defer s.packs.Lose(cp.RecordHash)
		}
	}
	_, err = s.ix.BeginForget(ctx, "acme", "u", []string{"h-3"})
	require.NoError(s, err)
	_, err = s.ix.BeginDelete(ctx, "acme", "h-4")
	require.NoError(s, err)
	require.NoError(s, s.ix.EndDelete(ctx, "acme", []string{"h-3", "h-4"}))
	require.NoError(s, s.ix.BeginDeleteThread(ctx, "acme", "half"))
	_, err = s.ix.Publish(ctx, index.Publish{
		Org: "acme", Record: indextest.Store(s, s.ix, s.packs, indextest.Record("u", "r-1", "of another")), ExpectedHead: "c-3",
		Received: index.Received{Store: "another", Seq: 77},
	})
	require.NoError(s, err)
	for _, th := range []string{"gone", "t", "u"} {
		token := index.NewToken()
		_, err = s.ix.AcquireLease(ctx, index.AcquireLease{Org: "acme", Thread: th, Token: token, Owner: "owner of " + th, TTL: time.Minute})
		require.NoError(s, err)
		if th == "t" {
			require.NoError(s, s.ix.ReleaseLease(ctx, "acme", th, token))
		}
	}
	return s.dump()
}

func (s *store) dump() map[string]indextest.State {
	s.Helper()
	indextest.NoFindings(s, s.ix)
	return indextest.Dump(s, s.ix, "acme")
}

// crash copies the store as a killed process leaves it, and goes on with the
// copy. The old handle lives on, but its files are no longer ours.
func (s *store) crash() {
	s.Helper()
	dir := s.TempDir()
	require.NoError(s, filepath.WalkDir(s.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(s.dir, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(dir, rel), 0o700)
		}
		return copyFile(filepath.Join(dir, rel), path)
	}))
	s.dir = dir
}

// copyFile copies one file.
func copyFile(dst, src string) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.Create(dst)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	_, err = io.Copy(out, in)
	return err
}
