package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/castest"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
)

// noiseFile writes a file that does not compress.
func noiseFile(t *testing.T, path string, seed uint64, size int) []byte {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	data := castest.Noise(seed, size)
	require.NoError(t, os.WriteFile(path, data, 0o644))
	return data
}

// packBytes is what all packs of a store take.
func packBytes(t *testing.T, s *Store) (packs int, size int64) {
	t.Helper()
	packs, size, err := local.Size(s.dir)
	require.NoError(t, err)
	return packs, size
}

func gc(t *testing.T, s *Store) GCResult {
	t.Helper()
	res, err := s.GC(t.Context(), GCRequest{})
	require.NoError(t, err)
	return res
}

// A deleted thread's own bytes come back, and only those.
func TestGCFreesWhatWasDeleted(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	noiseFile(t, filepath.Join(ws, "shared"), 1, 300_000)
	big := noiseFile(t, filepath.Join(ws, "big"), 2, 9<<20)
	first := save(t, s, ws, "gone")
	require.NoError(t, os.Remove(filepath.Join(ws, "big")))
	kept := save(t, s, ws, "kept")
	_, before := packBytes(t, s)

	dry, err := s.GC(t.Context(), GCRequest{DryRun: true})
	require.NoError(t, err)
	require.Zero(t, dry.Objects, "everything is needed")
	require.NoError(t, s.DeleteThread(t.Context(), "gone"))
	dry, err = s.GC(t.Context(), GCRequest{DryRun: true})
	require.NoError(t, err)
	require.Greater(t, dry.Bytes, int64(len(big)))
	require.Zero(t, dry.Freed)
	_, now := packBytes(t, s)
	require.Equal(t, before, now, "a dry run changes nothing")

	res := gc(t, s)
	_, after := packBytes(t, s)
	require.Equal(t, before-after, res.Freed)
	require.Less(t, after, int64(400_000))
	require.Zero(t, res.Waiting)
	_, err = s.Resolve(t.Context(), first.ID)
	require.Error(t, err)
	require.Empty(t, faults(t, s))
	restored(t, s, kept.ID)

	require.NoError(t, s.DeleteThread(t.Context(), "kept"))
	gc(t, s)
	packs, after := packBytes(t, s)
	require.Zero(t, packs)
	require.Zero(t, after)
	save(t, s, ws, "again")
}

// Many saves of one small change each leave many small packs; gc makes one of
// them, and everything reads as before.
func TestGCMergesSmallPacks(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	var ids []string
	for i := range 20 {
		noiseFile(t, filepath.Join(ws, "f"), uint64(i), 5000)
		ids = append(ids, save(t, s, ws, "t").ID)
	}
	packs, before := packBytes(t, s)
	require.GreaterOrEqual(t, packs, 20)
	res := gc(t, s)
	packs, after := packBytes(t, s)
	require.Equal(t, 1, packs)
	require.Equal(t, before-after, res.Freed)
	for i, id := range ids {
		var got bytes.Buffer
		require.NoError(t, s.Cat(t.Context(), id, "f", &got))
		require.Equal(t, castest.Noise(uint64(i), 5000), got.Bytes())
	}
	require.Zero(t, gc(t, s).Rewritten, "one pack is left alone")
	// The index can be made anew from what is there.
	dir := s.dir
	require.NoError(t, s.Close())
	require.NoError(t, os.RemoveAll(filepath.Join(dir, indexDir)))
	again := openStore(t, dir)
	for _, id := range ids {
		require.NoError(t, again.Cat(t.Context(), id, "f", &bytes.Buffer{}))
	}
}

