package snapshot

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/policy"
)

// kinds fills a workspace with everything that a checkpoint can have.
func (s *side) kinds(id string) {
	s.t.Helper()
	ctx, ws := s.t.Context(), s.t.TempDir()
	files := map[string]string{"linked": "linked", "dir/empty/": "", "same": "x", "secret": "a hidden-value here", "out": "x"}
	for i := range 300 {
		files[fmt.Sprintf("many/%d", i)] = fmt.Sprint(i)
	}
	write(s.t, ws, files)
	require.NoError(s.t, os.Link(ws+"/linked", ws+"/dir/other"))
	require.NoError(s.t, os.Symlink("nowhere", ws+"/link"))
	noiseFile(s.t, ws+"/large", 7, cas.ChunkedSize)
	require.NoError(s.t, os.Truncate(ws+"/large", 2*cas.ChunkedSize))
	conversation := filepath.Join(s.t.TempDir(), "conversation")
	require.NoError(s.t, os.WriteFile(conversation, []byte(`[{"say":"hidden-value"}]`), 0o644))
	f, err := os.Open(conversation)
	require.NoError(s.t, err)
	defer f.Close()
	big := filepath.Join(s.t.TempDir(), "big")
	noiseFile(s.t, big, 8, cas.ChunkedSize+1)
	c, err := ReadConversation(f)
	require.NoError(s.t, err)
	_, err = s.Save(ctx, SaveOptions{
		Workspace: ws, Thread: "kinds", ID: id, Message: "message", Labels: map[string]string{"k": "v"}, Conversation: c,
		Files:     policy.FilesOptions{NoDefaults: true, Exclude: []policy.Rule{{Pattern: "/out", Source: "--exclude"}}},
		Artifacts: []ArtifactFile{{Name: "big", Path: big}}, Secrets: declaredSet(s.t, "hidden-value"),
	})
	require.NoError(s.t, err)
}

// TestTransferEverything: all kinds of objects arrive, on a disk as in memory, and cost
// about what they cost where they come from.
func TestTransferEverything(t *testing.T) {
	a := newSide(t, newStore(t))
	a.kinds("k")
	for name, b := range map[string]*side{"memory": newSide(t, OpenMemory()), "disk": newSide(t, newStore(t))} {
		t.Run(name, func(t *testing.T) {
			got := a.all(b)
			require.Equal(t, a.record("k"), b.record("k"))
			require.Equal(t, look(t, restored(t, a.Store, "k")), look(t, restored(t, b.Store, "k")))
			var mine, theirs bytes.Buffer
			require.NoError(t, a.Conversation(t.Context(), "k", &mine))
			require.NoError(t, b.Conversation(t.Context(), "k", &theirs))
			require.Equal(t, mine.String(), theirs.String())
			require.Equal(t, a.shows("kinds"), b.shows("kinds"))
			if name == "disk" {
				_, size := packBytes(t, a.Store)
				require.InEpsilon(t, size, got.res.Stored, 0.01)
				require.Empty(t, tempFiles(t, b.Store))
			}
			before := got.res.Objects
			a.put("kinds", "k2-"+name, "x")
			got = a.all(b)
			require.Less(t, got.res.Objects, before)
		})
	}
}

// TestTransferMany: checkpoints that share all go in groups.
func TestTransferMany(t *testing.T) {
	a, b := newSide(t, OpenMemory()), newSide(t, newStore(t))
	var ids []string
	for i := range 2*groupMost + 3 {
		ids = append(ids, fmt.Sprintf("c%03d", i))
		a.put("t", ids[i], "x")
	}
	got := a.all(b)
	require.Equal(t, ids, got.arrived)
	packs, _ := packBytes(t, b.Store)
	require.Equal(t, 3, packs)
	require.Less(t, got.res.Present, int64(groupMost), "what is shared is asked for once")
}

