package snapshot

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/index"
)

// failing makes every try to end a deletion fail until heal is called.
func failing(s *Store) (heal func()) {
	h := s.holder.(*localHolder)
	h.steps = func(step string) error {
		if step == "delete" {
			return errors.New("the disk is on fire")
		}
		return nil
	}
	return func() { h.steps = nil }
}

// deletable is a store with a thread of three checkpoints, c-1 named, and a fork of c-2.
func deletable(t *testing.T) (s *Store, ws string) {
	t.Helper()
	s, ws = newStore(t), filepath.Join(t.TempDir(), "ws")
	for i, id := range []string{"c-1", "c-2", "c-3"} {
		noiseFile(t, ws+"/f", uint64(i+1), 20_000)
		saveAs(t, s, ws, "t", id, "")
	}
	_, err := s.Rename(t.Context(), "c-1", "first")
	require.NoError(t, err)
	_, err = s.Fork(t.Context(), "c-2", ForkOptions{Thread: "forked", ID: "fork-1"})
	require.NoError(t, err)
	return s, ws
}

// statuses is a thread's checkpoints with their statuses, those being deleted, too.
func statuses(t *testing.T, s *Store, thread string) map[string]string {
	t.Helper()
	cps, err := s.Checkpoints(t.Context(), thread, Page{Deleting: true})
	require.NoError(t, err)
	all := map[string]string{}
	for _, cp := range cps {
		all[cp.ID] = cp.Status
	}
	return all
}

func TestDeleteThatFails(t *testing.T) {
	s, ws := deletable(t)
	ctx := t.Context()
	heal := failing(s)
	for _, id := range []string{"c-1", "c-3"} {
		_, err := s.Delete(ctx, id)
		require.ErrorContains(t, err, "checkpoint "+id+" is gone from mounts and listings, but could not be removed: the disk is on fire")
		require.Contains(t, Hint(err), "snapfs delete "+id)
	}
	require.Equal(t, map[string]string{"c-1": "delete_failed", "c-2": "ready", "c-3": "delete_failed"}, statuses(t, s, "t"))
	cp, err := s.Show(ctx, "c-3")
	require.NoError(t, err)
	require.Equal(t, "the disk is on fire", cp.StatusMessage)
	require.EqualValues(t, 1, cp.Files)

	// Nothing but that finds it.
	for _, ref := range []string{"c-3", "t@first"} {
		_, err = s.Resolve(ctx, ref)
		require.ErrorIs(t, err, index.ErrCheckpointNotFound, ref)
		_, err = s.Fork(ctx, ref, ForkOptions{Thread: "u"})
		require.ErrorIs(t, err, index.ErrCheckpointNotFound, ref)
	}
	latest, err := s.Resolve(ctx, "t@latest")
	require.NoError(t, err)
	require.Equal(t, "c-2", latest.ID)
	th, err := s.Thread(ctx, "t")
	require.NoError(t, err)
	require.Equal(t, 1, th.Checkpoints)
	_, err = s.Rename(ctx, "c-2", "first")
	require.NoError(t, err, "its name is free")
	_, err = s.Save(ctx, SaveOptions{Workspace: ws, Thread: "t", ID: "c-3"})
	require.ErrorIs(t, err, index.ErrDeleting)
	require.NotEmpty(t, Hint(err))
	saveAs(t, s, ws, "t", "c-4", "")

	// Its bytes go before it does.
	before, err := s.GC(ctx, GCRequest{})
	require.NoError(t, err)
	require.Positive(t, before.Objects)
	require.Empty(t, faults(t, s))

	// It is tried again.
	_, err = s.Delete(ctx, "c-3")
	require.ErrorContains(t, err, "on fire")
	heal()
	_, err = s.Delete(ctx, "c-3")
	require.NoError(t, err)
	_, err = s.Delete(ctx, "c-3")
	require.ErrorIs(t, err, index.ErrCheckpointNotFound)
	saveAs(t, s, ws, "t", "c-3", "")
	require.Equal(t, map[string]string{"c-1": "delete_failed", "c-2": "ready", "c-3": "ready", "c-4": "ready"}, statuses(t, s, "t"))

	// A reference that means another thing, too, means that: an exact id comes last now.
	_, err = s.holder.Delete(ctx, "c-1", DeleteOptions{NoWait: true})
	require.NoError(t, err)
	restored(t, s, "fork-1")
}

func TestDeleteThreadThatFails(t *testing.T) {
	s, ws := deletable(t)
	ctx := t.Context()
	heal := failing(s)
	_, err := s.Delete(ctx, "c-1")
	require.Error(t, err)
	err = s.DeleteThread(ctx, "t")
	require.ErrorContains(t, err, "thread t is gone from mounts and listings")
	require.Contains(t, Hint(err), "snapfs delete --thread t")
	_, err = s.Thread(ctx, "t")
	require.ErrorIs(t, err, index.ErrThreadNotFound)
	_, err = s.Checkpoints(ctx, "t", Page{})
	require.ErrorIs(t, err, index.ErrThreadNotFound)
	require.Equal(t, map[string]string{"c-1": "delete_failed", "c-2": "delete_failed", "c-3": "delete_failed"}, statuses(t, s, "t"))
	_, err = s.Save(ctx, SaveOptions{Workspace: ws, Thread: "t"})
	require.ErrorIs(t, err, index.ErrDeleting)
	require.NotErrorIs(t, err, index.ErrThreadNotFound, "that would be an invitation")
	_, err = s.Fork(ctx, "fork-1", ForkOptions{Thread: "t"})
	require.ErrorIs(t, err, index.ErrDeleting)
	_, err = s.holder.AcquireLease(ctx, leaseOf("t"))
	require.ErrorIs(t, err, index.ErrDeleting)
	_, err = s.Delete(ctx, "c-2")
	require.ErrorContains(t, err, "thread t", "it goes with its thread")
	heal()
	_, err = s.Delete(ctx, "c-2")
	require.NoError(t, err)
	_, err = s.Delete(ctx, "c-3")
	require.ErrorIs(t, err, index.ErrCheckpointNotFound, "all of it")
	saveAs(t, s, ws, "t", "c-1", "")
	restored(t, s, "fork-1")
	_, err = s.Delete(ctx, "fork-1")
	require.NoError(t, err, "a fork's first")
}

