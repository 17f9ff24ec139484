package snapshot

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/policy"
)

// aged is a store whose threads have checkpoints of so many days, the newest now, and the
// clock that it goes by.
func aged(t *testing.T, threads map[string]int) (*Store, *time.Time) {
	t.Helper()
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	clock := new(time.Time)
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "store"), Options{Create: true, Now: func() time.Time { return *clock }})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	ws := t.TempDir()
	write(t, ws, map[string]string{"f": "1"})
	for thread, days := range threads {
		for day := days - 1; day >= 0; day-- {
			*clock = now.Add(-time.Duration(day) * 24 * time.Hour)
			saveAs(t, s, ws, thread, fmt.Sprintf("%s-%d", thread, day), "")
		}
	}
	*clock = now
	return s, clock
}

func ids(t *testing.T, s *Store, thread string) string {
	t.Helper()
	cps, err := s.Checkpoints(t.Context(), thread, Page{})
	require.NoError(t, err)
	var all []string
	for _, cp := range cps {
		all = append(all, cp.ID)
	}
	return strings.Join(all, " ")
}

// between is a holder that does something before the first checkpoints are dropped.
type between struct {
	Holder
	do func()
}

func (b *between) Forget(ctx context.Context, req ForgetSome) (Forgotten, error) {
	if b.do != nil {
		b.do()
		b.do = nil
	}
	return b.Holder.Forget(ctx, req)
}

// TestForgetWhatChanged: what is named, or the head, or gone when it is to be dropped.
func TestForgetWhatChanged(t *testing.T) {
	s, _ := aged(t, map[string]int{"t": 6, "u": 1})
	s.holder = &between{Holder: s.holder, do: func() {
		_, err := s.Rename(t.Context(), "t-3", "precious")
		require.NoError(t, err)
		for _, id := range []string{"t-0", "t-1", "t-5"} { // t-2 is the head now
			_, err := s.Delete(t.Context(), id)
			require.NoError(t, err)
		}
	}}
	res, err := s.Forget(t.Context(), ForgetOptions{Rules: policy.Retention{KeepLast: 1}})
	require.NoError(t, err)
	require.Equal(t, "t-2 t-3", ids(t, s, "t"))
	require.Len(t, res.Dropped, 1)
	require.Equal(t, "t-4", res.Dropped[0].ID)
	require.Equal(t, 4, res.Kept, "the two of the plan, and two that became so")
	require.Empty(t, res.Failed)
	require.Empty(t, faults(t, s))

	// And a thread that goes meanwhile.
	s, _ = aged(t, map[string]int{"t": 3, "u": 3})
	s.holder = &between{Holder: s.holder, do: func() {
		for _, thread := range []string{"t", "u"} {
			require.NoError(t, s.DeleteThread(t.Context(), thread))
		}
	}}
	res, err = s.Forget(t.Context(), ForgetOptions{Rules: policy.Retention{KeepLast: 1}})
	require.NoError(t, err)
	require.Empty(t, res.Dropped)
	require.Zero(t, res.Threads)
	_, err = s.Forget(t.Context(), ForgetOptions{Thread: "t", Rules: policy.Retention{KeepLast: 1}})
	require.ErrorIs(t, err, index.ErrThreadNotFound)
	_, err = s.Forget(t.Context(), ForgetOptions{Thread: "t"})
	require.ErrorIs(t, err, policy.ErrNoRetention)
}

// TestForgetThatFails: one that cannot be dropped does not keep it from the others.
func TestForgetThatFails(t *testing.T) {
	s, _ := aged(t, map[string]int{"t": 3, "u": 3})
	h, fails := s.holder.(*localHolder), true
	h.steps = func(step string) error {
		if step == "delete" && fails {
			fails = false
			return errors.New("no luck")
		}
		return nil
	}
	res, err := s.Forget(t.Context(), ForgetOptions{Rules: policy.Retention{KeepDaily: 1}})
	require.NoError(t, err)
	require.Len(t, res.Dropped, 2)
	require.Len(t, res.Failed, 1)
	require.Len(t, res.Failed[0].Checkpoints, 2)
	require.ErrorContains(t, res.Failed[0].Err, "no luck")
	require.Equal(t, "t-0", ids(t, s, "t"))
	require.Equal(t, "u-0", ids(t, s, "u"))
	require.Equal(t, "delete_failed", statuses(t, s, res.Failed[0].Thread)[res.Failed[0].Checkpoints[0]])
	_, err = s.Delete(t.Context(), res.Failed[0].Checkpoints[0])
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Forget(ctx, ForgetOptions{Rules: policy.Retention{KeepLast: 1}})
	require.ErrorIs(t, err, context.Canceled)
}

