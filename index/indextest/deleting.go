package indextest

import (
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/index"
)

// all lists a thread's checkpoints with their statuses, also those being deleted.
func (e *env) all(thread string) (all []string) {
	e.Helper()
	for cp, err := range e.ix.Checkpoints(e.Context(), orgs[0], thread, index.Page{Deleting: true}) {
		require.NoError(e, err)
		all = append(all, fmt.Sprintf("%s %s %s", cp.ID, cp.Status, cp.Name))
	}
	return all
}

func (e *env) deletions() []index.Deletion {
	e.Helper()
	all, err := e.ix.Deletions(e.Context())
	require.NoError(e, err)
	return all
}

// sameAgain opens the index again, which must say the same.
func (e *env) sameAgain() {
	e.Helper()
	NoFindings(e, e.ix)
	before := Dump(e, e.ix, orgs...)
	require.NoError(e, e.ix.Close())
	var err error
	e.ix, err = e.open(e.Context())
	require.NoError(e, err)
	require.Equal(e, before, Dump(e, e.ix, orgs...))
	NoFindings(e, e.ix)
}

func testDeleting(e *env) {
	for i, parent := range []string{"", "x-1", "x-2", "x-3"} {
		e.publish("t", fmt.Sprintf("x-%d", i+1), parent)
	}
	_, err := e.ix.Rename(e.Context(), orgs[0], "x-4", "best")
	require.NoError(e, err)
	require.Empty(e, e.deletions())
	cp, err := e.ix.BeginDelete(e.Context(), orgs[0], "x-4")
	require.NoError(e, err)
	require.Equal(e, index.Ready, cp.Status, "as it was")
	require.Equal(e, "best", cp.Name)
	e.sameAgain()

	// Nothing finds it but its id, and a listing that asks for such.
	_, err = e.ix.Named(e.Context(), orgs[0], "t", "best")
	require.ErrorIs(e, err, index.ErrCheckpointNotFound)
	found, err := e.ix.ByPrefix(e.Context(), orgs[0], "x-", 10)
	require.NoError(e, err)
	require.Len(e, found, 3)
	found, err = e.ix.ByPrefix(e.Context(), orgs[0], "4", 10)
	require.NoError(e, err)
	require.Empty(e, found)
	require.Equal(e, []string{"x-3", "x-2", "x-1"}, e.checkpointIDs("t", index.Page{}))
	require.Equal(e, []string{"x-3"}, e.checkpointIDs("t", index.Page{Limit: 1}))
	require.Equal(e, []string{"x-4 deleting ", "x-3 ready ", "x-2 ready ", "x-1 ready "}, e.all("t"))
	cp, err = e.ix.Checkpoint(e.Context(), orgs[0], "x-4")
	require.NoError(e, err)
	require.Equal(e, index.Deleting, cp.Status)
	require.Empty(e, cp.Name)
	th, err := e.ix.Thread(e.Context(), orgs[0], "t")
	require.NoError(e, err)
	require.Equal(e, "x-3", th.Head)
	require.Equal(e, 3, th.Checkpoints)
	require.EqualValues(e, 30, th.NewBytes)
	require.Equal(e, []index.Deletion{{Org: orgs[0], Thread: "t", Checkpoint: "x-4"}}, e.deletions())

	// Its name is free, its id is not.
	require.ErrorIs(e, e.try("", Record("t", "x-4", "x-3")), index.ErrDeleting)
	require.ErrorIs(e, e.try("", Record("u", "x-4", "")), index.ErrDeleting)
	require.NotErrorIs(e, e.try("", Record("u", "x-4", "")), index.ErrDuplicateID)
	_, err = e.ix.Rename(e.Context(), orgs[0], "x-4", "other")
	require.ErrorIs(e, err, index.ErrDeleting)
	_, err = e.ix.Rename(e.Context(), orgs[0], "x-2", "best")
	require.NoError(e, err)
	e.publish("t", "x-5", "x-3")

	// Asked again nothing changes; the head skips what is being deleted.
	_, err = e.ix.BeginDelete(e.Context(), orgs[0], "x-4")
	require.NoError(e, err)
	for _, id := range []string{"x-3", "x-5"} {
		_, err = e.ix.BeginDelete(e.Context(), orgs[0], id)
		require.NoError(e, err)
	}
	th, err = e.ix.Thread(e.Context(), orgs[0], "t")
	require.NoError(e, err)
	require.Equal(e, "x-2", th.Head)
	require.Equal(e, 2, th.Checkpoints)
	e.sameAgain()

	// The end takes nothing of the others, the name least.
	cp, after, err := e.ix.Delete(e.Context(), orgs[0], "x-4")
	require.NoError(e, err)
	require.Equal(e, "x-4", cp.ID)
	require.Equal(e, th, after)
	require.NoError(e, e.ix.EndDelete(e.Context(), orgs[0], []string{"x-3", "x-1", "x-5", "x-3", "gone"}))
	require.Equal(e, []string{"x-2 ready best", "x-1 ready "}, e.all("t"), "x-1 was not to be deleted")
	require.Empty(e, e.deletions())
	_, err = e.ix.BeginDelete(e.Context(), orgs[0], "x-4")
	require.ErrorIs(e, err, index.ErrCheckpointNotFound)
	require.NoError(e, e.ix.EndDelete(e.Context(), orgs[0], nil))
	require.ErrorIs(e, e.ix.EndDelete(e.Context(), orgs[0], make([]string, index.MaxForget+1)), index.ErrInvalid)
	named, err := e.ix.Named(e.Context(), orgs[0], "t", "best")
	require.NoError(e, err)
	require.Equal(e, "x-2", named.ID)
	e.publish("t", "x-4", "x-2")

	// The last one, and one step after the other.
	for _, id := range []string{"x-1", "x-2", "x-4"} {
		_, err := e.ix.BeginDelete(e.Context(), orgs[0], id)
		require.NoError(e, err)
	}
	th, err = e.ix.Thread(e.Context(), orgs[0], "t")
	require.NoError(e, err)
	require.Empty(e, th.Head)
	require.Zero(e, th.Checkpoints)
	e.publish("t", "new", "")
	require.NoError(e, e.ix.EndDelete(e.Context(), orgs[0], []string{"x-1"}))
}

