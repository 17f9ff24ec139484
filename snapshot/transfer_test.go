package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/policy"
)

// side is one of two stores in a test of transfers, and what it takes to fill it.
type side struct {
	*Store
	t  *testing.T
	ws string
}

func newSide(t *testing.T, s *Store) *side {
	t.Helper()
	t.Cleanup(func() {
		require.Empty(t, faults(t, s))
		require.NoError(t, s.Close())
	})
	return &side{Store: s, t: t, ws: t.TempDir()}
}

// put saves a file with a content into a thread.
func (s *side) put(thread, id, content string) {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(filepath.Join(s.ws, "f"), []byte(content), 0o644))
	_, err := s.Save(s.t.Context(), SaveOptions{Workspace: s.ws, Thread: thread, ID: id, Files: policy.FilesOptions{NoDefaults: true}})
	require.NoError(s.t, err)
}

func (s *side) drop(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		_, err := s.Delete(s.t.Context(), id)
		require.NoError(s.t, err)
	}
}

func (s *side) name(id, name string) {
	s.t.Helper()
	_, err := s.Rename(s.t.Context(), id, name)
	require.NoError(s.t, err)
}

func (s *side) artifact(thread, name string) {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "artifact")
	require.NoError(s.t, os.WriteFile(path, []byte("content of "+name), 0o644))
	_, _, err := s.AddArtifact(s.t.Context(), thread, ArtifactFile{Name: name, Path: path}, policy.SecretsWarn, SecretsOptions{})
	require.NoError(s.t, err)
}

// shows lists a thread's checkpoints, the oldest first, with names, and its artifacts.
func (s *side) shows(thread string) string {
	s.t.Helper()
	cps, err := s.Checkpoints(s.t.Context(), thread, Page{})
	if errors.Is(err, index.ErrThreadNotFound) {
		return ""
	}
	require.NoError(s.t, err)
	var ids []string
	for _, cp := range slices.Backward(cps) {
		id := cp.ID
		if cp.Name != "" {
			id += "=" + cp.Name
		}
		ids = append(ids, id)
	}
	artifacts, err := s.holder.Artifacts(s.t.Context(), thread)
	require.NoError(s.t, err)
	var names []string
	for _, a := range artifacts {
		names = append(names, "+"+a.Name)
	}
	slices.Sort(names)
	return strings.Join(append(ids, names...), " ")
}

// sent is what a transfer said.
type sent struct {
	res      TransferResult
	err      error
	arrived  []string
	problems []error
	warnings []string
}

// send sends a checkpoint, or with "" everything.
func (s *side) send(to *side, ref string) (out sent) {
	s.t.Helper()
	opt := TransferOptions{
		Ref:     ref,
		Arrived: func(cp Checkpoint) error { out.arrived = append(out.arrived, cp.ID); return nil },
		Problem: func(err error) { out.problems = append(out.problems, err) },
		Warn:    func(text string) { out.warnings = append(out.warnings, text) },
	}
	out.res, out.err = Transfer(s.t.Context(), s.Store, to.Store, opt)
	require.Equal(s.t, len(out.arrived), out.res.Checkpoints)
	return out
}

// all sends everything, and nothing stands in the way.
func (s *side) all(to *side) sent {
	s.t.Helper()
	out := s.send(to, "")
	require.NoError(s.t, out.err)
	require.Empty(s.t, out.problems)
	return out
}

// pair is two stores in memory.
func pair(t *testing.T) (a, b *side) { return newSide(t, OpenMemory()), newSide(t, OpenMemory()) }

