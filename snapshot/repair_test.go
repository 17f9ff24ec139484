package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/snapfs/snapfs/policy"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/castest"
	"github.com/snapfs/snapfs/cas/local"
)

// contents are all files of all checkpoints that can be read.
func (v *victim) contents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, id := range []string{"old", "fork", "new"} {
		for _, path := range []string{"dir/changing", "dir/text", "dir/noise0", "dir/noise1", "dir/noise2", "shared/deep/f", "shared/long", "shared/empty", "many/000", "many/399", "big", "shared/twin"} {
			var b bytes.Buffer
			if err := v.s.Cat(t.Context(), id, path, &b); err == nil {
				all[id+" "+path] = b.String()
			}
		}
	}
	return all
}

// again saves what the checkpoints had.
func (v *victim) again(t *testing.T) {
	t.Helper()
	v.fill(t)
	v.save(t, "old again")
	v.change(t)
	_, err := v.s.Save(t.Context(), SaveOptions{Workspace: v.ws, Thread: "T", ID: "new again"})
	require.NoError(t, err)
}

// TestRepair: damaged packs are moved away, all that could be read before can be
// read after, only what is lost is named any more, and nothing once it was saved
// again.
func TestRepair(t *testing.T) {
	for name, test := range damages {
		t.Run(name, func(t *testing.T) {
			v := newVictim(t)
			test.harm(t, v)
			v.reopen(t, true)
			before := v.contents(t)
			who, others, res := v.verify(t, VerifyOptions{Repair: true})
			require.Equal(t, test.who, who)
			require.Equal(t, test.others, others)
			moved, err := filepath.Glob(filepath.Join(v.s.dir, "damaged", "*.pack"))
			require.NoError(t, err)
			require.Len(t, moved, res.Repaired.Moved)
			require.Equal(t, test.others > 0, res.Repaired.Moved > 0)
			require.Equal(t, filepath.Join(v.s.dir, "damaged"), res.Repaired.Dir)

			lasts := test.who
			if test.lasts != nil {
				lasts = test.lasts
			}
			if len(lasts) == 0 {
				lasts = nil
				require.Zero(t, res.Repaired.Lost)
			} else {
				require.Positive(t, res.Repaired.Lost)
			}
			for _, withIndex := range []bool{true, false} {
				who, others, res = v.verify(t, VerifyOptions{Repair: true})
				require.Equal(t, lasts, who)
				require.Zero(t, others)
				require.Zero(t, res.Repaired.Moved+res.Repaired.Lost+res.Repaired.Copied+res.Repaired.Restored)
				after := v.contents(t)
				for path, data := range before {
					require.Equal(t, data, after[path], path)
				}
				v.reopen(t, withIndex)
			}
			_, err = v.s.GC(t.Context(), GCRequest{})
			if lasts == nil {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, cas.ErrNotFound)
				require.True(t, strings.Contains(err.Error(), "checkpoint ") || strings.Contains(err.Error(), "artifacts of thread "), err)
				require.Contains(t, Hint(err), "snapfs verify --data")
			}
			v.again(t)
			who, others, _ = v.verify(t, VerifyOptions{Data: true})
			require.Equal(t, test.stays, who)
			require.Zero(t, others)
			if test.stays == nil {
				gc(t, v.s)
				require.Empty(t, faults(t, v.s))
			}
		})
	}
}

// TestSaveHealsWithoutRepair: what verify found is stored anew, also where a record
// is missing that no footer lists.
func TestSaveHealsWithoutRepair(t *testing.T) {
	for _, name := range []string{"files of all encodings", "a segment of a large directory", "a footer's magic, and a file behind which others lie"} {
		t.Run(name, func(t *testing.T) {
			v := newVictim(t)
			damages[name].harm(t, v)
			who, others, _ := v.verify(t, VerifyOptions{Data: true})
			require.NotEmpty(t, who)
			v.again(t)
			who, still, _ := v.verify(t, VerifyOptions{Data: true})
			require.Empty(t, who)
			require.Equal(t, others, still, "the pack is as it was")
			_, _, res := v.verify(t, VerifyOptions{Repair: true})
			require.Equal(t, 1, res.Repaired.Moved)
			require.Zero(t, res.Repaired.Lost)
			require.Empty(t, faults(t, v.s))
		})
	}
}

var errKilled = errors.New("killed")

