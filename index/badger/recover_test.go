package badger

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"os"
	"testing"

	bdb "github.com/dgraph-io/badger/v4"
	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/index/indextest"
	"github.com/snapfs/snapfs/index/journal"
)

func TestInUse(t *testing.T) {
	s := newStore(t)
	_, err := s.tryOpen("boot-1")
	require.ErrorIs(t, err, index.ErrInUse)
	want := s.fill()
	require.NoError(t, s.ix.Close())

	// A foreign program has the database open: nothing is thrown away.
	db, err := openDB(s.path("index"), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	_, err = s.tryOpen("boot-1")
	require.ErrorIs(t, err, index.ErrInUse)
	require.NoError(t, db.Close())
	s.ix = s.open("boot-1")
	require.Empty(t, s.ix.Rebuilt())
	require.Equal(t, want, s.dump())
}

func TestTornJournal(t *testing.T) {
	s := newStore(t)
	want := s.fill()
	require.NoError(t, s.ix.Close())
	f, err := os.OpenFile(s.path("journal", "00000001.log"), os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	_, err = f.Write([]byte{0xf5, 'J', 'E', 0xfa, 0, 0, 0, 99, 1, 2})
	require.NoError(t, err)
	require.NoError(t, f.Close())
	s.ix = s.open("boot-1")
	require.EqualValues(t, 10, s.ix.Cut())
	require.Empty(t, s.ix.Rebuilt())
	require.Equal(t, want, s.dump())
}

// TestJournalWentBack: the journal ends before what was applied, has another
// entry in its place, lost its last entry to a flipped bit, or is gone. What was
// acknowledged is lost then, and that is never passed over, whatever became of
// the database: nothing is changed. Who put an older journal back on purpose
// deletes the index.
func TestJournalWentBack(t *testing.T) {
	damage := map[string]func(s *store, log string, backup []byte){
		"older": func(s *store, log string, backup []byte) { require.NoError(s, os.WriteFile(log, backup, 0o600)) },
		"grown again": func(s *store, log string, backup []byte) {
			require.NoError(s, os.WriteFile(log, backup, 0o600))
			at := s.packs.Put(must(index.Encode(indextest.Record("t", "c-other", "c-1"))))
			j, err := journal.Open(s.path("journal"), journal.Options{})
			require.NoError(s, err)
			_, err = j.Append(journal.Publish{Org: "acme", Checkpoint: "c-other", Thread: "t", Record: at.Key.Hash, ExpectedHead: "c-1"})
			require.NoError(s, err)
			require.NoError(s, j.Close())
		},
		"last frame damaged": func(s *store, log string, backup []byte) {
			data, err := os.ReadFile(log)
			require.NoError(s, err)
			data[len(data)-1] ^= 1
			require.NoError(s, os.WriteFile(log, data, 0o600))
		},
		"no file":      func(s *store, log string, _ []byte) { require.NoError(s, os.Remove(log)) },
		"no directory": func(s *store, _ string, _ []byte) { require.NoError(s, os.RemoveAll(s.path("journal"))) },
	}
	for name, fn := range damage {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			s.publish("c-1", "")
			log := s.path("journal", "00000001.log")
			backup, err := os.ReadFile(log)
			require.NoError(t, err)
			s.publish("c-2", "c-1")
			require.NoError(t, s.ix.Close())
			fn(s, log, backup)
			before, _ := os.ReadFile(log)
			refused := func(boot string) {
				_, err = s.tryOpen(boot)
				require.ErrorIs(t, err, index.ErrCorrupt)
				after, _ := os.ReadFile(log)
				require.Equal(t, before, after)
			}
			refused("boot-1")
			refused("boot-1")
			if name != "grown again" { // that only the database can tell
				flip(100)(s)
				refused("boot-1")
			}
			require.NoError(t, os.RemoveAll(s.path("index")))
			if name == "last frame damaged" {
				refused("boot-1")
				return
			}
			s.ix = s.open("boot-1")
			require.NotEmpty(t, s.ix.Rebuilt())
			indextest.NoFindings(t, s.ix)
		})
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// A store knows that it has a journal: without one it does not open, index or
// not.
func TestJournalMustExist(t *testing.T) {
	for _, remove := range []string{"journal", "journal/00000001.log"} {
		s := newStore(t)
		s.fill()
		require.NoError(t, s.ix.Close())
		require.NoError(t, os.RemoveAll(s.path(remove)))
		require.NoError(t, os.RemoveAll(s.path("index")))
		opt := testOptions(s.dir, s.packs)
		opt.Existing = true
		_, err := Open(t.Context(), s.path("index"), opt)
		require.ErrorIs(t, err, index.ErrCorrupt)
		require.NoFileExists(t, s.path("journal", "00000001.log"))
	}
}

// In memory the index is whole, takes changes, and leaves the directory as it is
// but for saying that it is out of date.
func TestInMemory(t *testing.T) {
	s := newStore(t)
	want := s.fill()
	require.NoError(t, s.ix.Close())
	open := func() {
		opt := testOptions(s.dir, s.packs)
		opt.InMemory, opt.Existing = true, true
		var err error
		s.ix, err = Open(t.Context(), s.path("index"), opt)
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.ix.Close() })
	}
	files := s.files("*")
	open()
	require.Equal(t, want, s.dump())
	require.NoError(t, s.ix.Close())
	require.Equal(t, files, s.files("*"))
	s.ix = s.open("boot-1")
	require.Empty(t, s.ix.Rebuilt(), "nothing was changed")
	require.NoError(t, s.ix.Close())

	open()
	s.publish("c-mem", "c-2")
	_, _, err := s.ix.Delete(t.Context(), "acme", "c-1")
	require.NoError(t, err)
	want = s.dump()
	require.NoError(t, s.ix.Close())
	s.ix = s.open("boot-1")
	require.NotEmpty(t, s.ix.Rebuilt())
	require.Equal(t, want, s.dump())
}