// A pack that is mostly dead is rewritten, with 64 MiB of room at the most.
func TestGCRewritesWornPacks(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	for i := range 10 {
		noiseFile(t, filepath.Join(ws, fmt.Sprint("dead", i)), uint64(i), 1<<20)
	}
	noiseFile(t, filepath.Join(ws, "live"), 99, 1<<20)
	doomed := save(t, s, ws, "t")
	for i := range 10 {
		require.NoError(t, os.Remove(filepath.Join(ws, fmt.Sprint("dead", i))))
	}
	kept := save(t, s, ws, "t")
	_, err := s.Delete(t.Context(), doomed.ID)
	require.NoError(t, err)
	res := gc(t, s)
	require.Positive(t, res.Rewritten)
	_, after := packBytes(t, s)
	require.Less(t, after, int64(2<<20))
	require.Empty(t, faults(t, s))
	restored(t, s, kept.ID)
}

// A save that began before a collection and relies on an object that only a
// deleted checkpoint had keeps it; a save that begins later puts it anew.
func TestGCBesideASave(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	noiseFile(t, filepath.Join(ws, "f"), 7, 100_000)
	doomed := save(t, s, ws, "first")
	key := cas.NewObject(cas.Files, cas.Data, castest.Noise(7, 100_000)).Key

	early, err := s.holder.Begin(t.Context(), BeginRequest{Thread: "early"})
	require.NoError(t, err)
	have, err := early.Have(t.Context(), []cas.Key{key})
	require.NoError(t, err)
	require.Equal(t, []bool{true}, have)
	_, err = s.Delete(t.Context(), doomed.ID)
	require.NoError(t, err)

	res := gc(t, s)
	require.Equal(t, 1, res.Waiting)
	require.Positive(t, res.Objects)
	_, err = s.blobs.Read(t.Context(), key, nil)
	require.NoError(t, err, "condemned and readable")
	have, err = early.Have(t.Context(), []cas.Key{key})
	require.NoError(t, err)
	require.Equal(t, []bool{true}, have, "the early save may go on relying on it")

	late, err := s.holder.Begin(t.Context(), BeginRequest{Thread: "late"})
	require.NoError(t, err)
	have, err = late.Have(t.Context(), []cas.Key{key})
	require.NoError(t, err)
	require.Equal(t, []bool{false}, have, "a later one puts it anew")
	require.Equal(t, 1, gc(t, s).Waiting, "the early one is still there")

	w, end, err := s.newWriter(t.Context(), late, local.Auto)
	require.NoError(t, err)
	require.NoError(t, w.Put(t.Context(), cas.NewObject(cas.Files, cas.Data, castest.Noise(7, 100_000))))
	require.NoError(t, w.Flush(t.Context()))
	require.EqualValues(t, 1, w.Stats().Objects)
	end()
	require.NoError(t, early.Close())
	require.Equal(t, 1, gc(t, s).Waiting, "for what the late save put and did not publish")
	_, err = s.blobs.Read(t.Context(), key, nil)
	require.NoError(t, err, "the late save's own copy")

	require.NoError(t, late.Close())
	gc(t, s)
	_, err = s.blobs.Read(t.Context(), key, nil)
	require.ErrorIs(t, err, cas.ErrNotFound, "nobody published it")
}

// Saves, forks, deletions and collections at once: every checkpoint that is
// there can be restored at any time.
func TestGCBesideEverything(t *testing.T) {
	s := newStore(t)
	root := t.TempDir()
	var wg sync.WaitGroup
	stop := make(chan struct{})
	errs := make(chan error, 16)
	for n := range 3 {
		wg.Go(func() {
			ws := filepath.Join(root, fmt.Sprint("ws", n))
			for round := range 12 {
				if err := os.MkdirAll(ws, 0o755); err != nil {
					errs <- err
					return
				}
				for i := range 6 { // contents that come, go and come back, and are shared
					seed := uint64((round*(i+1) + n) % 9)
					if err := os.WriteFile(filepath.Join(ws, fmt.Sprint(i)), castest.Noise(seed, 20_000+int(seed)), 0o644); err != nil {
						errs <- err
						return
					}
				}
				res, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: fmt.Sprint("t", n)})
				if err == nil {
					_, err = s.Restore(t.Context(), res.Checkpoint.ID, RestoreOptions{Dir: filepath.Join(root, fmt.Sprint("r", n, "-", round))})
				}
				if err == nil && round%3 != 0 {
					_, err = s.Delete(t.Context(), res.Checkpoint.ID)
				}
				if err != nil {
					errs <- fmt.Errorf("saver %d, round %d: %w", n, round, err)
					return
				}
			}
		})
	}
	var collector sync.WaitGroup
	collector.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := s.GC(t.Context(), GCRequest{}); err != nil {
				errs <- fmt.Errorf("gc: %w", err)
				return
			}
		}
	})
	wg.Wait()
	close(stop)
	collector.Wait()
	select {
	case err := <-errs:
		require.NoError(t, err)
	default:
	}
	require.Empty(t, faults(t, s))
	gc(t, s)
	require.Empty(t, faults(t, s))
}