// TestRepairIsBrokenOff: wherever it ends, with the index or without, it can be run
// again, and all is as after one that was not.
func TestRepairIsBrokenOff(t *testing.T) {
	for _, step := range []string{"copied", "moved", "dropped"} {
		for _, withIndex := range []bool{true, false} {
			t.Run(fmt.Sprint(step, " ", withIndex), func(t *testing.T) {
				v := newVictim(t)
				damages["files of all encodings"].harm(t, v)
				v.reopen(t, true)
				before := v.contents(t)
				v.s.holder.(*localHolder).steps = func(s string) error {
					if s == step {
						return errKilled
					}
					return nil
				}
				_, err := v.s.Verify(t.Context(), VerifyOptions{Repair: true}, func(string) error { return nil })
				require.ErrorIs(t, err, errKilled)
				v.reopen(t, withIndex)
				require.Equal(t, before, v.contents(t))
				_, _, res := v.verify(t, VerifyOptions{Repair: true})
				require.Equal(t, 1, res.Repaired.Moved)
				who, others, _ := v.verify(t, VerifyOptions{Data: true})
				require.Equal(t, damages["files of all encodings"].who, who)
				require.Zero(t, others)
				require.Equal(t, before, v.contents(t))
				v.again(t)
				gc(t, v.s)
				require.Empty(t, faults(t, v.s))
			})
		}
	}
}

// TestRepairBesideASave: a save that relied on a damaged object publishes what is
// damaged as well, and the next one heals both, though it knows the workspace.
func TestRepairBesideASave(t *testing.T) {
	s, _ := unsound(t)
	ws := filepath.Join(t.TempDir(), "ws")
	data := noiseFile(t, filepath.Join(ws, "f"), 1, 5000)
	noiseFile(t, filepath.Join(ws, "g"), 2, 5000)
	save(t, s, ws, "t")
	v := &victim{s: s}
	key := cas.NewObject(cas.Files, cas.Data, data).Key
	v.flipObject(t, key)

	h := s.holder.(*localHolder)
	slow := &Store{dir: s.dir, fsys: s.fsys, holder: &repairsAtPublish{Holder: h, t: t, s: s}, blobs: s.blobs, trees: s.trees, log: s.log, now: s.now}
	write(t, ws, map[string]string{"new": "so that there is something to publish"})
	second := save(t, slow, ws, "t")
	require.ErrorIs(t, s.Cat(t.Context(), second.ID, "f", &bytes.Buffer{}), cas.ErrNotFound)
	require.Len(t, faults(t, s), 2)

	save(t, s, ws, "t")
	require.Empty(t, faults(t, s))
	require.NoError(t, s.Cat(t.Context(), second.ID, "f", &bytes.Buffer{}))
}

// repairsAtPublish repairs the store while a save is under way.
type repairsAtPublish struct {
	Holder
	t *testing.T
	s *Store
}

func (h *repairsAtPublish) Begin(ctx context.Context, req BeginRequest) (Session, error) {
	session, err := h.Holder.Begin(ctx, req)
	return &repairingSession{session, h}, err
}

type repairingSession struct {
	Session
	h *repairsAtPublish
}

func (r *repairingSession) Publish(ctx context.Context, req PublishRequest) (Checkpoint, error) {
	res, err := r.h.s.Verify(ctx, VerifyOptions{Repair: true}, func(string) error { return nil })
	require.NoError(r.h.t, err)
	require.Equal(r.h.t, 1, res.Repaired.Moved)
	require.Equal(r.h.t, 1, res.Repaired.Lost)
	return r.Session.Publish(ctx, req)
}

// TestRepairBesideOthers: readers and saves go on.
func TestRepairBesideOthers(t *testing.T) {
	v := newVictim(t)
	want := v.contents(t)
	delete(want, "new dir/noise1")
	delete(want, "old dir/noise1")
	delete(want, "fork dir/noise1")
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for n := range 2 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				for path, data := range want {
					id, name, _ := strings.Cut(path, " ")
					var b bytes.Buffer
					if err := v.s.Cat(t.Context(), id, name, &b); err != nil || b.String() != data {
						t.Errorf("%s: %v", path, err)
						return
					}
				}
				if n == 0 {
					ws := filepath.Join(filepath.Dir(v.ws), fmt.Sprint("other", i))
					if os.MkdirAll(ws, 0o755) != nil || os.WriteFile(filepath.Join(ws, "f"), castest.Noise(uint64(i), 3000), 0o644) != nil {
						t.Error("no workspace")
						return
					}
					if _, err := v.s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: fmt.Sprint("other", i)}); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for range 3 {
		v.flipObject(t, v.file(t, "old", "dir/noise1"))
		_, _, res := v.verify(t, VerifyOptions{Repair: true})
		require.Equal(t, 1, res.Repaired.Moved)
		require.Equal(t, 1, res.Repaired.Lost)
		_, _, err := v.s.AddArtifact(t.Context(), "idle", ArtifactFile{Path: v.artifact}, policy.SecretsWarn, SecretsOptions{})
		require.NoError(t, err)
		v.fill(t)
		_, err = v.s.Save(t.Context(), SaveOptions{Workspace: v.ws, Thread: "T"})
		require.NoError(t, err)
	}
	close(stop)
	wg.Wait()
	require.Empty(t, faults(t, v.s))
}