func testDeletingThread(e *env) {
	e.publish("t", "a-1", "")
	e.publish("t", "a-2", "a-1")
	e.publish("t", "a-3", "a-2")
	e.publish("other", "b-1", "")
	_, err := e.ix.Rename(e.Context(), orgs[0], "a-1", "first")
	require.NoError(e, err)
	require.NoError(e, e.ix.AddArtifact(e.Context(), orgs[0], "t", artifact("f")))
	lease := index.AcquireLease{Org: orgs[0], Thread: "t", Token: index.NewToken(), TTL: index.MaxLease}
	_, err = e.ix.AcquireLease(e.Context(), lease)
	require.NoError(e, err)
	_, err = e.ix.BeginDelete(e.Context(), orgs[0], "a-2")
	require.NoError(e, err)
	require.ErrorIs(e, e.ix.BeginDeleteThread(e.Context(), orgs[0], "nobody"), index.ErrThreadNotFound)
	for range 2 {
		require.NoError(e, e.ix.BeginDeleteThread(e.Context(), orgs[0], "t"))
	}
	e.sameAgain()

	require.Equal(e, []string{"other"}, e.threadIDs(orgs[0], index.Page{}))
	_, err = e.ix.Thread(e.Context(), orgs[0], "t")
	require.ErrorIs(e, err, index.ErrThreadNotFound)
	require.ErrorIs(e, err, index.ErrDeleting)
	_, err = e.ix.Named(e.Context(), orgs[0], "t", "first")
	require.ErrorIs(e, err, index.ErrThreadNotFound)
	_, err = e.ix.Artifacts(e.Context(), orgs[0], "t")
	require.ErrorIs(e, err, index.ErrThreadNotFound)
	require.ErrorIs(e, e.ix.RemoveArtifact(e.Context(), orgs[0], "t", "f"), index.ErrThreadNotFound)
	for _, err := range e.ix.Checkpoints(e.Context(), orgs[0], "t", index.Page{}) {
		require.ErrorIs(e, err, index.ErrThreadNotFound)
	}
	require.Equal(e, []string{"a-3 deleting ", "a-2 deleting ", "a-1 deleting "}, e.all("t"))
	found, err := e.ix.ByPrefix(e.Context(), orgs[0], "a-", 10)
	require.NoError(e, err)
	require.Empty(e, found)
	found, err = e.ix.ByPrefix(e.Context(), orgs[0], "1", 10)
	require.NoError(e, err)
	require.Len(e, found, 1, "the other thread's")
	_, err = e.ix.Lease(e.Context(), orgs[0], "t")
	require.ErrorIs(e, err, index.ErrNoWriter)
	_, err = e.ix.AcquireLease(e.Context(), lease)
	require.ErrorIs(e, err, index.ErrDeleting)
	require.ErrorIs(e, e.ix.AddArtifact(e.Context(), orgs[0], "t", artifact("g")), index.ErrDeleting)
	require.ErrorIs(e, e.try("", Record("t", "new", "a-3")), index.ErrDeleting)
	require.ErrorIs(e, e.try("", Record("t", "new", "")), index.ErrDeleting)
	require.ErrorIs(e, e.try("", Record("other", "a-3", "b-1")), index.ErrDeleting, "its checkpoints' ids are not free")
	_, err = e.ix.Rename(e.Context(), orgs[0], "a-1", "")
	require.ErrorIs(e, err, index.ErrDeleting)
	accepted, err := e.ix.BeginForget(e.Context(), orgs[0], "t", []string{"a-1"})
	require.ErrorIs(e, err, index.ErrThreadNotFound)
	require.Empty(e, accepted)
	cp, err := e.ix.BeginDelete(e.Context(), orgs[0], "a-1")
	require.NoError(e, err)
	require.Equal(e, index.Deleting, cp.Status, "with its thread")
	require.Equal(e, []index.Deletion{{Org: orgs[0], Thread: "t"}, {Org: orgs[0], Thread: "t", Checkpoint: "a-2"}}, e.deletions())

	// One of its checkpoints goes first, by itself.
	require.NoError(e, e.ix.EndDelete(e.Context(), orgs[0], []string{"a-2"}))
	e.sameAgain()
	require.NoError(e, e.ix.DeleteThread(e.Context(), orgs[0], "t"))
	require.ErrorIs(e, e.ix.DeleteThread(e.Context(), orgs[0], "t"), index.ErrThreadNotFound)
	require.Empty(e, e.deletions())
	_, err = e.ix.Thread(e.Context(), orgs[0], "t")
	require.NotErrorIs(e, err, index.ErrDeleting)
	e.publish("t", "a-1", "")
	require.Equal(e, []string{"a-1 ready "}, e.all("t"))

	// And one whose own deletion is decided goes with its thread.
	_, err = e.ix.BeginDelete(e.Context(), orgs[0], "a-1")
	require.NoError(e, err)
	require.NoError(e, e.ix.DeleteThread(e.Context(), orgs[0], "t"), "in one step")
	require.Empty(e, e.deletions())
}

