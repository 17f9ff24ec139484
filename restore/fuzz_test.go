package restore

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/policy"
)

// FuzzMarker: a marker that is believed says all that one says, and a hint can be made
// of it; only the restore that wrote it goes on behind it.
func FuzzMarker(f *testing.F) {
	files, err := policy.CompileFiles(policy.FilesOptions{NoDefaults: true, Exclude: []policy.Rule{{Pattern: "*.log", Source: "--exclude"}}})
	require.NoError(f, err)
	mine := newMarker(Source{Root: [32]byte{1}}, Options{Checkpoint: "cp-1", Files: files})
	for _, m := range []marker{mine, {Version: markerVersion, ACL: []byte{2}, Stage: "x"}, {Version: 2}} {
		data, err := json.Marshal(m)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte(`{"version":1,"version":2}`))
	f.Add([]byte(`{"version":1,"acl":"AgAAAA==","patterns":"\ud800"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var m marker
		if !m.decode(data) {
			return
		}
		require.Equal(t, markerVersion, m.Version)
		again, err := json.Marshal(m)
		require.NoError(t, err)
		var second marker
		require.True(t, second.decode(again))
		if len(m.ACL) == 0 {
			m.ACL = nil
		}
		require.Equal(t, m, second)
		l := &lock{marker: m, fd: -1}
		e := l.refuse("dir")
		require.ErrorIs(t, e, ErrUnfinished)
		require.Equal(t, m.Patterns != "", e.Patterns)
	})
}