// TestTransferDamaged: what is damaged or lost where it comes from keeps its checkpoints
// from being sent, by name, and no others.
func TestTransferDamaged(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprint("lost ", lost), func(t *testing.T) {
			s := newStore(t)
			b := newSide(t, newStore(t))
			a := &side{Store: s, t: t, ws: t.TempDir()}
			require.NoError(t, os.MkdirAll(filepath.Join(a.ws, "d"), 0o755))
			a.put("t", "1", "sound")
			bad := noiseFile(t, filepath.Join(a.ws, "d", "bad"), 3, 5000)
			a.put("t", "2", "sound")
			a.put("t", "3", "sound, too") // shares it
			require.NoError(t, os.Remove(filepath.Join(a.ws, "d", "bad")))
			a.put("t", "4", "sound")
			key := cas.NewObject(cas.Files, cas.Data, bad).Key
			locs, err := a.holder.Locate(t.Context(), []cas.Key{key})
			require.NoError(t, err)
			if lost {
				require.NoError(t, a.holder.(*localHolder).index.DropLocations(t.Context(), []cas.Key{key}))
				require.NoError(t, s.Close())
				s, err = Open(t.Context(), s.dir, Options{})
				require.NoError(t, err)
				a.Store = s
			} else {
				path := filepath.Join(a.dir, "packs", locs[0].Pack.String()[:2], locs[0].Pack.String()+".pack")
				data, err := os.ReadFile(path)
				require.NoError(t, err)
				data[int64(locs[0].Offset)+1000] ^= 1
				require.NoError(t, os.WriteFile(path, data, 0o600))
			}
			got := a.send(b, "")
			require.NoError(t, got.err)
			require.Equal(t, []string{"1", "4"}, got.arrived)
			require.Len(t, got.problems, 2)
			for i, id := range []string{"2", "3"} {
				require.ErrorContains(t, got.problems[i], "checkpoint "+id)
				require.ErrorContains(t, got.problems[i], key.String())
				if lost {
					require.ErrorIs(t, got.problems[i], cas.ErrNotFound)
				} else {
					require.ErrorIs(t, got.problems[i], cas.ErrCorrupt)
				}
			}
			require.Equal(t, "1 4", b.shows("t"))

			c := newSide(t, newStore(t))
			one := a.send(c, "3")
			require.ErrorContains(t, one.err, "checkpoint 2")
			require.Equal(t, []string{"1"}, one.arrived)
			require.NoError(t, s.Close())
		})
	}
}

// A hook is a store's objects, of which reads are told of before.
type hook struct {
	cas.Store
	mu sync.Mutex
	do func(key cas.Key)
}

func (h *hook) Read(ctx context.Context, key cas.Key, dst []byte) ([]byte, error) {
	h.mu.Lock()
	h.do(key)
	h.mu.Unlock()
	return h.Store.Read(ctx, key, dst)
}

// hooked has reads of a side's objects told of, until the test ends or free is called.
func (s *side) hooked(do func(key cas.Key)) (free func()) {
	own := s.blobs
	s.blobs = &hook{Store: own, do: do}
	return func() { s.blobs = own }
}

// TestTransferDeletedMeanwhile: what is deleted and collected while it is sent is told of,
// and not there as a half.
func TestTransferDeletedMeanwhile(t *testing.T) {
	a, b := newSide(t, newStore(t)), newSide(t, newStore(t))
	a.put("t", "1", "x")
	big := cas.NewObject(cas.Files, cas.Data, noiseFile(t, filepath.Join(a.ws, "big"), 4, 200_000)).Key
	a.put("t", "2", "x")
	require.NoError(t, os.Remove(filepath.Join(a.ws, "big")))
	a.put("t", "3", "x")
	gone := false
	free := a.hooked(func(key cas.Key) {
		if key == big && !gone {
			gone = true
			a.drop("2")
			gc(t, a.Store)
		}
	})
	defer free()
	got := a.send(b, "3")
	require.ErrorIs(t, got.err, index.ErrCheckpointNotFound)
	require.ErrorContains(t, got.err, "checkpoint 2 was deleted while it was sent")
	require.Equal(t, []string{"1"}, got.arrived)
	got = a.all(b)
	require.Equal(t, []string{"3"}, got.arrived)
}

// TestTransferBesideGC: a collection where it goes takes nothing of what is on its way,
// whatever of it was there as garbage before.
func TestTransferBesideGC(t *testing.T) {
	a, b := newSide(t, newStore(t)), newSide(t, newStore(t))
	for i := range 5 {
		noiseFile(t, filepath.Join(a.ws, fmt.Sprint("big", i)), uint64(i), 100_000)
		a.put("t", fmt.Sprint(i), "x")
	}
	a.all(b)
	require.NoError(t, b.DeleteThread(t.Context(), "t"))
	reads := 0
	free := a.hooked(func(cas.Key) {
		if reads++; reads%3 == 0 {
			_, err := b.GC(t.Context(), GCRequest{})
			require.NoError(t, err)
		}
	})
	defer free()
	got := a.all(b)
	require.Len(t, got.arrived, 5)
	require.GreaterOrEqual(t, reads, 10)
	require.Empty(t, faults(t, b.Store))
	gc(t, b.Store)
	require.Empty(t, faults(t, b.Store))
}

