package snapshot

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

	for _, bad := range [][]byte{nil, data[:len(data)-1], append(data, 0), []byte("\x9f\xff"),
		[]byte("\x98\x01\xa2\x01\x41a\x02\x41b"), []byte("\x81\xa2\x02\x41b\x01\x41a"), []byte("\x81\xa2\x01\x58\x01a\x02\x41b"),
		[]byte("\x81\xa3\x01\x41a\x02\x41b\x03\x01"), []byte("\x9b\x7f\xff\xff\xff\xff\xff\xff\xff"), []byte("\x9a\x00\x40\x00\x01" + strings.Repeat("\xa2\x01\x40\x02\x40", 1<<22+1)),
	} {
		_, err := decodeOmissions(bad)
		require.ErrorIs(t, err, cas.ErrCorrupt)
	}
}
