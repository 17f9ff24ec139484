package snapshot

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
)

// begin starts a save and ends it with the test.
func begin(t *testing.T, s *Store, req BeginRequest) Session {
	t.Helper()
	session, err := s.holder.Begin(t.Context(), req)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, session.Close()) })
	return session
}

// putRecord stores a record in a session.
func putRecord(t *testing.T, s *Store, session Session, rec index.Record) cas.Hash {
	t.Helper()
	data, err := index.Encode(rec)
	require.NoError(t, err)
	return putObjects(t, s, session, cas.NewObject(cas.Records, cas.Data, data))
}

// putObjects stores objects in a session and returns the last one's hash.
func putObjects(t *testing.T, s *Store, session Session, objs ...cas.Object) cas.Hash {
	t.Helper()
	blobs := local.New(s.dir, inSession{s.holder, session}, local.Options{})
	defer blobs.Close()
	w, err := blobs.NewWriter(t.Context())
	require.NoError(t, err)
	defer w.Close()
	require.NoError(t, w.Put(t.Context(), objs...))
	require.NoError(t, w.Flush(t.Context()))
	return objs[len(objs)-1].Key.Hash
}

// TestOneSaveAThread: the second fails at once and names the first; another
// thread's does not wait.
func TestOneSaveAThread(t *testing.T) {
	s := newStore(t)
	ws := t.TempDir()
	first := begin(t, s, BeginRequest{Thread: "T", PID: 4711})
	_, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "T"})
	require.ErrorIs(t, err, ErrBusy)
	require.ErrorContains(t, err, "4711")
	_, err = s.Fork(t.Context(), "x", ForkOptions{Thread: "T"})
	require.ErrorIs(t, err, ErrBusy)
	save(t, s, ws, "U")

	require.NoError(t, first.Close())
	require.NoError(t, first.Close())
	save(t, s, ws, "T")

	// The first one's end does not take the second one's place.
	second := begin(t, s, BeginRequest{Thread: "T"})
	require.NoError(t, first.Close())
	_, err = s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "T"})
	require.ErrorIs(t, err, ErrBusy)
	require.NoError(t, second.Close())
}

// TestSessionOver: nothing can be done in a session that has ended.
func TestSessionOver(t *testing.T) {
	s := newStore(t)
	cp := save(t, s, t.TempDir(), "T")
	session := begin(t, s, BeginRequest{Thread: "T"})
	require.NoError(t, session.Close())
	_, err := session.Have(t.Context(), []cas.Key{{}})
	require.ErrorIs(t, err, ErrSessionOver)
	require.ErrorIs(t, session.AddPack(t.Context(), cas.PackID{}), ErrSessionOver)
	_, err = session.Publish(t.Context(), PublishRequest{})
	require.ErrorIs(t, err, ErrSessionOver)
	require.Equal(t, cp.ID, session.Head())
}

// TestPublishRefuses: what a session may not publish, and that nothing changes
// then.
func TestPublishRefuses(t *testing.T) {
	s := newStore(t)
	ws := t.TempDir()
	first := saveAs(t, s, ws, "T", "first", "one")
	rec, err := s.Record(t.Context(), first)
	require.NoError(t, err)
	session := begin(t, s, BeginRequest{Thread: "T"})
	next := func(change func(*index.Record)) cas.Hash {
		r := rec
		r.ID, r.Parent, r.Created = "next", first.ID, time.Now().UnixNano()
		change(&r)
		return putRecord(t, s, session, r)
	}
	for name, test := range map[string]struct {
		req  PublishRequest
		want error
	}{
		"no such record":      {PublishRequest{Record: cas.Hash{1}}, cas.ErrNotFound},
		"of another thread":   {PublishRequest{Record: next(func(r *index.Record) { r.Thread = "U" })}, index.ErrInvalid},
		"of another parent":   {PublishRequest{Record: next(func(r *index.Record) { r.Parent = "zeroth" })}, index.ErrInvalid},
		"id is taken":         {PublishRequest{Record: next(func(r *index.Record) { r.ID, r.Parent = "first", "" })}, nil},
		"name is taken":       {PublishRequest{Record: next(func(r *index.Record) {}), Name: "one"}, index.ErrDuplicateName},
		"name is not allowed": {PublishRequest{Record: next(func(r *index.Record) {}), Name: "latest"}, index.ErrInvalid},
		"no record at all":    {PublishRequest{Record: putObjects(t, s, session, cas.NewObject(cas.Records, cas.Data, []byte("no record")))}, index.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := session.Publish(t.Context(), test.req)
			require.Error(t, err)
			if test.want != nil {
				require.ErrorIs(t, err, test.want)
			}
			thread, err := s.Thread(t.Context(), "T")
			require.NoError(t, err)
			require.Equal(t, []any{"first", 1}, []any{thread.Head, thread.Checkpoints})
		})
	}
	cp, err := session.Publish(t.Context(), PublishRequest{Record: next(func(*index.Record) {})})
	require.NoError(t, err)
	require.Equal(t, "next", cp.ID)
	require.Equal(t, "next", session.Head())
}