// TestDeleteIsResumed: what was decided when the process ended is done when the store is
// opened, in front of it or behind, with and without the old index; and a repair knows it.
func TestDeleteIsResumed(t *testing.T) {
	for name, next := range map[string]struct {
		opt     Options
		harm    bool // the index is gone
		reindex bool
	}{"opened": {}, "opened by a daemon": {opt: Options{Background: true}}, "without the index": {harm: true}, "repaired": {reindex: true}} {
		t.Run(name, func(t *testing.T) {
			s, _ := deletable(t)
			saveAs(t, s, t.TempDir(), "gone", "g-1", "")
			heal := failing(s)
			_, err := s.Delete(t.Context(), "c-1")
			require.Error(t, err)
			_, err = s.Delete(t.Context(), "c-3")
			require.Error(t, err)
			require.Error(t, s.DeleteThread(t.Context(), "gone"))
			want := stateOf(t, s)
			_, err = s.GC(t.Context(), GCRequest{})
			require.NoError(t, err, "the records of what is deleted are gone, too")
			heal()
			require.NoError(t, s.Close())
			if next.harm {
				require.NoError(t, os.RemoveAll(filepath.Join(s.dir, indexDir)))
			}
			if next.reindex {
				_, err := Reindex(t.Context(), s.dir, Options{}, func(problem string) error { return errors.New(problem) })
				require.NoError(t, err)
			}
			again, err := Open(t.Context(), s.dir, next.opt)
			require.NoError(t, err)
			require.Equal(t, want, stateOf(t, again))
			h := again.holder.(*localHolder)
			h.ending.Wait()
			pending, err := h.index.Deletions(t.Context())
			require.NoError(t, err)
			require.Empty(t, pending)
			require.Equal(t, want, stateOf(t, again))
			require.Empty(t, faults(t, again))
			restored(t, again, "fork-1")
			require.NoError(t, again.Close())
		})
	}
}

// TestDeleteAtOnce: many delete the same and save beside it; each is told the truth.
func TestDeleteAtOnce(t *testing.T) {
	s, ws := deletable(t)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for _, id := range []string{"c-1", "c-2", "c-3"} {
				_, err := s.holder.Delete(context.Background(), id, DeleteOptions{NoWait: i == 0})
				if err != nil && !errors.Is(err, index.ErrCheckpointNotFound) {
					t.Errorf("delete: %v", err)
				}
			}
		})
	}
	wg.Go(func() {
		for range 3 {
			_, err := s.Save(context.Background(), SaveOptions{Workspace: ws, Thread: "t"})
			if err != nil && !errors.Is(err, index.ErrStaleHead) {
				t.Errorf("save: %v", err)
			}
		}
	})
	wg.Wait()
	s.holder.(*localHolder).ending.Wait()
	for id := range statuses(t, s, "t") {
		require.NotContains(t, []string{"c-1", "c-2", "c-3"}, id)
	}
	for range 4 {
		wg.Go(func() {
			if err := s.DeleteThread(context.Background(), "t"); err != nil && !errors.Is(err, index.ErrThreadNotFound) {
				t.Errorf("delete thread: %v", err)
			}
			if _, err := s.holder.Delete(context.Background(), "fork-1", DeleteOptions{}); err != nil && !errors.Is(err, index.ErrCheckpointNotFound) {
				t.Errorf("delete: %v", err)
			}
		})
	}
	wg.Wait()
	_, err := s.Thread(t.Context(), "t")
	require.ErrorIs(t, err, index.ErrThreadNotFound)
	require.NotErrorIs(t, err, index.ErrDeleting)
}

// TestPurgeOfWhatIsBeingDeleted: a purge ends deletions first, and asks to come again
// while it cannot.
func TestPurgeOfWhatIsBeingDeleted(t *testing.T) {
	s, _ := deletable(t)
	heal := failing(s)
	_, err := s.Delete(t.Context(), "c-1")
	require.Error(t, err)
	res, err := s.GC(t.Context(), GCRequest{Purge: true})
	require.NoError(t, err)
	require.False(t, res.Purged)
	require.Equal(t, []string{"checkpoint c-1 is being deleted: snapfs delete c-1 ends that"}, res.Left)
	heal()
	res, err = s.GC(t.Context(), GCRequest{})
	require.NoError(t, err)
	require.True(t, res.Purged)
	require.NotContains(t, statuses(t, s, "t"), "c-1")
}

func TestDeleteInMemory(t *testing.T) {
	s := OpenMemory()
	ws := t.TempDir()
	write(t, ws, map[string]string{"f": "1"})
	saveAs(t, s, ws, "t", "c-1", "")
	heal := failing(s)
	_, err := s.Delete(t.Context(), "c-1")
	require.Error(t, err)
	require.Equal(t, map[string]string{"c-1": "delete_failed"}, statuses(t, s, "t"))
	heal()
	_, err = s.Delete(t.Context(), "c-1")
	require.NoError(t, err)
	require.NoError(t, s.Close())
	_, err = s.holder.Delete(t.Context(), "c-1", DeleteOptions{})
	require.ErrorIs(t, err, index.ErrClosed)
}