func TestDamagedJournal(t *testing.T) {
	s := newStore(t)
	s.fill()
	require.NoError(t, s.ix.Close())
	log := s.path("journal", "00000001.log")
	data, err := os.ReadFile(log)
	require.NoError(t, err)
	data[60] ^= 1
	require.NoError(t, os.WriteFile(log, data, 0o600))
	_, err = s.tryOpen("boot-1")
	require.ErrorIs(t, err, index.ErrCorrupt)
	after, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Equal(t, data, after)
}

// TestTail: an entry is committed, but the process died before it was applied.
func TestTail(t *testing.T) {
	s := newStore(t)
	s.publish("c-1", "")
	data, err := index.Encode(indextest.Record("t", "c-2", "c-1"))
	require.NoError(t, err)
	at := s.packs.Put(data)
	_, err = s.ix.journal.Append(journal.Publish{
		Org: "acme", Checkpoint: "c-2", Thread: "t", Record: at.Key.Hash, ExpectedHead: "c-1",
	})
	require.NoError(t, err)

	// The index does not know where the record lies, so the tail alone is not enough.
	s.crash()
	s.ix = s.open("boot-1")
	require.NotEmpty(t, s.ix.Rebuilt())
	cp, err := s.ix.Checkpoint(t.Context(), "acme", "c-2")
	require.NoError(t, err)
	require.Equal(t, index.Ready, cp.Status)
	want := s.dump()

	data, err = index.Encode(indextest.Record("t", "c-3", "c-2"))
	require.NoError(t, err)
	at = s.packs.Put(data)
	require.NoError(t, s.ix.AddLocations(t.Context(), []index.Located{at}))
	_, err = s.ix.journal.Append(journal.Publish{
		Org: "acme", Checkpoint: "c-3", Thread: "t", Record: at.Key.Hash, ExpectedHead: "c-2",
	})
	require.NoError(t, err)
	require.Equal(t, want, s.dump(), "not applied yet")
	s.crash()
	s.ix = s.open("boot-1")
	require.Empty(t, s.ix.Rebuilt())
	th, err := s.ix.Thread(t.Context(), "acme", "t")
	require.NoError(t, err)
	require.Equal(t, "c-3", th.Head)
	indextest.NoFindings(t, s.ix)
}

