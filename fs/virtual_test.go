package fs

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

// TestClock: a directory's time strictly grows with its changes, and stays
// between them.
func TestClock(t *testing.T) {
	at := func(sec, nsec int64) time.Time { return time.Unix(sec, nsec) }
	var c clock
	for i, step := range []struct {
		state string
		time  time.Time
		want  time.Time
	}{
		{"a", at(100, 0), at(100, 0)},
		{"a", at(100, 0), at(100, 0)},
		{"a", at(200, 0), at(100, 0)}, // no change
		{"b", at(100, 0), at(100, 1)}, // in the same moment
		{"c", at(50, 0), at(100, 2)},  // the machine's clock was set back
		{"d", at(300, 5), at(300, 5)},
		{"c", at(50, 0), at(300, 6)},
	} {
		require.Equal(t, step.want, c.at(step.state, step.time), "step %d", i)
	}
}

// TestRoster: a name that is there all the time has one place, whatever comes
// and goes around it.
func TestRoster(t *testing.T) {
	var r roster
	require.Empty(t, r.from(0))
	r.update([]string{"a", "b", "c"})
	require.Equal(t, []string{"a", "b", "c"}, r.from(0))
	r.update([]string{"0", "a", "c"})
	require.Equal(t, []string{"a", "", "c", "0"}, r.from(0))
	require.Equal(t, []string{"c", "0"}, r.from(2))
	r.update([]string{"0", "a", "b", "c"}) // b is a new one
	require.Equal(t, []string{"a", "", "c", "0", "b"}, r.from(0))
	require.Empty(t, r.from(5))
	require.Empty(t, r.from(1<<60))
	got := r.from(0)
	got[0] = "changed"
	require.Equal(t, "a", r.from(0)[0], "the roster is the caller's")
}

func TestErrnos(t *testing.T) {
	f := New(nil, Options{})
	for _, err := range []error{cas.ErrNotFound, cas.ErrCorrupt, tree.ErrInvalid, fmt.Errorf("read: %w", cas.ErrNotFound), errors.New("unknown")} {
		require.Equal(t, "5=input/output error", f.fail("read", 1, err).String(), "%v", err)
	}
	for _, err := range []error{index.ErrThreadNotFound, index.ErrCheckpointNotFound, index.ErrInvalid, snapshot.ErrAmbiguous} {
		require.NoError(t, notThere(fmt.Errorf("x: %w", err)))
	}
	require.Error(t, notThere(cas.ErrNotFound))
}