// TestTransferLineage: what of a thread is sent, and what is not.
func TestTransferLineage(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(a, b *side)
		ref  string // of a; empty: everything
		want string // thread t of b afterwards
		err  error
		says string // part of the error
	}{
		{"all of it", func(a, b *side) { a.put("t", "1", "x"); a.put("t", "2", "y") }, "", "1 2", nil, ""},
		{"up to one", func(a, b *side) { a.put("t", "1", "x"); a.put("t", "2", "y"); a.put("t", "3", "z") }, "2", "1 2", nil, ""},
		{"what is new", func(a, b *side) { a.put("t", "1", "x"); a.all(b); a.put("t", "2", "y"); a.put("t", "3", "z") }, "3", "1 2 3", nil, ""},
		{"an older one than is there", func(a, b *side) { a.put("t", "1", "x"); a.put("t", "2", "y"); a.all(b) }, "1", "1 2", nil, ""},
		{"deleted there", func(a, b *side) {
			a.put("t", "1", "x")
			a.put("t", "2", "y")
			a.put("t", "3", "z")
			a.all(b)
			b.drop("1", "2")
			a.put("t", "4", "u")
		}, "", "3 4", nil, ""},
		{"all deleted there", func(a, b *side) { a.put("t", "1", "x"); a.all(b); b.drop("1"); a.put("t", "2", "y") }, "", "1 2", nil, ""},
		{"deleted here", func(a, b *side) {
			a.put("t", "1", "x")
			a.put("t", "2", "y")
			a.all(b)
			a.put("t", "3", "z")
			a.drop("1", "2")
		}, "", "1 2 3", nil, ""},
		{"deleted here, and what came between, too", func(a, b *side) {
			a.put("t", "1", "x")
			a.put("t", "2", "y")
			a.all(b)
			a.put("t", "3", "z")
			a.put("t", "4", "u")
			a.drop("1", "2", "3")
		}, "", "1 2 4", nil, ""},
		{"the head there is the parent of what is here", func(a, b *side) {
			a.put("t", "1", "x")
			a.put("t", "2", "y")
			a.all(b)
			c := newSide(a.t, OpenMemory())
			b.all(c) // which received it from another store than a
			c.drop("1")
			c.Store, b.Store = b.Store, c.Store
			a.put("t", "3", "z")
			a.drop("2")
		}, "", "2 3", nil, ""},
		{"it went on there", func(a, b *side) { a.put("t", "1", "x"); a.all(b); b.put("t", "2", "y") }, "", "1 2", nil, ""},
		{"it went on there and came back", func(a, b *side) {
			a.put("t", "1", "x")
			a.all(b)
			b.put("t", "2", "y")
			b.all(a)
			a.put("t", "3", "z")
		}, "", "1 2 3", nil, ""},
		{"it went on in both", func(a, b *side) {
			a.put("t", "1", "x")
			a.all(b)
			b.put("t", "2b", "y")
			a.put("t", "2a", "z")
		}, "2a", "1 2b", ErrDiverged, `2b`},
		{"it began in both", func(a, b *side) { a.put("t", "1a", "x"); b.put("t", "1b", "y") }, "1a", "1b", ErrDiverged, "1a"},
		{"the same id is another one", func(a, b *side) { a.put("t", "1", "x"); b.put("t", "1", "y") }, "1", "1", index.ErrDuplicateID, "in thread t"},
		{"the same id in another thread", func(a, b *side) { a.put("t", "1", "x"); b.put("u", "1", "y") }, "1", "", index.ErrDuplicateID, "in thread u"},
		{"names", func(a, b *side) {
			a.put("t", "1", "x")
			a.name("1", "first")
			a.put("t", "2", "y")
			a.all(b)
			a.name("2", "second")
		}, "", "1=first 2=second", nil, ""},
		{"artifacts of checkpoints", func(a, b *side) { a.artifact("t", "one"); a.put("t", "1", "x"); a.artifact("t", "two") }, "1", "1 +one", nil, ""},
		{"artifacts of none", func(a, b *side) { a.artifact("t", "one"); a.put("t", "1", "x"); a.artifact("t", "two") }, "", "1 +one +two", nil, ""},
		{"artifacts alone", func(a, b *side) { a.artifact("t", "one") }, "", "+one", nil, ""},
		{"artifacts later", func(a, b *side) {
			a.artifact("t", "one")
			a.put("t", "1", "x")
			a.all(b)
			a.artifact("t", "two")
			a.put("t", "2", "y")
		}, "2", "1 2 +one +two", nil, ""},
		{"artifacts that were removed there", func(a, b *side) {
			a.artifact("t", "one")
			a.put("t", "1", "x")
			a.all(b)
			list, err := b.holder.Artifacts(b.t.Context(), "t")
			require.NoError(b.t, err)
			require.NoError(b.t, b.RemoveArtifact(b.t.Context(), "t", list[0].ID))
			a.put("t", "2", "y")
		}, "", "1 2", nil, ""},
		{"artifacts that were removed here", func(a, b *side) {
			a.artifact("t", "one")
			a.put("t", "1", "x")
			list, err := a.holder.Artifacts(a.t.Context(), "t")
			require.NoError(a.t, err)
			require.NoError(a.t, a.RemoveArtifact(a.t.Context(), "t", list[0].ID))
		}, "", "1", nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, b := pair(t)
			test.do(a, b)
			got := a.send(b, test.ref)
			require.Equal(t, test.want, b.shows("t"))
			if test.err != nil {
				require.ErrorIs(t, got.err, test.err)
				require.ErrorContains(t, got.err, test.says)
				require.NotEmpty(t, Hint(got.err))
				return
			}
			require.NoError(t, got.err)
			require.Empty(t, got.problems)
			for _, cp := range got.arrived {
				require.Equal(t, a.record(cp), b.record(cp))
			}
			again := a.send(b, test.ref)
			require.NoError(t, again.err)
			require.Empty(t, again.arrived)
			require.Zero(t, again.res.Objects)
			require.Equal(t, test.want, b.shows("t"))
		})
	}
}