func TestCommittedButNotApplied(t *testing.T) {
	s := newStore(t)
	s.publish("c-1", "")
	rec := indextest.Record("t", "c-2", "c-1")
	hash := indextest.Store(t, s.ix, s.packs, rec)
	s.ix.update = func(func(*bdb.Txn) error) error { return bdb.ErrBlockedWrites }
	_, err := s.ix.Publish(t.Context(), index.Publish{Org: "acme", Record: hash, ExpectedHead: "c-1"})
	require.ErrorIs(t, err, index.ErrCommitted)
	_, err = s.ix.Thread(t.Context(), "acme", "t")
	require.ErrorContains(t, err, "must be opened again")
	require.Error(t, s.ix.AddLocations(t.Context(), nil))
	require.NoError(t, s.ix.Close())

	s.ix = s.open("boot-1")
	cp, err := s.ix.Checkpoint(t.Context(), "acme", "c-2")
	require.NoError(t, err)
	require.Equal(t, rec, cp.Record)
	indextest.NoFindings(t, s.ix)
}

// TestLostRecord: one unreadable record must not take the store away.
func TestLostRecord(t *testing.T) {
	s := newStore(t)
	s.publish("c-1", "")
	s.publish("c-2", "c-1")
	cp, err := s.ix.Checkpoint(t.Context(), "acme", "c-2")
	require.NoError(t, err)
	require.NoError(t, s.ix.Close())
	s.packs.Lose(cp.RecordHash)
	require.NoError(t, os.RemoveAll(s.path("index")))
	s.ix = s.open("boot-1")
	lost, err := s.ix.Checkpoint(t.Context(), "acme", "c-2")
	require.NoError(t, err)
	require.Equal(t, index.Error, lost.Status)
	require.Contains(t, lost.StatusMessage, "not found")
	require.Equal(t, cp.RecordHash, lost.RecordHash)
	th, err := s.ix.Thread(t.Context(), "acme", "t")
	require.NoError(t, err)
	require.Equal(t, "c-1", th.Head, "the newest ready one")
	s.publish("c-3", "c-1")
	indextest.NoFindings(t, s.ix)
}

func TestRebuildFails(t *testing.T) {
	s := newStore(t)
	want := s.fill()
	require.NoError(t, s.ix.Close())
	broken := errors.New("no packs today")
	opt := testOptions(s.dir, s.packs)
	opt.Rebuild = true
	opt.Packs = func(context.Context) iter.Seq2[[]index.Located, error] {
		return func(yield func([]index.Located, error) bool) { yield(nil, broken) }
	}
	_, err := Open(t.Context(), s.path("index"), opt)
	require.ErrorIs(t, err, broken)
	opt = testOptions(s.dir, s.packs)
	opt.Records = func(context.Context, index.Located) ([]byte, error) { return nil, broken }
	_, err = Open(t.Context(), s.path("index"), opt)
	require.ErrorIs(t, err, broken, "not lost, only unreadable now")
	s.ix = s.open("boot-1")
	require.Equal(t, "an earlier rebuild did not end", s.ix.Rebuilt())
	require.Equal(t, want, s.dump())
}

