package snapshot

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/policy"
)

// TestShowOmissionsOfAnyBytes: neither a left out path nor the pattern that
// excluded it need be UTF-8.
func TestShowOmissionsOfAnyBytes(t *testing.T) {
	ws := filepath.Join(t.TempDir(), "ws")
	require.NoError(t, os.MkdirAll(filepath.Join(ws, "a\xff", "node_modules"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(ws, "b\xfe"), []byte("x"), 0o644))
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "store"), Options{Create: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	files := policy.FilesOptions{Exclude: []policy.Rule{{Pattern: "b\xfe", Source: "--exclude"}}}
	res, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Files: files})
	require.NoError(t, err)

	cp, err := s.Show(t.Context(), res.Checkpoint.ID)
	require.NoError(t, err)
	require.Len(t, cp.Omissions, 2)
	require.Equal(t, "a\xff/node_modules", cp.Omissions[0].Raw())
	require.Equal(t, "b\xfe", cp.Omissions[1].Raw())
	require.Equal(t, "excluded by b\xfe (--exclude)", cp.Omissions[1].Why)

	_, err = s.Verify(t.Context(), VerifyOptions{Data: true}, func(problem string) error { return fmt.Errorf("found: %s", problem) })
	require.NoError(t, err)
}

// TestOmissions: a list longer than a decoder's usual limit is read
// back; bytes that are none are damage.
func TestOmissions(t *testing.T) {
	left := make([]capture.Omission, 200_000)
	for i := range left {
		left[i] = capture.Omission{Path: fmt.Sprintf("logs/%06d.log", i), Why: "excluded"}
	}
	data, err := encodeOmissions(left)
	require.NoError(t, err)
	got, err := decodeOmissions(data)
	require.NoError(t, err)
	require.Equal(t, left, got)

	for _, bad := range [][]byte{nil, data[:len(data)-1], append(data, 0), []byte("\x9f\xff")} {
		_, err := decodeOmissions(bad)
		require.ErrorIs(t, err, cas.ErrCorrupt)
	}
}
