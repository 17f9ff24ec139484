package client_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/disk/disktest"
	"github.com/snapfs/snapfs/server"
	"github.com/snapfs/snapfs/snapshot"
)

// clock is one that all who use it can move on.
type clock struct{ ns atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.ns.Store(1_700_000_000_000_000_000)
	return c
}

func (c *clock) now() time.Time          { return time.Unix(0, c.ns.Load()).UTC() }
func (c *clock) advance(d time.Duration) { c.ns.Add(int64(d)) }

// writers are several that publish into the same threads.
type writers struct {
	t     *testing.T
	store func() *snapshot.Store // one of the writer's own, if it has a connection
	clock *clock
	want  int64 // publishes in all

	done atomic.Int64
	lost atomic.Int64 // publishes that failed for a lease that was over

	mu     sync.Mutex
	acked  map[string][]string // checkpoints by thread
	fences map[uint64]string   // who acquired with which
}

const competing = 8 // writers and threads

// TestEightWriters: eight writers compete for eight threads, with leases and without,
// and some lose theirs on purpose. What was acknowledged is in its thread's chain
// exactly once, nothing else is, in the order of the fences, and no fence is given
// twice. With SNAPFS_LARGE they publish 1,000 times instead of 120.
func TestEightWriters(t *testing.T) {
	publishes := int64(120)
	if os.Getenv("SNAPFS_LARGE") != "" {
		publishes = 1000
	}
	for _, kind := range []string{"in process", "client"} {
		t.Run(kind, func(t *testing.T) {
			dir := filepath.Join(disktest.Memory(t), "store")
			w := &writers{t: t, clock: newClock(), want: publishes, acked: map[string][]string{}, fences: map[uint64]string{}}
			opt := snapshot.Options{Create: true, Now: w.clock.now}
			held, err := snapshot.Open(t.Context(), dir, opt)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, held.Close()) })
			w.store = func() *snapshot.Store { return held }
			if kind == "client" {
				serveStore(t, held, server.Options{})
				w.store = func() *snapshot.Store { return open(t, dir, snapshot.Options{}) }
			}
			var wg sync.WaitGroup
			for n := range competing {
				s, ws := w.store(), t.TempDir()
				wg.Go(func() {
					if err := w.run(s, ws, n); err != nil {
						t.Errorf("writer %d: %v", n, err)
					}
				})
			}
			wg.Wait()
			require.False(t, t.Failed())
			w.check(held)
			t.Logf("%d publishes, %d lost, %d leases", w.done.Load(), w.lost.Load(), len(w.fences))
		})
	}
}

// run is one writer.
func (w *writers) run(s *snapshot.Store, ws string, n int) error {
	ctx, rnd := w.t.Context(), rand.New(rand.NewPCG(uint64(n), 1))
	for round := 0; w.done.Load() < w.want; round++ {
		thread := fmt.Sprint("thread-", (n+round)%competing)
		publish := func(step int, lease snapshot.Lease) error {
			id := fmt.Sprintf("cp-%d-%d-%d", n, round, step)
			if err := os.WriteFile(filepath.Join(ws, "f"), []byte(id), 0o644); err != nil {
				return err
			}
			opt := snapshot.SaveOptions{Workspace: ws, Thread: thread, ID: id, Lease: lease.Token}
			if lease.Token != "" {
				opt.Labels = map[string]string{"fence": strconv.FormatUint(lease.Fence, 10)}
			}
			_, err := s.Save(ctx, opt)
			if err == nil {
				w.done.Add(1)
				w.mu.Lock()
				w.acked[thread] = append(w.acked[thread], id)
				w.mu.Unlock()
			}
			return err
		}
		if rnd.IntN(10) == 0 { // somebody who knows of no leases
			if err := publish(0, snapshot.Lease{}); !fine(err) {
				return err
			}
			continue
		}
		lease, err := s.AcquireWriter(ctx, thread, snapshot.LeaseOptions{Owner: fmt.Sprint("writer ", n), TTL: time.Minute})
		if errors.Is(err, index.ErrWriterConflict) {
			continue
		}
		if err != nil {
			return err
		}
		w.mu.Lock()
		other, twice := w.fences[lease.Fence]
		w.fences[lease.Fence] = lease.Owner
		w.mu.Unlock()
		if twice {
			return fmt.Errorf("fence %d was given to %s, too", lease.Fence, other)
		}
		for step := range 1 + rnd.IntN(4) {
			gone := false
			switch rnd.IntN(20) {
			case 0: // everybody's time is over
				w.clock.advance(time.Minute)
				gone = true
			case 1: // somebody else takes it over
				err := s.ReleaseWriter(ctx, thread, lease.Token)
				if err == nil {
					_, err = s.AcquireWriter(ctx, thread, snapshot.LeaseOptions{Owner: "thief", TTL: time.Second})
				}
				if !fine(err) {
					return err
				}
				gone = true
			case 2:
				if _, err := s.RenewWriter(ctx, thread, lease.Token); !fine(err) {
					return err
				}
			}
			err := publish(step, lease)
			if errors.Is(err, index.ErrWriterLost) {
				w.lost.Add(1)
			}
			if !fine(err) || gone && err == nil {
				return fmt.Errorf("publish with a lease that is over: %t: %w", gone, err)
			}
		}
		if err := s.ReleaseWriter(ctx, thread, lease.Token); !fine(err) {
			return err
		}
		w.clock.advance(time.Second) // a thief's time
	}
	return nil
}

// fine reports whether a writer may meet an error when others write.
func fine(err error) bool {
	for _, known := range []error{nil, index.ErrWriterLost, index.ErrWriterConflict, index.ErrStaleHead, snapshot.ErrBusy} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// check compares the store with what was acknowledged.
func (w *writers) check(s *snapshot.Store) {
	require.GreaterOrEqual(w.t, w.done.Load(), w.want)
	require.Positive(w.t, w.lost.Load())
	require.Len(w.t, w.acked, competing)
	for _, thread := range slices.Sorted(maps.Keys(w.acked)) {
		list, err := s.Checkpoints(w.t.Context(), thread, snapshot.Page{})
		require.NoError(w.t, err)
		head, err := s.Thread(w.t.Context(), thread)
		require.NoError(w.t, err)
		next, fence := head.Head, ^uint64(0)
		var ids []string
		for _, cp := range list { // from the newest on
			require.Equal(w.t, next, cp.ID, "thread %s", thread)
			if text := cp.Labels["fence"]; text != "" {
				n, err := strconv.ParseUint(text, 10, 64)
				require.NoError(w.t, err)
				require.LessOrEqual(w.t, n, fence, "checkpoint %s was published by a stale writer", cp.ID)
				fence = n
			}
			ids, next = append(ids, cp.ID), cp.Parent
		}
		require.Empty(w.t, next)
		require.ElementsMatch(w.t, w.acked[thread], ids)
	}
	_, err := s.Verify(w.t.Context(), snapshot.VerifyOptions{}, func(problem string) error { return errors.New(problem) })
	require.NoError(w.t, err)
}
