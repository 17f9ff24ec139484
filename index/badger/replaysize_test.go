package badger

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/index/indextest"
)

// TestManyRenamesAreReplayed: names of checkpoints with long records, one after the other,
// keep no index from being made anew.
func TestManyRenamesAreReplayed(t *testing.T) {
	s := newStore(t)
	parent := ""
	for i := range replayEntries {
		rec := indextest.Record("t", fmt.Sprintf("c-%d", i), parent)
		rec.Message = strings.Repeat("m", index.MaxMessage)
		_, err := indextest.Publish(s, s.ix, s.packs, "acme", "", rec)
		require.NoError(t, err)
		parent = rec.ID
	}
	for i := range replayEntries {
		_, err := s.ix.Rename(t.Context(), "acme", fmt.Sprintf("c-%d", i), fmt.Sprintf("n-%d", i))
		require.NoError(t, err)
	}
	want := s.dump()
	s.crash()
	require.NoError(t, os.RemoveAll(s.path("index")))
	s.ix = s.open("boot-2")
	require.Equal(t, want, s.dump())
}

// TestLongIDsAreForgotten: as many as one change deletes, with the longest ids there are.
func TestLongIDsAreForgotten(t *testing.T) {
	s := newStore(t)
	var ids []string
	parent, thread := "", strings.Repeat("t", index.MaxID)
	for i := range index.MaxForget + 1 {
		rec := indextest.Record(thread, fmt.Sprintf("-%s%03d", strings.Repeat("i", index.MaxID-4), i), parent)
		_, err := indextest.Publish(s, s.ix, s.packs, "acme", strings.Repeat("n", index.MaxName-3)+fmt.Sprintf("%03d", i), rec)
		require.NoError(t, err)
		ids, parent = append(ids, rec.ID), rec.ID
	}
	for _, id := range ids[1:] {
		_, err := s.ix.Rename(t.Context(), "acme", id, "")
		require.NoError(t, err)
	}
	accepted, err := s.ix.BeginForget(t.Context(), "acme", thread, ids[1:])
	require.NoError(t, err)
	require.Equal(t, ids[1:index.MaxForget], accepted, "but for the head")
	s.crash()
	require.NoError(t, os.RemoveAll(s.path("index")))
	s.ix = s.open("boot-2")
	require.NoError(t, s.ix.EndDelete(t.Context(), "acme", accepted))
	want := s.dump()
	s.crash()
	require.NoError(t, os.RemoveAll(s.path("index")))
	s.ix = s.open("boot-3")
	require.Equal(t, want, s.dump())
	require.Equal(t, 2, want["acme"].Threads[0].Checkpoints)
}
