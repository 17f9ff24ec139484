package memory

import (
	"context"
	"sync"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/index/indextest"
)

func TestSuite(t *testing.T) {
	indextest.Run(t, func(_ *testing.T, packs *indextest.Packs) indextest.Open {
		state := NewState()
		return func(context.Context) (index.Index, error) { return Open(state, records(packs)) }
	})
}

// records reads from packs.
func records(packs *indextest.Packs) Options {
	return Options{Now: packs.Now, Records: func(ctx context.Context, record cas.Hash) ([]byte, error) {
		return packs.Read(ctx, index.Located{Key: cas.Key{NS: cas.Records, Hash: record}})
	}}
}

// filled makes an index of two checkpoints and an artifact in thread t, and one
// checkpoint in thread u.
func filled(t *testing.T) *Index {
	packs := indextest.NewPacks()
	ix := New(records(packs))
	for _, rec := range []index.Record{indextest.Record("t", "a", ""), indextest.Record("t", "b", "a"), indextest.Record("u", "c", "")} {
		_, err := indextest.Publish(t, ix, packs, "acme", "named "+rec.ID, rec)
		require.NoError(t, err)
	}
	a := index.Artifact{ID: "f", Name: "f", Blob: index.Blob{Hash: cas.Data.Sum(nil)}}
	require.NoError(t, ix.AddArtifact(t.Context(), "acme", "t", a))
	indextest.NoFindings(t, ix)
	return ix
}

func TestOneHandle(t *testing.T) {
	state := NewState()
	first, err := Open(state, Options{})
	require.NoError(t, err)
	_, err = Open(state, Options{})
	require.ErrorIs(t, err, index.ErrInUse)
	require.NoError(t, first.Close())
	second, err := Open(state, Options{})
	require.NoError(t, err)
	require.NoError(t, first.Close(), "again")
	_, err = Open(state, Options{})
	require.ErrorIs(t, err, index.ErrInUse, "the second handle is still open")
	_, err = first.Organizations(t.Context())
	require.ErrorIs(t, err, index.ErrClosed)
	require.NoError(t, second.Close())
}

func TestRecordIsVerified(t *testing.T) {
	ix := New(Options{Records: func(context.Context, cas.Hash) ([]byte, error) { return []byte("another"), nil }})
	_, err := ix.Publish(t.Context(), index.Publish{Org: "acme", Record: cas.Data.Sum([]byte("one"))})
	require.ErrorIs(t, err, cas.ErrCorrupt)
}

// What a caller does with a result does not change the index.
func TestResultsAreTheCallers(t *testing.T) {
	packs := indextest.NewPacks()
	ix := New(records(packs))
	rec := indextest.Record("t", "a", "")
	rec.Labels = map[string]string{"k": "v"}
	rec.Origin = &index.Origin{Thread: "o", Checkpoint: "c"}
	rec.Extra = map[uint64]cbor.RawMessage{1000: {0x01}}
	change := func(cp index.Checkpoint) {
		cp.Labels["k"] = "changed"
		cp.Origin.Thread = "changed"
		cp.Extra[1000][0] = 0x02
	}
	cp, err := indextest.Publish(t, ix, packs, "acme", "n", rec)
	require.NoError(t, err)
	require.Equal(t, rec, cp.Record)
	change(cp)
	for range 2 {
		cp, err = ix.Checkpoint(t.Context(), "acme", "a")
		require.NoError(t, err)
		require.Equal(t, rec, cp.Record)
		change(cp)
	}
	for cp, err := range ix.Checkpoints(t.Context(), "acme", "t", index.Page{}) {
		require.NoError(t, err)
		change(cp)
	}
	found, err := ix.ByPrefix(t.Context(), "acme", "a", 0)
	require.NoError(t, err)
	change(found[0])
	indextest.NoFindings(t, ix)
}

func TestCloseWaits(t *testing.T) {
	ix := filled(t)
	var closing sync.WaitGroup
	n := 0
	for _, err := range ix.Threads(t.Context(), "acme", index.Page{}) {
		require.NoError(t, err)
		if n++; n > 1 {
			continue
		}
		closing.Go(func() { _ = ix.Close() })
		for { // until Close has begun
			if _, err := ix.Thread(t.Context(), "acme", "t"); err != nil {
				require.ErrorIs(t, err, index.ErrClosed)
				break
			}
		}
		_, err := Open(ix.s, Options{})
		require.ErrorIs(t, err, index.ErrInUse, "the listing goes on")
	}
	require.Equal(t, 2, n, "it ends as it began")
	closing.Wait()
	_, err := Open(ix.s, Options{})
	require.NoError(t, err)
}

func TestListingEndsWithItsContext(t *testing.T) {
	ix := filled(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var errs []error
	for _, err := range ix.Checkpoints(ctx, "acme", "t", index.Page{}) {
		errs = append(errs, err)
		cancel()
	}
	require.Len(t, errs, 2)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], context.Canceled)
}

// TestCheck damages an index in many ways and expects to be told.
func TestCheck(t *testing.T) {
	id := key{"acme", "t"}
	tests := []struct {
		name string
		harm func(s *State, th *thread)
		want string
	}{
		{"head", func(_ *State, th *thread) { th.Head = "a" }, `thread "t" says`},
		{"count", func(_ *State, th *thread) { th.Checkpoints++ }, `thread "t" says`},
		{"bytes", func(_ *State, th *thread) { th.NewBytes-- }, `thread "t" says`},
		{"artifact count", func(_ *State, th *thread) { th.Artifacts = 0 }, `thread "t" says`},
		{"thread's id", func(s *State, th *thread) { th.ID = "v" }, `thread "t" says`},
		{"activity", func(s *State, th *thread) { th.last = 1 }, "was written to last by change 1 of 4"},
		{"number", func(s *State, th *thread) { s.seq = 3 }, "was written to last by change 4 of 3"},
		{"order", func(_ *State, th *thread) { th.order[0].Seq = 9 }, `checkpoint "b" of thread "t" is out of order`},
		{"names", func(_ *State, th *thread) { th.order[0].Name = "named b" }, `two checkpoints named "named b"`},
		{"status", func(_ *State, th *thread) { th.order[0].Status = index.Error }, `checkpoint "a" is not ready`},
		{"record", func(_ *State, th *thread) { th.order[0].Message = "x" }, `checkpoint "a": its record does not hash`},
		{"unlisted", func(s *State, _ *thread) { s.checkpoints[key{"acme", "d"}] = &index.Checkpoint{} }, "4 checkpoints, their threads list 3"},
		{"not found", func(s *State, _ *thread) { delete(s.checkpoints, key{"acme", "a"}) }, `checkpoint "a" of thread "t" is not found`},
		{"other thread", func(s *State, th *thread) { th.order[0] = s.threads[key{"acme", "u"}].order[0] }, `is listed in thread "t"`},
		{"artifact", func(_ *State, th *thread) { th.artifacts[0].Name = "" }, `artifact "f" of thread "t" is damaged`},
		{"artifacts", func(_ *State, th *thread) { th.artifacts = append(th.artifacts, th.artifacts[0]) }, "is out of order"},
		{"location", func(s *State, _ *thread) { s.places[cas.Key{NS: cas.Files}] = cas.Location{} }, "location of files/"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			ix := filled(t)
			test.harm(ix.s, ix.s.threads[id])
			all := ""
			for finding, err := range ix.Check(t.Context()) {
				require.NoError(t, err)
				all += finding + "\n"
			}
			require.Contains(t, all, test.want)
		})
	}
}
