package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/snapfs/snapfs/policy"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/castest"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/tree"
)

// counting counts what is read.
type counting struct {
	cas.Store
	mu    sync.Mutex
	reads map[cas.Key]int
}

func (c *counting) Read(ctx context.Context, key cas.Key, dst []byte) ([]byte, error) {
	c.mu.Lock()
	c.reads[key]++
	c.mu.Unlock()
	return c.Store.Read(ctx, key, dst)
}

// TestVerifyReadsOnce: fifty checkpoints that share a tree cost what they do not
// share, hard links and lists included.
func TestVerifyReadsOnce(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	files := map[string]string{}
	for d := range 300 {
		for f := range 3 {
			files[fmt.Sprintf("d%d/e%d/f%d", d%30, d, f)] = fmt.Sprint(d, f)
		}
	}
	write(t, ws, files)
	require.NoError(t, os.Link(filepath.Join(ws, "d1/e1/f1"), filepath.Join(ws, "linked")))
	noiseFile(t, filepath.Join(ws, "big"), 1, 2<<20)
	artifact := filepath.Join(t.TempDir(), "a")
	require.NoError(t, os.WriteFile(artifact, castest.Noise(1, 100), 0o600))
	_, _, err := s.AddArtifact(t.Context(), "T", ArtifactFile{Path: artifact}, policy.SecretsWarn, SecretsOptions{})
	require.NoError(t, err)
	const checkpoints = 50
	for i := range checkpoints {
		write(t, ws, map[string]string{fmt.Sprintf("d%d/e%d/f0", i%30, i): fmt.Sprint("changed", i)})
		save(t, s, ws, "T")
	}
	trees := 0
	for o, err := range s.holder.(*localHolder).index.Locations(t.Context()) {
		require.NoError(t, err)
		if o.Key.NS == cas.Trees {
			trees++
		}
	}
	for _, data := range []bool{false, true} {
		fresh, end := s.uncached()
		defer end()
		source := &counting{Store: fresh.blobs, reads: map[cas.Key]int{}}
		fresh.blobs, fresh.trees = source, tree.NewReader(source, treeCache)
		v := newVerifier(t.Context(), fresh, VerifyOptions{Data: data}, func(p string) error { return fmt.Errorf("%s", p) })
		require.NoError(t, v.run())
		require.Equal(t, checkpoints, v.counts.Checkpoints)
		got := map[cas.Namespace]int{}
		for key, n := range source.reads {
			got[key.NS] += n
		}
		require.Greater(t, trees, 300)
		require.LessOrEqual(t, got[cas.Trees], trees+4)
		require.LessOrEqual(t, got[cas.Records], checkpoints+4)
		require.Equal(t, 1, got[cas.Files], "the chunk list")
	}
}

// movesMeanwhile has a collection move objects right after it was asked where they are.
type movesMeanwhile struct {
	Holder
	move func()
}

func (m *movesMeanwhile) Locate(ctx context.Context, keys []cas.Key) ([]cas.Location, error) {
	at, err := m.Holder.Locate(ctx, keys)
	if local.IsFresh(ctx) {
		m.move()
	}
	return at, err
}

// TestVerifyBesideCollections: what collections move again and again is not missing.
func TestVerifyBesideCollections(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	n := 0
	another := func() {
		if n < 3 {
			n++
			noiseFile(t, ws+"/new", uint64(100+n), 3000)
			save(t, s, ws, "other")
			require.Positive(t, gc(t, s).Rewritten)
		}
	}
	data := noiseFile(t, ws+"/f", 1, 5000)
	save(t, s, ws, "t")
	slow := &Store{dir: s.dir, fsys: s.fsys, holder: &movesMeanwhile{s.holder, another}, blobs: s.blobs, trees: s.trees, log: s.log}
	v := newVerifier(t.Context(), slow, VerifyOptions{}, func(problem string) error { return errors.New(problem) })
	_, faults, err := v.places.find(t.Context(), []cas.Key{cas.NewObject(cas.Files, cas.Data, data).Key})
	require.NoError(t, err)
	require.Equal(t, []error{nil}, faults)
	require.Equal(t, 3, n)
}