// TestTransferTwoAtOnce: both end, and all is there once.
func TestTransferTwoAtOnce(t *testing.T) {
	a, b := newSide(t, newStore(t)), newSide(t, newStore(t))
	for i := range 4 {
		for j := range 3 {
			noiseFile(t, filepath.Join(a.ws, "n"), uint64(10*i+j), 30_000)
			a.put(fmt.Sprint("t", i), fmt.Sprintf("%d-%d", i, j), "x")
		}
	}
	var wg sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs {
		wg.Go(func() {
			_, errs[i] = Transfer(t.Context(), a.Store, b.Store, TransferOptions{Wait: time.Minute})
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	for i := range 4 {
		require.Equal(t, a.shows(fmt.Sprint("t", i)), b.shows(fmt.Sprint("t", i)))
	}
	require.Empty(t, tempFiles(t, b.Store))
}

// TestTransferGoesOn: one that ended early leaves what it has sent to the next.
func TestTransferGoesOn(t *testing.T) {
	a, b := newSide(t, newStore(t)), newSide(t, newStore(t))
	for i := range 40 {
		noiseFile(t, filepath.Join(a.ws, fmt.Sprint("n", i)), uint64(i), 50_000)
	}
	a.put("t", "1", "x")
	ctx, cancel := context.WithCancel(t.Context())
	reads := 0
	free := a.hooked(func(cas.Key) {
		if reads++; reads == 40 {
			cancel()
		}
	})
	first, err := Transfer(ctx, a.Store, b.Store, TransferOptions{})
	require.ErrorIs(t, err, context.Canceled)
	free()
	require.Equal(t, "", b.shows("t"))
	require.NotZero(t, first.Stored)
	require.Len(t, tempFiles(t, b.Store), 1)

	// What others do leaves it where it is.
	b.put("u", "other", "x")
	require.Len(t, tempFiles(t, b.Store), 1)
	second := a.all(b)
	require.Equal(t, []string{"1"}, second.arrived)
	require.Positive(t, second.res.Salvaged)
	_, whole := packBytes(t, a.Store)
	require.Less(t, first.Stored+second.res.Stored, whole+100_000)
	require.Empty(t, tempFiles(t, b.Store))

	// Nobody goes on with it: a collection takes it.
	for i := range 40 {
		noiseFile(t, filepath.Join(a.ws, fmt.Sprint("n", i)), uint64(100+i), 50_000)
	}
	a.put("t", "2", "y")
	ctx, cancel = context.WithCancel(t.Context())
	reads = 0
	free = a.hooked(func(cas.Key) {
		if reads++; reads == 40 {
			cancel()
		}
	})
	_, err = Transfer(ctx, a.Store, b.Store, TransferOptions{})
	require.ErrorIs(t, err, context.Canceled)
	free()
	require.Len(t, tempFiles(t, b.Store), 1)
	gc(t, b.Store)
	require.Empty(t, tempFiles(t, b.Store))
	a.all(b)
}

// TestTransferredIsPurged: nothing is left of a deleted checkpoint that was received.
func TestTransferredIsPurged(t *testing.T) {
	a, b := newSide(t, OpenMemory()), newSide(t, newStore(t))
	a.put("t", "1", "x")
	a.put("t", "secret-id", "y")
	a.name("secret-id", "secret-name")
	a.put("secret-thread", "2", "x")
	a.all(b)
	b.drop("secret-id")
	require.NoError(t, b.DeleteThread(t.Context(), "secret-thread"))
	res, err := b.GC(t.Context(), GCRequest{Purge: true})
	require.NoError(t, err)
	require.True(t, res.Purged, res.Left)
	for _, dir := range []string{"packs", "journal", "index", "cache"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(b.dir, dir), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			require.NotContains(t, string(data), "secret-", path)
			return err
		}))
	}
	require.Equal(t, "1", b.shows("t"))
}

// TestTransferredIsKnownAgain: where a checkpoint came from survives an index that is made
// anew, and a journal that lost it.
func TestTransferredIsKnownAgain(t *testing.T) {
	a, s := newSide(t, OpenMemory()), newStore(t)
	b := &side{Store: s, t: t, ws: t.TempDir()}
	a.put("t", "1", "x")
	a.put("t", "2", "y")
	a.all(b)
	want, err := s.Resolve(t.Context(), "2")
	require.NoError(t, err)
	require.NotNil(t, want.Received)
	require.NoError(t, s.Close())
	for name, harm := range map[string]func(){
		"index": func() { require.NoError(t, os.RemoveAll(filepath.Join(s.dir, indexDir))) },
		"journal": func() {
			flipEntries(t, s.dir, 2)
			_, err := Reindex(t.Context(), s.dir, Options{}, func(string) error { return nil })
			require.NoError(t, err)
		},
	} {
		harm()
		again, err := Open(t.Context(), s.dir, Options{})
		require.NoError(t, err, name)
		got, err := again.Resolve(t.Context(), "2")
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
		require.Empty(t, faults(t, again))
		require.NoError(t, again.Close())
	}
}

// TestTransferSplitsArtifacts: more of them than one entry of the journal takes.
func TestTransferSplitsArtifacts(t *testing.T) {
	a, b := newSide(t, OpenMemory()), newSide(t, newStore(t))
	path := filepath.Join(t.TempDir(), "artifact")
	require.NoError(t, os.WriteFile(path, []byte("x"), 0o644))
	const n = 300
	for i := range 2 {
		var files []ArtifactFile
		for j := range n / 2 {
			files = append(files, ArtifactFile{Path: path, Name: fmt.Sprintf("%d-%d-%s", i, j, strings.Repeat("n", 4000))})
		}
		_, err := a.Save(t.Context(), SaveOptions{Workspace: a.ws, Thread: "t", ID: fmt.Sprint("c", i), Artifacts: files})
		require.NoError(t, err)
	}
	a.drop("c0")
	got := a.all(b)
	require.Equal(t, n, got.res.Artifacts)
	require.Equal(t, a.shows("t"), b.shows("t"))
}
