package client_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/server"
	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

// TestHolder runs the same behaviours on the holder in its own process and
// across the connection. It lives here and not beside the interface, since only
// this package sees both sides.
func TestHolder(t *testing.T) {
	kinds := []struct {
		name string
		open func(t *testing.T, dir string) *snapshot.Store
	}{
		{"in process", func(t *testing.T, dir string) *snapshot.Store {
			s, err := snapshot.Open(t.Context(), dir, snapshot.Options{})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			return s
		}},
		{"client", func(t *testing.T, dir string) *snapshot.Store {
			serve(t, dir, server.Options{})
			s := snapshot.New(dir, dial(t, dir), snapshot.Options{})
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			return s
		}},
		{"client that fails over", func(t *testing.T, dir string) *snapshot.Store {
			serve(t, dir, server.Options{})
			return open(t, dir, snapshot.Options{})
		}},
	}
	tests := []struct {
		name string
		run  func(t *testing.T, s *snapshot.Store)
	}{
		{"save and restore", testSaveRestore},
		{"listings", testListings},
		{"unusual ids", testUnusualIDs},
		{"references", testReferences},
		{"not found", testNotFound},
		{"sessions", testSessions},
		{"refusals", testRefusals},
		{"fork and diff", testForkDiff},
		{"many artifacts", testManyArtifacts},
		{"leases", testLeases},
		{"leases taken over", testTakeOver},
		{"waits", testWait},
		{"locate", testLocate},
		{"repair", testRepair},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for _, kind := range kinds {
				t.Run(kind.name, func(t *testing.T) {
					s := kind.open(t, newStore(t))
					test.run(t, s)
					found, err := s.Holder().Check(t.Context())
					require.NoError(t, err)
					require.Empty(t, found)
				})
			}
		})
	}
}

func testSaveRestore(t *testing.T, s *snapshot.Store) {
	files := map[string]string{"a.txt": "one", "dir/b.bin": strings.Repeat("two\x00", 1<<19), "dir/empty": ""}
	cp := save(t, s, "work", "first", files)
	require.Equal(t, "first", cp.ID)
	require.EqualValues(t, 3, cp.Files)
	target := filepath.Join(t.TempDir(), "out")
	_, err := s.Restore(t.Context(), "work@latest", snapshot.RestoreOptions{Dir: target})
	require.NoError(t, err)
	for name, content := range files {
		got, err := os.ReadFile(filepath.Join(target, name))
		require.NoError(t, err)
		require.Equal(t, content, string(got), name)
	}
	again := save(t, s, "work", "second", files)
	require.Equal(t, "first", again.Parent)
	require.Less(t, again.NewBytes, int64(4096), "all but the record is there already")
	shown, err := s.Show(t.Context(), "second")
	require.NoError(t, err)
	require.Equal(t, again.Record, shown.Record)
	require.Contains(t, shown.Policy, "node_modules")
}

// testRepair damages a file, sets its pack aside, and heals it by a save.
func testRepair(t *testing.T, s *snapshot.Store) {
	needle := "these very bytes"
	files := map[string]string{"f": needle, "g": "others"}
	save(t, s, "work", "first", files)
	packs, err := filepath.Glob(filepath.Join(s.Dir(), "packs", "*", "*.pack"))
	require.NoError(t, err)
	require.Len(t, packs, 1)
	data, err := os.ReadFile(packs[0])
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(data), needle))
	require.NoError(t, os.WriteFile(packs[0], []byte(strings.Replace(string(data), needle, "those very bytes", 1)), 0o600))
	verify := func(opt snapshot.VerifyOptions) (found []string, res snapshot.RepairResult) {
		counts, err := s.Verify(t.Context(), opt, func(p string) error { found = append(found, p); return nil })
		require.NoError(t, err)
		return found, counts.Repaired
	}
	found, res := verify(snapshot.VerifyOptions{Repair: true})
	require.Len(t, found, 2)
	require.Equal(t, 1, res.Moved)
	require.Equal(t, 1, res.Lost)
	require.Positive(t, res.Copied)
	require.FileExists(t, filepath.Join(res.Dir, filepath.Base(packs[0])))
	found, _ = verify(snapshot.VerifyOptions{Data: true})
	require.Len(t, found, 1)
	require.Contains(t, found[0], "checkpoint first: f: ")
	require.NoError(t, s.Cat(t.Context(), "first", "g", io.Discard))
	_, err = s.GC(t.Context(), snapshot.GCRequest{})
	require.ErrorContains(t, err, "checkpoint first")
	require.Contains(t, snapshot.Hint(err), "snapfs delete first")

	save(t, s, "work", "second", files)
	found, _ = verify(snapshot.VerifyOptions{Data: true})
	require.Empty(t, found)
	require.NoError(t, s.Cat(t.Context(), "first", "f", io.Discard))
	_, err = s.GC(t.Context(), snapshot.GCRequest{})
	require.NoError(t, err)
}