// meddler saves while a collection looks from thread to thread.
type meddler struct {
	index.Index
	listed []string // threads
	after  func(listed []string)
}

func (m *meddler) Checkpoints(ctx context.Context, org, thread string, p index.Page) iter.Seq2[index.Checkpoint, error] {
	m.listed = append(m.listed, thread)
	m.after(m.listed)
	return m.Index.Checkpoints(ctx, org, thread, p)
}

// A thread that gets a checkpoint when the collection has looked at it already,
// before one that is looked at later gets another, keeps it.
func TestGCBesideSavesIntoManyThreads(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	for _, thread := range []string{"a", "b"} {
		noiseFile(t, ws+"/f", 1, 1000)
		save(t, s, ws, thread)
	}
	h := s.holder.(*localHolder)
	var late []Checkpoint
	h.index = &meddler{Index: h.index, after: func(listed []string) {
		if len(listed) == 2 && listed[0] != listed[1] {
			for i, thread := range listed {
				noiseFile(t, ws+"/f", uint64(i+2), 1000)
				late = append(late, save(t, s, ws, thread))
			}
		}
	}}
	gc(t, s)
	require.Len(t, late, 2)
	gc(t, s)
	require.Empty(t, faults(t, s))
	for _, cp := range late {
		restored(t, s, cp.ID)
	}
}

// An object that is missing ends the collection before anything is freed.
func TestGCStopsAtAMissingObject(t *testing.T) {
	s, _ := unsound(t)
	ws := filepath.Join(t.TempDir(), "ws")
	noiseFile(t, filepath.Join(ws, "f"), 1, 1000)
	doomed := save(t, s, ws, "a")
	noiseFile(t, filepath.Join(ws, "f"), 2, 1000)
	cp := save(t, s, ws, "b")
	_, err := s.Delete(t.Context(), doomed.ID)
	require.NoError(t, err)
	rec, err := s.Record(t.Context(), cp)
	require.NoError(t, err)
	h := s.holder.(*localHolder)
	require.NoError(t, h.index.DropLocations(t.Context(), []cas.Key{{NS: cas.Trees, Hash: rec.Root.Tree}}))
	packs, before := packBytes(t, s)
	_, err = s.GC(t.Context(), GCRequest{})
	require.True(t, errors.Is(err, cas.ErrNotFound), err)
	require.ErrorContains(t, err, cp.ID)
	packsNow, after := packBytes(t, s)
	require.Equal(t, packs, packsNow)
	require.Equal(t, before, after)
}

// What a killed save left behind goes: packs that no checkpoint needs.
func TestGCTakesOrphans(t *testing.T) {
	s := newStore(t)
	session, err := s.holder.Begin(t.Context(), BeginRequest{Thread: "t"})
	require.NoError(t, err)
	w, end, err := s.newWriter(t.Context(), session, local.Auto)
	require.NoError(t, err)
	require.NoError(t, w.Put(t.Context(), cas.NewObject(cas.Files, cas.Data, castest.Noise(1, 50_000))))
	require.NoError(t, w.Flush(t.Context()))
	end()
	require.NoError(t, session.Close())
	packs, _ := packBytes(t, s)
	require.Equal(t, 1, packs)
	require.Equal(t, 1, gc(t, s).Removed)
	packs, _ = packBytes(t, s)
	require.Zero(t, packs)
}

