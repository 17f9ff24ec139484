package capture

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestOnlyMoved(t *testing.T) {
	gone := &ProblemsError{Problems: []Problem{{Path: "a", Err: fmt.Errorf("a: %w", vanished(unix.ENOENT))}, {Path: "b", Err: vanished(unix.ELOOP)}}}
	require.True(t, OnlyMoved(fmt.Errorf("look: %w", gone)))
	gone.Problems = append(gone.Problems, Problem{Path: "c", Err: unix.EACCES})
	require.False(t, OnlyMoved(gone))
	require.False(t, OnlyMoved(unix.ENOENT))
	require.False(t, OnlyMoved(nil))
}
