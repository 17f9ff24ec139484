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

// TestCalendar: a directory's time strictly grows with its changes, and stays
// between them.
func TestCalendar(t *testing.T) {
	at := func(sec, nsec int64) time.Time { return time.Unix(sec, nsec) }
	var c calendar
	var node shown
	require.Equal(t, at(100, 0), node.at(c.at("d", at(100, 0))), "nothing was noted")
	for i, step := range []struct {
		change, index time.Time // of the change, and what the index says then
		want          time.Time
	}{
		{at(100, 0), at(100, 0), at(100, 1)}, // in the same moment
		{at(50, 0), at(50, 0), at(100, 2)},   // the machine's clock was set back
		{at(300, 5), at(300, 5), at(300, 5)},
		{at(400, 0), at(300, 5), at(400, 0)}, // of which the index knows nothing
		{at(300, 0), at(300, 0), at(400, 1)},
	} {
		c.changed("d", step.change, node.last())
		for range 2 {
			require.Equal(t, step.want, node.at(c.at("d", step.index)), "step %d", i)
		}
	}
	require.Equal(t, at(7, 0), c.at("other", at(7, 0)))
	// The kernel forgot the directory, which is another node now.
	require.Equal(t, at(400, 1), new(shown).at(c.at("d", at(300, 0))))
	c.forget("d")
	require.Equal(t, at(1, 0), c.at("d", at(1, 0)))
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
	f := newFS("", nil, nil, Options{})
	for _, err := range []error{cas.ErrNotFound, cas.ErrCorrupt, tree.ErrInvalid, fmt.Errorf("read: %w", cas.ErrNotFound), errors.New("unknown")} {
		require.Equal(t, "5=input/output error", f.fail("read", 1, err).String(), "%v", err)
	}
	for _, err := range []error{index.ErrThreadNotFound, index.ErrCheckpointNotFound, index.ErrInvalid, snapshot.ErrAmbiguous} {
		require.NoError(t, notThere(fmt.Errorf("x: %w", err)))
	}
	require.Error(t, notThere(cas.ErrNotFound))
}
