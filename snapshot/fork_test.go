package snapshot

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// TestFork: a new thread with the same content, its own history, and nothing new
// in the store but a record.
func TestFork(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"a": "1", "b/c": "2", ".env": "left out"})
	first, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "T", Name: "base", Message: "of the first"})
	require.NoError(t, err)
	write(t, ws, map[string]string{"a": "changed"})
	save(t, s, ws, "T")

	f, err := s.Fork(t.Context(), "T@base", ForkOptions{Thread: "F", ID: "fork-1"})
	require.NoError(t, err)
	require.Equal(t, &Origin{Thread: "T", Checkpoint: first.Checkpoint.ID}, f.Origin)
	require.Equal(t, []any{"fork-1", "F", "", "fork", "", "", int64(0)}, []any{f.ID, f.Thread, f.Parent, f.Reason, f.Name, f.Message, f.NewBytes})
	require.Equal(t, first.Checkpoint.Tree, f.Tree)
	shown, err := s.Show(t.Context(), "fork-1")
	require.NoError(t, err)
	require.Equal(t, uint64(1), shown.Omitted, "what its content lacks is the same")
	require.Equal(t, look(t, restored(t, s, "T@base")), look(t, restored(t, s, "F@latest")))

	// A fork of a fork remembers the fork.
	g, err := s.Fork(t.Context(), "F@latest", ForkOptions{Thread: "G"})
	require.NoError(t, err)
	require.Equal(t, &Origin{Thread: "F", Checkpoint: "fork-1"}, g.Origin)

	// Each goes its own way.
	save(t, s, ws, "F")
	next, err := s.Resolve(t.Context(), "F@latest")
	require.NoError(t, err)
	require.Equal(t, "fork-1", next.Parent)
	require.Nil(t, next.Origin)

	for name, test := range map[string]struct {
		ref  string
		opt  ForkOptions
		want error
	}{
		"into itself":           {"T@latest", ForkOptions{Thread: "T"}, ErrThreadNotEmpty},
		"into another":          {"T@latest", ForkOptions{Thread: "F"}, ErrThreadNotEmpty},
		"of nothing":            {"T@nothing", ForkOptions{Thread: "H"}, index.ErrCheckpointNotFound},
		"into nothing":          {"T@latest", ForkOptions{}, index.ErrInvalid},
		"with an id that is":    {"T@latest", ForkOptions{Thread: "H", ID: "fork-1"}, index.ErrDuplicateID},
		"with an id that isn't": {"T@latest", ForkOptions{Thread: "H", ID: "a\nb"}, index.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.Fork(t.Context(), test.ref, test.opt)
			require.ErrorIs(t, err, test.want)
			_, err = s.Thread(t.Context(), "H")
			require.ErrorIs(t, err, index.ErrThreadNotFound)
		})
	}
	require.Empty(t, tempFiles(t, s))
}

// TestForkKeepsUnknownFields: what a newer snapfs put into a record goes along.
func TestForkKeepsUnknownFields(t *testing.T) {
	s := newStore(t)
	cp := save(t, s, t.TempDir(), "T")
	rec, err := s.Record(t.Context(), cp)
	require.NoError(t, err)
	value, err := cbor.Marshal("from the future")
	require.NoError(t, err)
	rec.ID, rec.Parent, rec.Labels = "newer", cp.ID, map[string]string{"k": "v"}
	rec.Extra = map[uint64]cbor.RawMessage{1000: value}
	session := begin(t, s, BeginRequest{Thread: "T"})
	_, err = session.Publish(t.Context(), PublishRequest{Record: putRecord(t, s, session, rec)})
	require.NoError(t, err)

	f, err := s.Fork(t.Context(), "newer", ForkOptions{Thread: "F"})
	require.NoError(t, err)
	got, err := s.Record(t.Context(), f)
	require.NoError(t, err)
	require.Equal(t, rec.Extra, got.Extra)
	require.Empty(t, got.Labels, "labels are of the checkpoint and not of its content")
}