// TestDamageFoundLater: a value that cannot be decoded is found while reading.
func TestDamageFoundLater(t *testing.T) {
	s := newStore(t)
	want := s.fill()
	require.NoError(t, s.ix.db.Update(func(txn *bdb.Txn) error {
		return txn.Set(checkpointKey("acme", "c-1"), []byte("nonsense"))
	}))
	_, err := s.ix.Checkpoint(t.Context(), "acme", "c-1")
	require.ErrorIs(t, err, index.ErrCorrupt)
	found := 0
	for _, err := range s.ix.Check(t.Context()) {
		require.NoError(t, err)
		found++
	}
	require.NotZero(t, found)
	require.NoError(t, s.ix.Close())
	s.ix = s.open("boot-1")
	require.NotEmpty(t, s.ix.Rebuilt())
	require.Equal(t, want, s.dump())
}

// TestDamagedBlock: a flipped bit anywhere in a table is found when it is opened,
// however the last process ended. Badger would take the block for an empty one.
func TestDamagedBlock(t *testing.T) {
	s := newStore(t)
	s.fill()
	s.packs.Fill(3000)
	for objects, err := range s.packs.All(t.Context()) {
		require.NoError(t, err)
		require.NoError(t, s.ix.AddLocations(t.Context(), objects))
	}
	want := s.dump()
	require.NoError(t, s.ix.Close())
	st, err := os.Stat(s.files("*.sst")[0])
	require.NoError(t, err)
	rebuilt := 0
	for at := int64(100); at < st.Size(); at += st.Size() / 20 {
		crash := at%2 == 0
		flip(at)(s)
		s.ix = s.open("boot-1")
		if s.ix.Rebuilt() != "" {
			rebuilt++
		}
		require.Equal(t, want, s.dump())
		for objects := range s.packs.All(t.Context()) {
			locs, err := s.ix.Locate(t.Context(), []cas.Key{objects[0].Key})
			require.NoError(t, err)
			require.Equal(t, objects[0].Location, locs[0])
		}
		if crash {
			s.crash()
			s.ix = s.open("boot-1")
		}
		require.NoError(t, s.ix.Close())
	}
	require.GreaterOrEqual(t, rebuilt, 19) // one may have hit what nobody reads
}

// TestReadingLeavesTheMark: a process that only reads does not write the mark.
func TestReadingLeavesTheMark(t *testing.T) {
	s := newStore(t)
	s.fill()
	require.NoError(t, s.ix.Close())
	before, err := os.ReadFile(s.path("index", markName))
	require.NoError(t, err)
	require.Contains(t, string(before), "clean    boot-1")
	s.ix = s.open("boot-2")
	s.dump()
	require.NoError(t, s.ix.Close())
	after, err := os.ReadFile(s.path("index", markName))
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))

	s.ix = s.open("boot-2")
	require.NoError(t, s.ix.AddLocations(t.Context(), []index.Located{
		indextest.Place(cas.NewObject(cas.Files, cas.Data, []byte("x")).Key, 1),
	}))
	open, err := os.ReadFile(s.path("index", markName))
	require.NoError(t, err)
	require.Contains(t, string(open), "open     boot-2")
}

func FuzzMark(f *testing.F) {
	f.Add(markLine(stateClean, "boot", 7))
	f.Add([]byte("snapfs index 1 clean"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m mark
		m.parse(b)
		if m.state != "" {
			require.Equal(t, markLine(m.state, m.boot, m.seq), b)
		}
	})
}

// TestPublishedTwice: only a damaged database can let that into the journal.
func TestPublishedTwice(t *testing.T) {
	s := newStore(t)
	s.publish("c-1", "")
	cp, err := s.ix.Checkpoint(t.Context(), "acme", "c-1")
	require.NoError(t, err)
	_, err = s.ix.journal.Append(journal.Publish{Org: "acme", Checkpoint: "c-1", Thread: "t", Record: cp.RecordHash})
	require.NoError(t, err)
	want := s.dump()
	require.NoError(t, s.ix.Close())
	s.ix = s.open("boot-1")
	require.NotEmpty(t, s.ix.Rebuilt())
	require.Equal(t, want, s.dump())
	s.publish("c-2", "c-1")
	require.NoError(t, s.ix.Close())
	s.ix = s.open("boot-1")
	require.Empty(t, s.ix.Rebuilt())
}