func testForget(e *env) {
	for i, parent := range []string{"", "c-1", "c-2", "c-3", "c-4"} {
		e.publish("t", fmt.Sprintf("c-%d", i+1), parent)
	}
	e.publish("other", "d-1", "")
	e.publish("other", "d-2", "d-1")
	_, err := e.ix.Rename(e.Context(), orgs[0], "c-2", "named meanwhile")
	require.NoError(e, err)
	_, err = e.ix.BeginDelete(e.Context(), orgs[0], "c-3")
	require.NoError(e, err)
	forget := func(ids ...string) []string {
		accepted, err := e.ix.BeginForget(e.Context(), orgs[0], "t", ids)
		require.NoError(e, err)
		return accepted
	}
	require.Equal(e, []string{"c-4", "c-1"}, forget("c-5", "c-4", "c-3", "c-2", "c-1", "c-4", "d-1", "gone"))
	require.Empty(e, forget("c-4", "c-1"), "already")
	require.Equal(e, []string{"c-5", "c-2"}, e.checkpointIDs("t", index.Page{}))
	_, err = e.ix.BeginForget(e.Context(), orgs[0], "nobody", nil)
	require.ErrorIs(e, err, index.ErrThreadNotFound)
	_, err = e.ix.BeginForget(e.Context(), orgs[0], "t", make([]string, index.MaxForget+1))
	require.ErrorIs(e, err, index.ErrInvalid)
	e.sameAgain()
	require.NoError(e, e.ix.EndDelete(e.Context(), orgs[0], []string{"c-4", "c-3", "c-1"}))
	require.Equal(e, []string{"c-5 ready ", "c-2 ready named meanwhile"}, e.all("t"))
	require.Equal(e, []string{"d-2 ready ", "d-1 ready "}, e.all("other"))

	// As many as one step takes.
	var many []string
	parent := "c-5"
	for i := range index.MaxForget + 1 {
		many = append(many, fmt.Sprintf("m-%d", i))
		e.publish("t", many[i], parent)
		parent = many[i]
	}
	require.Len(e, forget(many[:index.MaxForget]...), index.MaxForget)
	require.NoError(e, e.ix.EndDelete(e.Context(), orgs[0], many[:index.MaxForget-1]))
	e.sameAgain()
	require.Len(e, e.deletions(), 1)
}