func testListings(t *testing.T, s *snapshot.Store) {
	ctx := t.Context()
	threads, err := s.Threads(ctx, snapshot.Page{})
	require.NoError(t, err)
	require.NotNil(t, threads)
	require.Empty(t, threads)
	for i := range 5 {
		save(t, s, fmt.Sprintf("t%d", i%2), fmt.Sprintf("c%d", i), map[string]string{"f": fmt.Sprint(i)})
	}
	threads, err = s.Threads(ctx, snapshot.Page{})
	require.NoError(t, err)
	require.Len(t, threads, 2)
	require.Equal(t, "t0", threads[0].ID)
	require.Equal(t, "c4", threads[0].Head)
	require.Equal(t, 3, threads[0].Checkpoints)
	require.NotZero(t, threads[0].Updated.Nanosecond())
	one, err := s.Thread(ctx, "t0")
	require.NoError(t, err)
	require.Equal(t, threads[0], one)
	threads, err = s.Threads(ctx, snapshot.Page{Limit: 1, Before: "t0"})
	require.NoError(t, err)
	require.Len(t, threads, 1)
	require.Equal(t, "t1", threads[0].ID)

	all, err := s.Checkpoints(ctx, "t0", snapshot.Page{})
	require.NoError(t, err)
	require.Equal(t, []string{"c4", "c2", "c0"}, ids(all))
	page, err := s.Checkpoints(ctx, "t0", snapshot.Page{Limit: 1, Before: "c4"})
	require.NoError(t, err)
	require.Equal(t, all[1:2], page)
	_, err = s.Checkpoints(ctx, "t0", snapshot.Page{Before: "nothing"})
	require.ErrorIs(t, err, index.ErrCheckpointNotFound)

	st, err := s.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, st.Threads)
	require.Equal(t, 5, st.Checkpoints)
	require.Equal(t, s.Dir(), st.Store)
	require.NotNil(t, st.Mounts)
	require.NotNil(t, st.Fuse.Requests)
}

func ids(list []snapshot.Checkpoint) []string {
	var out []string
	for _, cp := range list {
		out = append(out, cp.ID)
	}
	return out
}

// oddIDs are all legal for threads and checkpoints.
var oddIDs = []string{
	"a/b", "/a", "a/", "//", "a//b", "..", ".", "../..", "a/../b", "./a", "...", "%2F", "%", "%%", "%zz", "a%2Fb", " ", " a ", "a+b", "a b",
	"\u00e9", "c:", "\U0001F600 \u2603", "a@b", "@", "@latest", "a@latest", "?", "a?b=c", "a&b", "#", "a#b", ";", "a;b", "{thread}", "checkpoints",
	"\\", "\"", "'", "<&>", "\u2028", "resolve", "=", "~", strings.Repeat("/", 512), strings.Repeat("\u20ac", 170), strings.Repeat("%", 512),
}

func testUnusualIDs(t *testing.T, s *snapshot.Store) {
	ctx := t.Context()
	for i, id := range oddIDs {
		own := "c:" + id
		if len(own) > index.MaxID {
			own = id
		}
		cp := save(t, s, id, own, map[string]string{"f": fmt.Sprint(i)})
		require.Equal(t, id, cp.Thread)
		th, err := s.Thread(ctx, id)
		require.NoError(t, err, "%q", id)
		require.Equal(t, id, th.ID)
		list, err := s.Checkpoints(ctx, id, snapshot.Page{})
		require.NoError(t, err, "%q", id)
		require.Equal(t, []snapshot.Checkpoint{cp}, list)
		got, err := s.Resolve(ctx, cp.ID)
		require.NoError(t, err, "%q", cp.ID)
		require.Equal(t, cp, got)
		got, err = s.Resolve(ctx, id+"@latest")
		require.NoError(t, err, "%q", id)
		require.Equal(t, cp, got)
		page, err := s.Threads(ctx, snapshot.Page{Before: id})
		require.NoError(t, err, "%q", id)
		require.Len(t, page, i)
	}
	threads, err := s.Threads(ctx, snapshot.Page{})
	require.NoError(t, err)
	require.Len(t, threads, len(oddIDs))
}

