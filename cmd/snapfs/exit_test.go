package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/restore"
	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
	}{
		{errors.New("unknown"), 1},
		{os.ErrNotExist, 1}, // of a path; what is not in a store is another error
		{usagef("x"), 2},
		{index.ErrInvalid, 2},
		{snapshot.ErrRefused, 2},
		{&policy.PatternError{}, 2},
		{snapshot.ErrNoStore, 4},
		{index.ErrThreadNotFound, 4},
		{index.ErrCheckpointNotFound, 4},
		{snapshot.ErrAmbiguous, 4},
		{snapshot.ErrNotMounted, 4},
		{snapshot.ErrNoConversation, 4},
		{index.ErrArtifactNotFound, 4},
		{absent(fmt.Errorf("workspace: %w", os.ErrNotExist)), 4},
		{absent(os.ErrPermission), 7},
		{tree.ErrNotFound, 4},
		{restore.ErrNotEmpty, 5},
		{restore.ErrUnfinished, 6},
		{capture.ErrUnfinished, 6},
		{index.ErrStaleHead, 6},
		{index.ErrDuplicateID, 6},
		{index.ErrDuplicateName, 6},
		{snapshot.ErrBusy, 6},
		{snapshot.ErrThreadNotEmpty, 6},
		{snapshot.ErrThreadUnclear, 6},
		{snapshot.ErrMounted, 6},
		{snapshot.ErrMountBusy, 6},
		{snapshot.ErrForbidden, 7},
		{os.ErrPermission, 7},
		{&capture.ProblemsError{Problems: []capture.Problem{{Err: os.ErrPermission}}}, 1},
		{&capture.ProblemsError{Problems: []capture.Problem{{Err: cas.ErrTooLarge}}}, 9},
		{cas.ErrNotFound, 8},
		{cas.ErrCorrupt, 8},
		{index.ErrCorrupt, 8},
		{tree.ErrInvalid, 8},
		{cas.ErrNoSpace, 9},
		{cas.ErrTooLarge, 9},
		{fmt.Errorf("%w: %w", errInterrupted, context.Canceled), 130},
		{errors.Join(fmt.Errorf("more: %w", snapshot.WithHint(index.ErrStaleHead, "hint")), errors.New("other")), 6},
		{&codeError{code: 2, err: index.ErrThreadNotFound}, 2}, // as diff has it
	} {
		var out strings.Builder
		require.Equal(t, c.code, report(&out, c.err), "%v", c.err)
		require.True(t, strings.HasPrefix(out.String(), "snapfs: "), out.String())
	}
}

func TestReport(t *testing.T) {
	var out strings.Builder
	require.Equal(t, 0, report(&out, nil))
	require.Equal(t, 3, report(&out, exit(exitIncomplete)))
	require.Equal(t, 8, report(&out, fmt.Errorf("verify: %w", exit(exitCorrupt))))
	require.Empty(t, out.String(), "what there is to say was printed")
	require.Equal(t, 4, report(&out, fmt.Errorf("show: %w", snapshot.WithHint(index.ErrCheckpointNotFound, "type %s", "this"))))
	require.Equal(t, "snapfs: show: checkpoint not found\nhint: type this\n", out.String())
}
