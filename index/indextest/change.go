package indextest

import (
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
)

func testMovedLocations(e *env) {
	e.packs.Fill(3)
	var keys []cas.Key
	for objects, err := range e.packs.All(e.Context()) {
		require.NoError(e, err)
		require.NoError(e, e.ix.AddLocations(e.Context(), objects))
		keys = append(keys, objects[0].Key)
	}
	moved := Place(keys[1], 77)
	require.NoError(e, e.ix.MoveLocations(e.Context(), []index.Located{moved}))
	require.NoError(e, e.ix.DropLocations(e.Context(), keys[2:]))
	locs, err := e.ix.Locate(e.Context(), keys)
	require.NoError(e, err)
	require.Equal(e, []cas.Location{Place(keys[0], 0).Location, moved.Location, {}}, locs)
	all := map[cas.Key]cas.Location{}
	for o, err := range e.ix.Locations(e.Context()) {
		require.NoError(e, err)
		all[o.Key] = o.Location
	}
	require.Equal(e, map[cas.Key]cas.Location{keys[0]: locs[0], keys[1]: locs[1]}, all)
	require.NoError(e, e.ix.DropLocations(e.Context(), keys[2:]), "what is nowhere")
}

func testRename(e *env) {
	e.publish("t", "a", "")
	e.publish("t", "b", "a")
	e.publish("other", "c", "")
	rename := func(id, name string) error {
		cp, err := e.ix.Rename(e.Context(), orgs[0], id, name)
		if err == nil {
			require.Equal(e, name, cp.Name)
			require.Equal(e, id, cp.ID)
			again, err := e.ix.Checkpoint(e.Context(), orgs[0], id)
			require.NoError(e, err)
			require.Equal(e, again, cp)
		}
		return err
	}
	require.NoError(e, rename("a", "first"))
	require.NoError(e, rename("a", "first"), "its own name")
	require.ErrorIs(e, rename("b", "first"), index.ErrDuplicateName)
	require.NoError(e, rename("c", "first"), "names are a thread's own")
	named, err := e.ix.Named(e.Context(), orgs[0], "t", "first")
	require.NoError(e, err)
	require.Equal(e, "a", named.ID)
	require.NoError(e, rename("a", "second"))
	require.NoError(e, rename("b", "first"), "the old name is free")
	require.NoError(e, rename("b", ""))
	require.NoError(e, rename("b", ""), "none already")
	_, err = e.ix.Named(e.Context(), orgs[0], "t", "first")
	require.ErrorIs(e, err, index.ErrCheckpointNotFound)
	require.ErrorIs(e, rename("a", "latest"), index.ErrInvalid)
	require.ErrorIs(e, rename("absent", "x"), index.ErrCheckpointNotFound)
	_, err = e.ix.Rename(e.Context(), orgs[1], "a", "x")
	require.ErrorIs(e, err, index.ErrCheckpointNotFound, "another organization's")
	th, err := e.ix.Thread(e.Context(), orgs[0], "t")
	require.NoError(e, err)
	require.Equal(e, "b", th.Head, "a name does not move the head")
	require.Equal(e, []string{"other", "t"}, e.threadIDs(orgs[0], index.Page{}), "nor is it activity")
}

func testDelete(e *env) {
	ids := []string{"x-1", "x-2", "x-3", "x-4"}
	parent := ""
	for _, id := range ids {
		e.publish("t", id, parent)
		parent = id
	}
	_, err := e.ix.Rename(e.Context(), orgs[0], "x-4", "best")
	require.NoError(e, err)
	remove := func(id string) (index.Thread, error) {
		cp, th, err := e.ix.Delete(e.Context(), orgs[0], id)
		if err == nil {
			require.Equal(e, id, cp.ID)
			now, err := e.ix.Thread(e.Context(), orgs[0], "t")
			require.NoError(e, err)
			require.Equal(e, now, th)
			_, err = e.ix.Checkpoint(e.Context(), orgs[0], id)
			require.ErrorIs(e, err, index.ErrCheckpointNotFound)
		}
		return th, err
	}
	th, err := remove("x-2")
	require.NoError(e, err)
	require.Equal(e, "x-4", th.Head, "an older one")
	require.EqualValues(e, 30, th.NewBytes)
	th, err = remove("x-4")
	require.NoError(e, err)
	require.Equal(e, "x-3", th.Head)
	require.Equal(e, []string{"x-3", "x-1"}, e.checkpointIDs("t", index.Page{}))
	_, err = e.ix.Named(e.Context(), orgs[0], "t", "best")
	require.ErrorIs(e, err, index.ErrCheckpointNotFound)
	found, err := e.ix.ByPrefix(e.Context(), orgs[0], "4", 5)
	require.NoError(e, err)
	require.Empty(e, found)
	_, err = remove("x-4")
	require.ErrorIs(e, err, index.ErrCheckpointNotFound)
	require.ErrorIs(e, e.try("", Record("t", "y", "x-4")), index.ErrStaleHead)

	e.publish("t", "x-4", "x-3") // the id is free again
	for _, id := range []string{"x-4", "x-3", "x-1"} {
		th, err = remove(id)
		require.NoError(e, err)
	}
	require.Equal(e, "", th.Head)
	require.Zero(e, th.Checkpoints)
	require.Zero(e, th.NewBytes)
	require.Equal(e, []string{"t"}, e.threadIDs(orgs[0], index.Page{}), "an empty thread stays")
	e.publish("t", "z", "")
}

