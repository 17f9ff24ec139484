// Package indextest is the suite that every engine of the index passes. An
// engine's test is a few lines:
//
//	indextest.Run(t, func(t *testing.T, packs *indextest.Packs) indextest.Open {
//		dir := t.TempDir()
//		return func(ctx context.Context) (index.Index, error) { return engine.Open(ctx, dir, packs) }
//	})
package indextest

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/index"
)

// Open opens one index; after the handle it returned was closed, it is called
// again and opens the same one.
type Open func(ctx context.Context) (index.Index, error)

// Run runs the suite. engine prepares a new, empty index that reads its records
// and the time from packs. Each test ends with [index.Index.Check], closes the index, and
// compares what it says after it was opened again.
func Run(t *testing.T, engine func(t *testing.T, packs *Packs) Open) {
	tests := []struct {
		name string
		run  func(*env)
	}{
		{"publish", testPublish},
		{"publish refusals", testRefusals},
		{"record must exist", testRecordMissing},
		{"heads", testHeads},
		{"received", testReceived},
		{"concurrent publishers", testConcurrent},
		{"duplicate ids", testDuplicateIDs},
		{"names", testNames},
		{"unusual ids", testUnusualIDs},
		{"organizations", testOrgs},
		{"thread listing", testThreads},
		{"checkpoint listing", testCheckpoints},
		{"listing and writing", testListWhileWriting},
		{"by prefix", testByPrefix},
		{"not found", testNotFound},
		{"locations", testLocations},
		{"moved locations", testMovedLocations},
		{"rename", testRename},
		{"delete", testDelete},
		{"delete thread", testDeleteThread},
		{"delete in two steps", testDeleting},
		{"delete a thread in two steps", testDeletingThread},
		{"forget", testForget},
		{"artifacts", testArtifacts},
		{"leases", testLeases},
		{"leases that expire", testLeasesExpire},
		{"leases and publishes", testLeasedPublish},
		{"leases of deleted threads", testLeasesOfDeleted},
		{"leases by a model", testLeaseModel},
		{"leases and many writers", testLeaseRace},
		{"listed organizations", testOrganizations},
		{"context", testContext},
		{"close", testClose},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			packs := NewPacks()
			e := &env{T: t, packs: packs, open: engine(t, packs)}
			var err error
			e.ix, err = e.open(t.Context())
			require.NoError(t, err)
			test.run(e)
			NoFindings(t, e.ix)
			before := Dump(t, e.ix, orgs...)
			require.NoError(t, e.ix.Close())
			e.ix, err = e.open(t.Context())
			require.NoError(t, err)
			require.Equal(t, before, Dump(t, e.ix, orgs...), "after it was opened again")
			NoFindings(t, e.ix)
			require.NoError(t, e.ix.Close())
		})
	}
}

// The organizations that the suite uses; one is a prefix of the other.
var orgs = []string{"acme", "acme/x"}

type env struct {
	*testing.T
	ix    index.Index
	packs *Packs
	open  Open
}

// publish publishes in the first organization and must succeed.
func (e *env) publish(thread, id, parent string) index.Checkpoint {
	e.Helper()
	cp, err := Publish(e, e.ix, e.packs, orgs[0], "", Record(thread, id, parent))
	require.NoError(e, err)
	return cp
}

// try publishes in the first organization and returns the error.
func (e *env) try(name string, rec index.Record) error {
	e.Helper()
	_, err := Publish(e, e.ix, e.packs, orgs[0], name, rec)
	return err
}

// NoFindings fails the test if the index contradicts itself.
func NoFindings(t testing.TB, ix index.Index) {
	t.Helper()
	for finding, err := range ix.Check(t.Context()) {
		require.NoError(t, err)
		require.Fail(t, "check", finding)
	}
}

// A State is all that an index says about one organization.
type State struct {
	Threads     []index.Thread
	Checkpoints map[string][]index.Checkpoint // by thread
	Artifacts   map[string][]index.Artifact   // by thread
	Leases      map[string]index.Lease        // by thread
	// Deletions are of all organizations, and Deleting what their threads list with them:
	// of what is being deleted no more than its id need be known.
	Deletions []index.Deletion
	Deleting  []string
}

// Dump reads the whole state of some organizations.
func Dump(t testing.TB, ix index.Index, orgs ...string) map[string]State {
	t.Helper()
	all := make(map[string]State)
	for _, org := range orgs {
		s := State{Checkpoints: make(map[string][]index.Checkpoint), Artifacts: make(map[string][]index.Artifact), Leases: make(map[string]index.Lease)}
		var err error
		s.Deletions, err = ix.Deletions(t.Context())
		require.NoError(t, err)
		for _, d := range s.Deletions {
			for cp, err := range ix.Checkpoints(t.Context(), d.Org, d.Thread, index.Page{Deleting: true}) {
				require.NoError(t, err)
				s.Deleting = append(s.Deleting, d.Thread+" "+cp.ID+" "+string(cp.Status)+" "+cp.Name)
			}
		}
		for th, err := range ix.Threads(t.Context(), org, index.Page{}) {
			require.NoError(t, err)
			s.Threads = append(s.Threads, th)
			for cp, err := range ix.Checkpoints(t.Context(), org, th.ID, index.Page{}) {
				require.NoError(t, err)
				s.Checkpoints[th.ID] = append(s.Checkpoints[th.ID], cp)
			}
			artifacts, err := ix.Artifacts(t.Context(), org, th.ID)
			require.NoError(t, err)
			require.Len(t, artifacts, th.Artifacts)
			s.Artifacts[th.ID] = artifacts
			l, err := ix.Lease(t.Context(), org, th.ID)
			if !errors.Is(err, index.ErrNoWriter) {
				require.NoError(t, err)
				s.Leases[th.ID] = l
			}
		}
		all[org] = s
	}
	return all
}

// reopen closes the index and opens it again.
func (e *env) reopen() {
	e.Helper()
	require.NoError(e, e.ix.Close())
	var err error
	e.ix, err = e.open(e.Context())
	require.NoError(e, err)
}

func (e *env) threadIDs(org string, p index.Page) (ids []string) {
	e.Helper()
	for th, err := range e.ix.Threads(e.Context(), org, p) {
		require.NoError(e, err)
		ids = append(ids, th.ID)
	}
	return ids
}

func (e *env) checkpointIDs(thread string, p index.Page) (ids []string) {
	e.Helper()
	for cp, err := range e.ix.Checkpoints(e.Context(), orgs[0], thread, p) {
		require.NoError(e, err)
		ids = append(ids, cp.ID)
	}
	return ids
}