// A damaged index, which may read as an empty range, costs no object: gc refuses
// to free, or works on the index that was made again.
func TestGCKeepsAllWhileTheIndexIsDamaged(t *testing.T) {
	s := newStore(t)
	dir := s.dir
	ws := filepath.Join(t.TempDir(), "ws")
	for i := range 150 {
		noiseFile(t, filepath.Join(ws, fmt.Sprint(i)), uint64(i), 3000)
	}
	const threads = 40
	for i := range threads {
		noiseFile(t, filepath.Join(ws, "0"), uint64(1000+i), 3000)
		save(t, s, ws, fmt.Sprint("t", i))
	}
	require.NoError(t, s.Close())
	tables, err := filepath.Glob(filepath.Join(dir, "index", "*.sst"))
	require.NoError(t, err)
	require.NotEmpty(t, tables)
	refused := 0
	for k := range 8 {
		store := filepath.Join(t.TempDir(), "store")
		require.NoError(t, os.CopyFS(store, os.DirFS(dir)))
		damaged := openStore(t, store) // damage that is there by now would be mended
		table := filepath.Join(store, "index", filepath.Base(tables[0]))
		require.NoError(t, os.Chmod(table, 0o600))
		data, err := os.ReadFile(table)
		require.NoError(t, err)
		data[(2*k+1)*len(data)/16] ^= 0x15
		require.NoError(t, os.WriteFile(table, data, 0o600))

		if _, err := damaged.GC(t.Context(), GCRequest{}); err != nil {
			require.ErrorIs(t, err, index.ErrCorrupt)
			refused++
		}
		require.NoError(t, damaged.Close())
		again := openStore(t, store)
		for i := range threads {
			_, err := again.Resolve(t.Context(), fmt.Sprintf("t%d@latest", i))
			require.NoError(t, err)
		}
		require.Empty(t, faults(t, again))
		require.NoError(t, again.Close())
	}
	require.Positive(t, refused)
}

// One damaged object keeps its own pack from being cleared, and no other.
func TestGCAroundDamage(t *testing.T) {
	s, _ := unsound(t)
	var kept []Checkpoint
	for i := range 6 {
		ws := filepath.Join(t.TempDir(), "ws")
		noiseFile(t, filepath.Join(ws, "f"), uint64(10+i), 300_000)
		cp := save(t, s, ws, fmt.Sprint("t", i))
		if i%2 == 0 {
			kept = append(kept, cp)
		}
	}
	for i := 1; i < 6; i += 2 {
		require.NoError(t, s.DeleteThread(t.Context(), fmt.Sprint("t", i)))
	}
	rec, err := s.Record(t.Context(), kept[1])
	require.NoError(t, err)
	e, err := s.trees.Find(t.Context(), rec.Root.Tree, "f")
	require.NoError(t, err)
	locs, err := s.holder.Locate(t.Context(), []cas.Key{{NS: cas.Files, Hash: e.Hash}})
	require.NoError(t, err)
	name := locs[0].Pack.String()
	f, err := os.OpenFile(filepath.Join(s.dir, "packs", name[:2], name+".pack"), os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("other bytes"), int64(locs[0].Offset)+5_000)
	require.NoError(t, errors.Join(err, f.Close()))

	for range 2 {
		_, err = s.GC(t.Context(), GCRequest{})
		require.ErrorIs(t, err, cas.ErrCorrupt)
		require.ErrorContains(t, err, "packs with damaged objects, of which there are 1: pack ")
		require.ErrorContains(t, err, name)
		require.Contains(t, Hint(err), "verify --data")
	}
	require.Zero(t, usage(t, s).ReclaimableBytes)
	for _, i := range []int{0, 2} {
		restored(t, s, kept[i].ID)
	}
	_, err = s.Verify(t.Context(), VerifyOptions{Data: true, Repair: true}, func(string) error { return nil })
	require.NoError(t, err)
	require.NoError(t, s.DeleteThread(t.Context(), "t2"))
	gc(t, s)
	require.Empty(t, faults(t, s))
}