// TestDescribe: the document that mounts show has only what never changes: the
// same bytes for ever, whatever the checkpoint is called.
func TestDescribe(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{".env": "left out"})
	res, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "T", Name: "release", Message: "m"})
	require.NoError(t, err)
	first, err := s.Describe(t.Context(), res.Checkpoint)
	require.NoError(t, err)
	renamed := res.Checkpoint
	renamed.Name, renamed.Status, renamed.StatusMessage = "another", "error", "of tomorrow"
	second, err := s.Describe(t.Context(), renamed)
	require.NoError(t, err)
	require.Equal(t, string(first), string(second))
	var doc map[string]any
	require.NoError(t, json.Unmarshal(first, &doc))
	for _, field := range []string{"name", "status", "statusMessage", "sequence", "received"} {
		require.NotContains(t, doc, field)
	}
	require.Equal(t, []any{res.Checkpoint.ID, "m", res.Checkpoint.Tree}, []any{doc["id"], doc["message"], doc["tree"]})
	require.Equal(t, ".env", doc["omissions"].([]any)[0].(map[string]any)["path"])
	require.Equal(t, byte('\n'), first[len(first)-1])
}

// TestDiffOfRoots: the workspace's own metadata is not in its tree.
func TestDiffOfRoots(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"a": "1"})
	base := time.Unix(1e9, 0)
	require.NoError(t, os.Chtimes(ws, base, base))
	old := save(t, s, ws, "T").ID
	changes := func(opt DiffOptions) (lines []string) {
		t.Helper()
		cp := save(t, s, ws, "T")
		require.NoError(t, s.Diff(t.Context(), old, cp.ID, opt, func(c tree.Change) error {
			lines = append(lines, fmt.Sprintf("%v %s", c.Op, c.Path))
			return nil
		}))
		old = cp.ID
		return lines
	}
	metadata := fmt.Sprintf("%v .", tree.Metadata)
	require.Empty(t, changes(DiffOptions{}))
	require.NoError(t, os.Chmod(ws, 0o700))
	require.Equal(t, []string{metadata}, changes(DiffOptions{}))
	require.NoError(t, os.Chtimes(ws, base, base.Add(1)))
	require.Equal(t, []string{metadata}, changes(DiffOptions{}))
	write(t, ws, map[string]string{"b": "2"}) // changes the root's time, too
	require.Equal(t, []string{fmt.Sprintf("%v b", tree.Added)}, changes(DiffOptions{}))
	setXattr(t, ws, "user.x", "1")
	if xattrs(t, ws) != nil {
		require.Equal(t, []string{metadata}, changes(DiffOptions{}))
	}
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(ws, ordinary, ordinary))
		for _, name := range []string{"a", "b"} {
			require.NoError(t, os.Chown(filepath.Join(ws, name), ordinary, ordinary))
		}
		require.Equal(t, []string{metadata}, changes(DiffOptions{Owner: true}))
		require.NoError(t, os.Chown(ws, 0, 0))
		require.NotContains(t, changes(DiffOptions{}), metadata)
	}
	require.ErrorIs(t, s.Diff(t.Context(), old, "nothing", DiffOptions{}, nil), index.ErrCheckpointNotFound)
}

// TestRestoreOne: one file, its parents and nothing else, with their metadata.
func TestRestoreOne(t *testing.T) {
	s := newStore(t)
	ws := workspace(t)
	cp := save(t, s, ws, "T")
	dir := filepath.Join(t.TempDir(), "dir")
	t.Cleanup(func() { removable(dir) })
	_, err := s.Restore(t.Context(), cp.ID, RestoreOptions{Dir: dir, Include: []policy.Rule{{Pattern: "/ro/child", Source: "--include"}}})
	require.NoError(t, err)
	want := look(t, ws)
	require.Equal(t, map[string]node{".": want["."], "ro": want["ro"], "ro/child": want["ro/child"]}, look(t, dir))

	_, err = s.Restore(t.Context(), cp.ID, RestoreOptions{Dir: filepath.Join(t.TempDir(), "x"), Include: []policy.Rule{{Pattern: "a[", Source: "--include"}}})
	require.Error(t, err)
	_, err = s.Restore(t.Context(), cp.ID, RestoreOptions{Dir: ws})
	require.ErrorContains(t, err, "not an empty directory")
}