// record is what a checkpoint is, but for its name and where it came from.
func (s *side) record(id string) Checkpoint {
	s.t.Helper()
	cp, err := s.Show(s.t.Context(), id)
	require.NoError(s.t, err)
	cp.Name, cp.Sequence, cp.Received = "", 0, nil
	return cp
}

// TestTransferAll: forks come after their origins, the rest is sent although a thread
// cannot be, and what is not as it was is told.
func TestTransferAll(t *testing.T) {
	a, b := pair(t)
	a.put("diverged", "d1", "x")
	a.put("t", "1", "x")
	_, err := a.Fork(t.Context(), "1", ForkOptions{Thread: "fork", ID: "f1"})
	require.NoError(t, err)
	a.put("t", "2", "y")
	a.put("names", "n1", "x")
	a.put("names", "n2", "x")
	a.all(b)
	b.put("diverged", "db", "y")
	a.put("diverged", "da", "z")
	a.name("n1", "here")
	b.name("n1", "there")
	a.name("n2", "taken")
	a.put("names", "n3", "x")
	a.put("t", "3", "z")
	got := a.send(b, "")
	require.NoError(t, got.err)
	require.Equal(t, []string{"3", "n3"}, got.arrived)
	require.Len(t, got.problems, 1)
	require.ErrorIs(t, got.problems[0], ErrDiverged)
	require.ErrorContains(t, got.problems[0], "db")
	require.ErrorContains(t, got.problems[0], "da")
	require.Equal(t, 1, got.res.Problems)
	require.Equal(t, []string{"checkpoint n1 is named here in the store in memory, and stays there in the store in memory"}, got.warnings)
	require.Equal(t, "d1 db", b.shows("diverged"))
	require.Equal(t, "n1=there n2=taken n3", b.shows("names"))

	// The fork has its origin still.
	cp, err := b.Resolve(t.Context(), "f1")
	require.NoError(t, err)
	require.Equal(t, &Origin{Thread: "t", Checkpoint: "1"}, cp.Origin)
	require.NotNil(t, cp.Received)
	require.Equal(t, a.info().ID, cp.Received.Store)
	require.NotZero(t, cp.Received.Sequence)
}

func (s *side) info() storeInfo { return s.holder.(*localHolder).info }

// TestTransferOrder: an origin arrives before its forks.
func TestTransferOrder(t *testing.T) {
	a, b := pair(t)
	a.put("z", "1", "x")
	_, err := a.Fork(t.Context(), "1", ForkOptions{Thread: "a", ID: "f1"})
	require.NoError(t, err)
	a.put("z", "2", "y")
	require.Equal(t, []string{"1", "2", "f1"}, a.all(b).arrived)
}

// TestTransferNameTaken: a new checkpoint whose name another one has there comes without.
func TestTransferNameTaken(t *testing.T) {
	a, b := pair(t)
	a.put("t", "1", "x")
	a.all(b)
	b.name("1", "best")
	a.put("t", "2", "y")
	a.name("2", "best")
	got := a.all(b)
	require.Equal(t, "1=best 2", b.shows("t"))
	require.Equal(t, []string{"checkpoint 2 goes without its name best: another one has it in the store in memory"}, got.warnings)
}