func testDeleteThread(e *env) {
	const many = 700 // more than one step
	parent := ""
	for i := range many {
		id := fmt.Sprintf("c-%04d", i)
		e.publish("big", id, parent)
		parent = id
	}
	require.NoError(e, e.ix.AddArtifact(e.Context(), orgs[0], "big", artifact("f")))
	e.publish("small", "kept", "")
	require.NoError(e, e.ix.DeleteThread(e.Context(), orgs[0], "big"))
	require.ErrorIs(e, e.ix.DeleteThread(e.Context(), orgs[0], "big"), index.ErrThreadNotFound)
	require.Equal(e, []string{"small"}, e.threadIDs(orgs[0], index.Page{}))
	_, err := e.ix.Checkpoint(e.Context(), orgs[0], "c-0000")
	require.ErrorIs(e, err, index.ErrCheckpointNotFound)
	_, err = e.ix.Checkpoint(e.Context(), orgs[0], parent)
	require.ErrorIs(e, err, index.ErrCheckpointNotFound)
	_, err = e.ix.Artifacts(e.Context(), orgs[0], "big")
	require.ErrorIs(e, err, index.ErrThreadNotFound)
	e.publish("big", "c-0000", "")
	artifacts, err := e.ix.Artifacts(e.Context(), orgs[0], "big")
	require.NoError(e, err)
	require.Empty(e, artifacts, "a new thread of the old id has nothing of it")
}

func artifact(id string) index.Artifact {
	return index.Artifact{ID: id, Name: "report.pdf", MediaType: "application/pdf",
		Blob: index.Blob{Hash: cas.Data.Sum([]byte(id)), Size: 5}, Created: 1_700_000_000_000_000_000}
}

func testArtifacts(e *env) {
	ctx := e.Context()
	require.NoError(e, e.ix.AddArtifact(ctx, orgs[0], "t", artifact("one")), "it makes the thread")
	th, err := e.ix.Thread(ctx, orgs[0], "t")
	require.NoError(e, err)
	require.Equal(e, 1, th.Artifacts)
	require.Zero(e, th.Checkpoints)
	require.ErrorIs(e, e.ix.AddArtifact(ctx, orgs[0], "t", artifact("one")), index.ErrDuplicateID)
	require.NoError(e, e.ix.AddArtifact(ctx, orgs[0], "other", artifact("one")), "ids are a thread's own")
	publish := func(id, parent string, artifacts ...index.Artifact) error {
		_, err := e.ix.Publish(ctx, index.Publish{Org: orgs[0], Record: Store(e, e.ix, e.packs, Record("t", id, parent)), ExpectedHead: parent, Artifacts: artifacts})
		return err
	}
	require.NoError(e, publish("c1", "", artifact("two"), artifact("three")))
	require.ErrorIs(e, publish("c2", "c1", artifact("two")), index.ErrDuplicateID)
	require.ErrorIs(e, publish("c2", "c1", artifact("x"), artifact("x")), index.ErrDuplicateID)
	require.ErrorIs(e, publish("c2", "c1", index.Artifact{ID: "y"}), index.ErrInvalid)
	all, err := e.ix.Artifacts(ctx, orgs[0], "t")
	require.NoError(e, err)
	require.Equal(e, []index.Artifact{artifact("one"), artifact("three"), artifact("two")}, all)
	require.NoError(e, e.ix.RemoveArtifact(ctx, orgs[0], "t", "three"))
	require.ErrorIs(e, e.ix.RemoveArtifact(ctx, orgs[0], "t", "three"), index.ErrArtifactNotFound)
	require.ErrorIs(e, e.ix.RemoveArtifact(ctx, orgs[0], "absent", "three"), index.ErrThreadNotFound)
	require.ErrorIs(e, e.ix.AddArtifact(ctx, orgs[0], "t", index.Artifact{}), index.ErrInvalid)
	_, err = e.ix.Artifacts(ctx, orgs[1], "t")
	require.ErrorIs(e, err, index.ErrThreadNotFound)
}

func testOrganizations(e *env) {
	list := func() []string {
		got, err := e.ix.Organizations(e.Context())
		require.NoError(e, err)
		return got
	}
	require.Empty(e, list())
	for _, org := range orgs {
		for _, th := range []string{"a", "b"} {
			_, err := Publish(e, e.ix, e.packs, org, "", Record(th, th+org, ""))
			require.NoError(e, err)
		}
	}
	require.ElementsMatch(e, orgs, list())
}