func testReferences(t *testing.T, s *snapshot.Store) {
	ctx := t.Context()
	save(t, s, "t", "20260101-000000-aabbcc11", map[string]string{"f": "1"})
	save(t, s, "t", "20260101-000001-aabbcc22", map[string]string{"f": "2"})
	cp, err := s.Resolve(ctx, "aabbcc11")
	require.NoError(t, err)
	require.Equal(t, "20260101-000000-aabbcc11", cp.ID)
	_, err = s.Resolve(ctx, "aabbcc")
	require.ErrorIs(t, err, snapshot.ErrAmbiguous)
	require.EqualError(t, err, "aabbcc: ambiguous reference")
	require.Contains(t, snapshot.Hint(err), "20260101-000000-aabbcc11, 20260101-000001-aabbcc22")
	_, err = s.Resolve(ctx, "t")
	require.ErrorIs(t, err, index.ErrCheckpointNotFound)
	require.Equal(t, "t is a thread: its newest checkpoint is t@latest", snapshot.Hint(err))
	_, err = s.Resolve(ctx, "t@nothing")
	require.EqualError(t, err, "thread t has no checkpoint named nothing: checkpoint not found")
}

func testNotFound(t *testing.T, s *snapshot.Store) {
	ctx := t.Context()
	long := strings.Repeat("x", 1<<20)
	for _, id := range []string{"", "/", "nothing", "..", "a\x00b", "\xff", long} {
		_, err := s.Thread(ctx, id)
		require.ErrorIs(t, err, index.ErrThreadNotFound, "%.20q", id)
		require.EqualError(t, err, fmt.Sprintf("thread %q: thread not found", id))
		_, err = s.Checkpoints(ctx, id, snapshot.Page{})
		require.ErrorIs(t, err, index.ErrThreadNotFound, "%.20q", id)
		_, err = s.Resolve(ctx, id)
		require.ErrorIs(t, err, index.ErrCheckpointNotFound, "%.20q", id)
		require.Equal(t, "snapfs list shows the threads, snapfs list THREAD their checkpoints", snapshot.Hint(err))
	}
	err := s.Holder().Unmount(ctx, snapshot.UnmountRequest{Mountpoint: "/nowhere"})
	require.ErrorIs(t, err, snapshot.ErrNotMounted)
	err = s.Holder().Mount(ctx, snapshot.MountRequest{Mountpoint: "/nowhere"})
	require.ErrorIs(t, err, snapshot.ErrUnsupported)
}

func testSessions(t *testing.T, s *snapshot.Store) {
	ctx := t.Context()
	h := s.Holder()
	one, err := h.Begin(ctx, snapshot.BeginRequest{Thread: "a/b", PID: 4711})
	require.NoError(t, err)
	require.Empty(t, one.Head())
	_, err = h.Begin(ctx, snapshot.BeginRequest{Thread: "a/b"})
	require.ErrorIs(t, err, snapshot.ErrBusy)
	require.EqualError(t, err, "thread a/b is being saved by process 4711: the thread is being saved")
	other, err := h.Begin(ctx, snapshot.BeginRequest{Thread: "other"})
	require.NoError(t, err)
	require.NoError(t, other.Close())
	require.NoError(t, one.Close())
	require.NoError(t, one.Close())
	_, err = one.Have(ctx, []cas.Key{{NS: cas.Files}})
	require.ErrorIs(t, err, snapshot.ErrSessionOver)
	require.ErrorIs(t, one.AddPack(ctx, cas.PackID{}), snapshot.ErrSessionOver)
	_, err = one.Publish(ctx, snapshot.PublishRequest{})
	require.ErrorIs(t, err, snapshot.ErrSessionOver)

	// Many, one after the other and without a pause.
	for range 50 {
		again, err := h.Begin(ctx, snapshot.BeginRequest{Thread: "a/b"})
		require.NoError(t, err)
		require.NoError(t, again.Close())
	}
}

