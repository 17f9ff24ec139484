package indextest

import (
	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/index"
)

// receive publishes what another store had, in the first organization.
func (e *env) receive(head string, from index.Received, rec index.Record, artifacts ...index.Artifact) (index.Checkpoint, error) {
	e.Helper()
	return e.ix.Publish(e.Context(), index.Publish{
		Org: orgs[0], Record: Store(e, e.ix, e.packs, rec), ExpectedHead: head, Received: from, Artifacts: artifacts,
	})
}

// testReceived: a checkpoint from another store may have any parent, and nothing else is
// different.
func testReceived(e *env) {
	from := func(seq uint64) index.Received { return index.Received{Store: "another", Seq: seq} }
	first, err := e.receive("", from(7), Record("t", "c1", "gone"), artifact("one"))
	require.NoError(e, err)
	require.Equal(e, from(7), first.Received)
	require.Equal(e, "gone", first.Parent)
	got, err := e.ix.Checkpoint(e.Context(), orgs[0], "c1")
	require.NoError(e, err)
	require.Equal(e, first, got)
	_, err = e.receive("c1", from(9), Record("t", "c2", "of nobody"))
	require.NoError(e, err)
	th, err := e.ix.Thread(e.Context(), orgs[0], "t")
	require.NoError(e, err)
	require.Equal(e, []any{"c2", 2, 1, int64(20)}, []any{th.Head, th.Checkpoints, th.Artifacts, th.NewBytes})

	for _, test := range []struct {
		head string
		from index.Received
		rec  index.Record
		want error
	}{
		{"c1", from(10), Record("t", "c3", "c2"), index.ErrStaleHead},
		{"c2", from(10), Record("t", "c1", "c2"), index.ErrDuplicateID},
		{"c2", index.Received{Store: "another"}, Record("t", "c3", "c2"), index.ErrInvalid},
		{"c2", index.Received{Store: "a\x00b", Seq: 1}, Record("t", "c3", "c2"), index.ErrInvalid},
		{"c2", index.Received{}, Record("t", "c3", "c1"), index.ErrInvalid},
	} {
		_, err := e.receive(test.head, test.from, test.rec)
		require.ErrorIs(e, err, test.want, "%+v", test)
	}
	l, err := e.ix.AcquireLease(e.Context(), index.AcquireLease{Org: orgs[0], Thread: "t", Token: index.NewToken(), TTL: index.MaxLease})
	require.NoError(e, err)
	require.Equal(e, "t", l.Thread)
	_, err = e.receive("c2", from(10), Record("t", "c3", "c2"))
	require.ErrorIs(e, err, index.ErrWriterConflict)

	// What was published is known by its number, whatever became of it.
	gone := e.publish("gone", "g1", "")
	require.NoError(e, e.ix.DeleteThread(e.Context(), orgs[0], "gone"))
	for _, cp := range []index.Checkpoint{first, gone} {
		id, record, err := e.ix.Published(e.Context(), orgs[0], cp.Seq)
		require.NoError(e, err)
		require.Equal(e, cp.ID, id)
		require.Equal(e, cp.RecordHash, record)
	}
	for _, seq := range []uint64{0, gone.Seq + 1, 1 << 60} { // the next one is the deletion
		_, _, err := e.ix.Published(e.Context(), orgs[0], seq)
		require.ErrorIs(e, err, index.ErrCheckpointNotFound)
	}
	_, _, err = e.ix.Published(e.Context(), orgs[1], first.Seq)
	require.ErrorIs(e, err, index.ErrCheckpointNotFound)

	// What is made here goes on behind it, and what is renamed keeps where it came from.
	e.publish("u", "d1", "")
	_, err = e.receive("d1", from(11), Record("u", "d2", "elsewhere"))
	require.NoError(e, err)
	own := e.publish("u", "d3", "d2")
	require.True(e, own.Received.IsZero())
	_, err = e.ix.Rename(e.Context(), orgs[0], "d2", "named")
	require.NoError(e, err)
	_, _, err = e.ix.Delete(e.Context(), orgs[0], "d3")
	require.NoError(e, err)
	got, err = e.ix.Named(e.Context(), orgs[0], "u", "named")
	require.NoError(e, err)
	require.Equal(e, from(11), got.Received)
	require.Equal(e, []string{"d2", "d1"}, e.checkpointIDs("u", index.Page{}))
}