// TestTransferBusy: a thread that somebody else writes to is left alone, or waited for.
func TestTransferBusy(t *testing.T) {
	a, b := pair(t)
	a.put("t", "1", "x")
	a.put("u", "2", "y")
	session, err := b.holder.Begin(t.Context(), BeginRequest{Thread: "t"})
	require.NoError(t, err)
	require.ErrorIs(t, a.send(b, "1").err, ErrBusy)
	got := a.send(b, "")
	require.NoError(t, got.err)
	require.Equal(t, []string{"2"}, got.arrived)
	require.Len(t, got.problems, 1)
	require.ErrorIs(t, got.problems[0], ErrBusy)
	require.NoError(t, session.Close())

	lease, err := b.AcquireWriter(t.Context(), "t", LeaseOptions{})
	require.NoError(t, err)
	require.ErrorIs(t, a.send(b, "1").err, index.ErrWriterConflict)
	require.Equal(t, "", b.shows("t"))
	_, err = Transfer(t.Context(), a.Store, b.Store, TransferOptions{Ref: "1", Lease: lease.Token})
	require.NoError(t, err)
	require.Equal(t, "1", b.shows("t"))
}

// TestTransferRefuses: one store on both sides, and what there is not.
func TestTransferRefuses(t *testing.T) {
	a, b := pair(t)
	a.put("t", "1", "x")
	_, err := Transfer(t.Context(), a.Store, a.Store, TransferOptions{})
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorIs(t, a.send(b, "none").err, index.ErrCheckpointNotFound)
}

// TestTransferAfterBackup: a store that was put back from a backup has its id still, and
// gives its numbers again. What it makes then is never taken for what it had.
func TestTransferAfterBackup(t *testing.T) {
	dir, copied := filepath.Join(t.TempDir(), "store"), filepath.Join(t.TempDir(), "copy")
	open := func() *side {
		s, err := Open(t.Context(), dir, Options{Create: true})
		require.NoError(t, err)
		return &side{Store: s, t: t, ws: t.TempDir()}
	}
	b := newSide(t, OpenMemory())
	a := open()
	a.put("t", "1", "one")
	a.put("u", "u1", "one")
	require.NoError(t, a.Close())
	require.NoError(t, os.CopyFS(copied, os.DirFS(dir)))
	require.NoError(t, os.RemoveAll(filepath.Join(copied, indexDir)))
	require.NoError(t, os.Chmod(copied, 0o700))
	a = open()
	a.put("t", "2", "two")
	a.put("t", "3", "three")
	a.put("u", "u2", "two")
	a.all(b)
	require.NoError(t, a.Close())
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.Rename(copied, dir))

	a = open()
	for _, id := range []string{"2b", "3b", "4b"} { // one of them gets the number that 3 had
		a.put("t", id, "precious "+id)
		for _, ref := range []string{id, ""} {
			got := a.send(b, ref)
			err := errors.Join(append(got.problems, got.err)...)
			require.ErrorIs(t, err, ErrDiverged)
			require.Contains(t, Hint(err), "fork")
			require.Empty(t, got.arrived)
		}
	}
	require.Equal(t, "1 2 3", b.shows("t"))
	require.Equal(t, "u1 u2", b.shows("u"))
	// What the other store has comes back where nothing was made meanwhile.
	got := b.send(a, "")
	require.Equal(t, []string{"u2"}, got.arrived)
	require.Len(t, got.problems, 1)
	require.Empty(t, faults(t, a.Store))
	require.NoError(t, a.Close())
}

// TestTransferPassed: what is named arrives, or the transfer fails.
func TestTransferPassed(t *testing.T) {
	a, b := pair(t)
	for _, id := range []string{"1", "2", "3"} {
		a.put("t", id, id)
	}
	a.all(b)
	b.drop("1", "2")
	got := a.send(b, "1")
	require.ErrorIs(t, got.err, ErrDiverged)
	require.ErrorContains(t, got.err, "checkpoint 1 is not there any more")
	require.Contains(t, Hint(got.err), "export 1")
	require.Equal(t, "3", b.shows("t"))
	require.NoError(t, a.send(b, "3").err)
}