func testRefusals(t *testing.T, s *snapshot.Store) {
	ctx := t.Context()
	save(t, s, "t", "one", map[string]string{"f": "1"})
	h := s.Holder()
	for _, test := range []struct {
		req  snapshot.BeginRequest
		want error
	}{
		{snapshot.BeginRequest{Thread: ""}, index.ErrInvalid},
		{snapshot.BeginRequest{Thread: "/"}, index.ErrInvalid},
		{snapshot.BeginRequest{Thread: "\xff"}, index.ErrInvalid},
		{snapshot.BeginRequest{Thread: strings.Repeat("x", 513)}, index.ErrInvalid},
		{snapshot.BeginRequest{Thread: "t", ID: "a\nb"}, index.ErrInvalid},
		{snapshot.BeginRequest{Thread: "t", Name: "latest"}, index.ErrInvalid},
		{snapshot.BeginRequest{Thread: "t", ID: "one"}, index.ErrDuplicateID},
		{snapshot.BeginRequest{Thread: "t", Empty: true}, snapshot.ErrThreadNotEmpty},
	} {
		_, err := h.Begin(ctx, test.req)
		require.ErrorIs(t, err, test.want)
	}
	session, err := h.Begin(ctx, snapshot.BeginRequest{Thread: "t"})
	require.NoError(t, err)
	defer session.Close()
	require.Equal(t, "one", session.Head())
	require.Error(t, session.AddPack(ctx, cas.PackID{1}))
	_, err = session.Publish(ctx, snapshot.PublishRequest{Record: cas.Hash{1}})
	require.ErrorIs(t, err, cas.ErrNotFound)
	_, err = session.Publish(ctx, snapshot.PublishRequest{Record: cas.Hash{1}, Name: "latest"})
	require.Error(t, err)
	// A record whose parent is not the head.
	cp, err := s.Resolve(ctx, "one")
	require.NoError(t, err)
	record, err := cas.ParseHash(cp.Record)
	require.NoError(t, err)
	_, err = session.Publish(ctx, snapshot.PublishRequest{Record: record})
	require.ErrorIs(t, err, index.ErrInvalid)
}

// testManyArtifacts: what a thread has goes with one request when it is forked.
func testManyArtifacts(t *testing.T, s *snapshot.Store) {
	ws := t.TempDir()
	opt := snapshot.SaveOptions{Workspace: ws, Thread: "many"}
	require.NoError(t, os.WriteFile(filepath.Join(ws, "f"), []byte("content"), 0o644))
	for i := range 1000 {
		opt.Artifacts = append(opt.Artifacts, snapshot.ArtifactFile{Name: fmt.Sprintf("report-%d.txt", i), Path: filepath.Join(ws, "f")})
	}
	_, err := s.Save(t.Context(), opt)
	require.NoError(t, err)
	forked, err := s.Fork(t.Context(), "many@latest", snapshot.ForkOptions{Thread: "fork of many"})
	require.NoError(t, err)
	require.EqualValues(t, 1000, forked.Artifacts)
}

func testForkDiff(t *testing.T, s *snapshot.Store) {
	ctx := t.Context()
	save(t, s, "t", "one", map[string]string{"f": "1", "g": "2"})
	forked, err := s.Fork(ctx, "one", snapshot.ForkOptions{Thread: "fork"})
	require.NoError(t, err)
	require.Equal(t, &snapshot.Origin{Thread: "t", Checkpoint: "one"}, forked.Origin)
	_, err = s.Fork(ctx, "one", snapshot.ForkOptions{Thread: "fork"})
	require.ErrorIs(t, err, snapshot.ErrThreadNotEmpty)
	require.NotEmpty(t, snapshot.Hint(err))
	save(t, s, "t", "two", map[string]string{"f": "1", "g": "3"})
	var changed []string
	require.NoError(t, s.Diff(ctx, "one", "two", snapshot.DiffOptions{}, func(c tree.Change) error {
		changed = append(changed, c.Path)
		return nil
	}))
	require.Contains(t, changed, "g")
	require.NotContains(t, changed, "a")
}

func testLocate(t *testing.T, s *snapshot.Store) {
	ctx := t.Context()
	cp := save(t, s, "t", "one", map[string]string{"f": "1"})
	record, err := cas.ParseHash(cp.Record)
	require.NoError(t, err)
	there := cas.Key{NS: cas.Records, Hash: record}
	// More than one request takes, the object at the end.
	keys := make([]cas.Key, 70000)
	for i := range keys {
		keys[i] = cas.Key{NS: cas.Files, Hash: cas.Hash{1, byte(i), byte(i >> 8), byte(i >> 16)}}
	}
	keys = append(keys, there)
	for range 2 {
		locs, err := s.Holder().Locate(ctx, keys)
		require.NoError(t, err)
		require.Len(t, locs, len(keys))
		for _, l := range locs[:len(keys)-1] {
			require.True(t, l.IsZero())
		}
		require.False(t, locs[len(keys)-1].IsZero())
	}
	locs, err := s.Holder().Locate(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, locs)

	session, err := s.Holder().Begin(ctx, snapshot.BeginRequest{Thread: "t"})
	require.NoError(t, err)
	defer session.Close()
	have, err := session.Have(ctx, keys)
	require.NoError(t, err)
	require.Len(t, have, len(keys))
	require.True(t, have[len(have)-1])
	require.NotContains(t, have[:len(have)-1], true)
	have, err = session.Have(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, have)
}
