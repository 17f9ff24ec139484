package client_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/client"
	"github.com/snapfs/snapfs/snapshot"
)

// open opens a store as a verb does; it is closed with the test.
func open(t *testing.T, dir string, opt snapshot.Options) *snapshot.Store {
	t.Helper()
	s, err := client.Open(t.Context(), dir, opt, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}