// TestStaleHead: a session that missed a publish does not publish over it.
func TestStaleHead(t *testing.T) {
	s := newStore(t)
	ws := t.TempDir()
	first := saveAs(t, s, ws, "T", "first", "")
	late := begin(t, s, BeginRequest{Thread: "T"})
	rec, err := s.Record(t.Context(), first)
	require.NoError(t, err)
	rec.ID, rec.Parent = "late", first.ID
	hash := putRecord(t, s, late, rec)
	// What a second holder would have done meanwhile.
	rec.ID = "faster"
	faster := putRecord(t, s, late, rec)
	h := s.holder.(*localHolder)
	_, err = h.index.Publish(t.Context(), index.Publish{Org: defaultOrg, Record: faster, ExpectedHead: first.ID})
	require.NoError(t, err)
	_, err = late.Publish(t.Context(), PublishRequest{Record: hash})
	require.ErrorIs(t, err, index.ErrStaleHead)
	got, err := s.Resolve(t.Context(), "T@latest")
	require.NoError(t, err)
	require.Equal(t, "faster", got.ID)
}

// TestLostSaveIsTriedAgain: a save whose head moves while it goes on is lost, and what
// it stored serves the next try.
func TestLostSaveIsTriedAgain(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"a": "1"})
	first := saveAs(t, s, ws, "T", "first", "")
	const size = 5 << 20
	noiseFile(t, filepath.Join(ws, "big"), 1, size)
	for i := range 100 {
		noiseFile(t, filepath.Join(ws, "small", strconv.Itoa(i)), uint64(2+i), 3000)
	}
	// What a second holder would have done when this one's save has begun.
	h := s.holder.(*localHolder)
	s.now = func() time.Time {
		s.now = time.Now
		beside := begin(t, s, BeginRequest{Thread: "T", Beside: true})
		rec, err := s.Record(t.Context(), first)
		require.NoError(t, err)
		rec.ID, rec.Parent = "faster", first.ID
		_, err = h.index.Publish(t.Context(), index.Publish{Org: defaultOrg, Record: putRecord(t, s, beside, rec), ExpectedHead: first.ID})
		require.NoError(t, err)
		return time.Now()
	}
	_, before := packBytes(t, s)
	_, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "T"})
	require.ErrorIs(t, err, index.ErrStaleHead)
	require.Contains(t, Hint(err), "save again")
	_, stored := packBytes(t, s)
	require.Greater(t, stored-before, int64(size))

	again := saveAs(t, s, ws, "T", "again", "")
	_, after := packBytes(t, s)
	require.Equal(t, "faster", again.Parent)
	require.Less(t, after-stored, int64(2000), "the record, and what is around it in its pack")
	require.Less(t, again.NewBytes, int64(1000))
	restored(t, s, "again")
}

// TestEarlyRefusals: an id or a name that is taken is found before a workspace
// is read: here it is not even there to be read.
func TestEarlyRefusals(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"x": "1", "d/" + ".snapfs-restoring": ""}) // cannot be saved
	saveAs(t, s, t.TempDir(), "T", "taken", "taken name")
	for _, test := range []struct {
		opt  SaveOptions
		want error
	}{
		{SaveOptions{Thread: "T", ID: "taken"}, index.ErrDuplicateID},
		{SaveOptions{Thread: "U", ID: "taken"}, index.ErrDuplicateID},
		{SaveOptions{Thread: "T", Name: "taken name"}, index.ErrDuplicateName},
	} {
		test.opt.Workspace = ws
		_, err := s.Save(t.Context(), test.opt)
		require.ErrorIs(t, err, test.want)
	}
	saveAs(t, s, t.TempDir(), "U", "", "taken name") // of another thread
}

// TestFailedSave: it leaves the thread and the store's tmp/ as they were, and
// the next one goes through.
func TestFailedSave(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"a": "1", "sub/.snapfs-restoring": "", "big": string(make([]byte, 3<<20)) + "x"})
	_, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "T"})
	require.Error(t, err)
	require.Empty(t, tempFiles(t, s))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Save(ctx, SaveOptions{Workspace: ws, Thread: "T"})
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, tempFiles(t, s))

	_, err = s.Thread(t.Context(), "T")
	require.ErrorIs(t, err, index.ErrThreadNotFound)
	require.NoError(t, os.RemoveAll(filepath.Join(ws, "sub")))
	save(t, s, ws, "T")
}

// TestSubscribers hear of a publish before its reply.
func TestSubscribers(t *testing.T) {
	s := newStore(t)
	ws := t.TempDir()
	var events []Event
	cancel, err := s.Subscribe(func(_ context.Context, ev Event) { events = append(events, ev) })
	require.NoError(t, err)
	a := saveAs(t, s, ws, "T", "", "named")
	b := save(t, s, ws, "T")
	f, err := s.Fork(t.Context(), a.ID, ForkOptions{Thread: "F"})
	require.NoError(t, err)
	cancel()
	save(t, s, ws, "T")
	require.Equal(t, []Event{
		{Thread: "T", Checkpoint: a.ID, Name: "named", NewThread: true},
		{Thread: "T", Checkpoint: b.ID},
		{Thread: "F", Checkpoint: f.ID, NewThread: true},
	}, events)
}