// waits is how a test lets time pass: it moves the clock by what is waited for.
func waits(clock *time.Time, most int, waited *[]time.Duration, stop func()) func(context.Context, time.Duration) {
	return func(_ context.Context, d time.Duration) {
		*waited = append(*waited, d)
		*clock = clock.Add(d)
		if len(*waited) == most {
			stop()
		}
	}
}

// TestRetain: it is done at once, then when a day has passed, also across restarts, and
// whatever happens to the clock.
func TestRetain(t *testing.T) {
	s, clock := aged(t, map[string]int{"t": 4})
	retain := func(most int) (waited []time.Duration) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s.Retain(ctx, RetainOptions{Rules: policy.Retention{KeepLast: 2}, Wait: waits(clock, most, &waited, cancel)})
		return waited
	}
	ws := t.TempDir()
	more := func(id string) { saveAs(t, s, ws, "t", id, "") }
	require.Len(t, retain(1), 1)
	require.Equal(t, "t-0 t-1", ids(t, s, "t"), "at once")

	// A restart does not repeat it, and goes on counting.
	more("a")
	first := *clock
	for range 3 {
		require.Equal(t, []time.Duration{time.Hour}, retain(1))
		require.Equal(t, "a t-0 t-1", ids(t, s, "t"))
	}
	waited := retain(20)
	require.Equal(t, first.Add(23*time.Hour), *clock)
	require.Len(t, waited, 20)
	require.Equal(t, "a t-0 t-1", ids(t, s, "t"), "interrupted before the moment")
	retain(1)
	require.Equal(t, "a t-0", ids(t, s, "t"))

	// A clock that goes back, by years: a day later it is done. One that goes ahead: at once.
	more("b")
	*clock = clock.Add(-10 * 365 * 24 * time.Hour)
	retain(25)
	require.Equal(t, "b a", ids(t, s, "t"))
	more("c")
	*clock = clock.Add(48 * time.Hour)
	retain(1)
	require.Equal(t, "c b", ids(t, s, "t"))

	// What stands there is no time: at once, and from then on it is one.
	more("d")
	require.NoError(t, writeFile(s.fsys, s.dir, filepath.Join(s.dir, cacheDir, retentionFile), []byte("yesterday\n")))
	retain(1)
	require.Equal(t, "d c", ids(t, s, "t"))
	require.WithinDuration(t, *clock, s.lastRetained(), 2*time.Hour)

	// The space is free.
	res, err := s.GC(t.Context(), GCRequest{DryRun: true})
	require.NoError(t, err)
	require.Zero(t, res.Objects)
}

// TestRetainThatFails: it is tried again a day later, not at once; one that is interrupted
// is not done.
func TestRetainThatFails(t *testing.T) {
	s, clock := aged(t, map[string]int{"t": 4})
	h := s.holder.(*localHolder)
	tried := 0
	h.steps = func(string) error {
		tried++
		return errors.New("no luck")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var waited []time.Duration
	s.Retain(ctx, RetainOptions{Rules: policy.Retention{KeepLast: 1}, Wait: waits(clock, 23, &waited, cancel)})
	require.Equal(t, 1, tried)
	require.False(t, s.lastRetained().IsZero())

	s, _ = aged(t, map[string]int{"t": 4})
	ctx, cancel = context.WithCancel(t.Context())
	s.holder = &between{Holder: s.holder, do: cancel}
	s.Retain(ctx, RetainOptions{Rules: policy.Retention{KeepLast: 1}, Wait: func(context.Context, time.Duration) { require.Fail(t, "it waits") }})
	require.True(t, s.lastRetained().IsZero())

	// One at a time.
	s.retaining.Lock()
	s.Retain(t.Context(), RetainOptions{Rules: policy.Retention{KeepLast: 1}})
	s.retaining.Unlock()
}