// TestRepairRefuses one checkpoint, and packs by names that are none; and a pack that
// is whole stays.
func TestRepairRefuses(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"f": "x"})
	cp := save(t, s, ws, "t")
	_, err := s.Verify(t.Context(), VerifyOptions{Repair: true, Ref: cp.ID}, nil)
	require.ErrorIs(t, err, ErrRefused)
	_, err = s.holder.Repair(t.Context(), RepairRequest{Packs: []string{"../../etc"}})
	require.Error(t, err)
	var all []cas.PackID
	for id, err := range local.Packs(s.dir) {
		require.NoError(t, err)
		all = append(all, id)
	}
	res, err := s.holder.Repair(t.Context(), newRepairRequest(append(all, cas.PackID{1})))
	require.NoError(t, err)
	require.Equal(t, RepairResult{Dir: filepath.Join(s.dir, "damaged")}, res)
	require.NoDirExists(t, res.Dir)
	res, err = OpenMemory().holder.Repair(t.Context(), RepairRequest{})
	require.NoError(t, err)
	require.Zero(t, res)
}

// TestRepairWithoutRoom: nothing is moved that could not be copied.
func TestRepairWithoutRoom(t *testing.T) {
	mnt := smallDisk(t, "64m")
	s, err := Open(t.Context(), filepath.Join(mnt, "store"), Options{Create: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	ws := filepath.Join(t.TempDir(), "ws")
	data := noiseFile(t, filepath.Join(ws, "f"), 1, 5000)
	noiseFile(t, filepath.Join(ws, "kept"), 2, 20<<20)
	cp := save(t, s, ws, "t")
	v := &victim{s: s}
	key := cas.NewObject(cas.Files, cas.Data, data).Key
	v.flipObject(t, key)
	free, err := local.FreeSpace(mnt)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(mnt, "fill"), castest.Noise(9, int(free-10<<20)), 0o600))

	_, err = s.Verify(t.Context(), VerifyOptions{Repair: true}, func(string) error { return nil })
	require.ErrorIs(t, err, cas.ErrNoSpace)
	require.NoDirExists(t, filepath.Join(s.dir, "damaged"))
	require.Empty(t, tempFiles(t, s))
	require.NoError(t, s.Cat(t.Context(), cp.ID, "kept", &bytes.Buffer{}))
	require.Len(t, faults(t, s), 2)

	require.NoError(t, os.Remove(filepath.Join(mnt, "fill")))
	_, _, res := v.verify(t, VerifyOptions{Repair: true})
	require.Equal(t, 1, res.Repaired.Moved)
	require.NoError(t, s.Cat(t.Context(), cp.ID, "kept", &bytes.Buffer{}))
	require.Len(t, faults(t, s), 1)
}

// TestGCLeavesDamagedPacks: without its footer nobody knows what a pack holds, so it
// is not rewritten, and goes once a repair has seen to it.
func TestGCLeavesDamagedPacks(t *testing.T) {
	v := newVictim(t)
	keep := v.file(t, "new", "dir/noise0")
	path := v.pack(v.at(t, keep).Location.Pack)
	v.flip(t, v.at(t, keep).Location.Pack, -20)
	for _, id := range []string{"old", "fork"} {
		_, err := v.s.Delete(t.Context(), id)
		require.NoError(t, err)
	}
	gc(t, v.s)
	require.FileExists(t, path)
	_, _, res := v.verify(t, VerifyOptions{Repair: true})
	require.Equal(t, 1, res.Repaired.Moved)
	require.Zero(t, res.Repaired.Lost)
	gc(t, v.s)
	require.NoFileExists(t, path)
	require.Empty(t, faults(t, v.s))
	restored(t, v.s, "new")
}
