package snapshot

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/policy"
)

// eachKind runs a test on a store on a disk and on one in memory.
func eachKind(t *testing.T, test func(t *testing.T, s *Store)) {
	t.Run("disk", func(t *testing.T) { test(t, newStore(t)) })
	t.Run("memory", func(t *testing.T) {
		s := OpenMemory()
		t.Cleanup(func() {
			if !t.Failed() {
				require.Empty(t, faults(t, s))
			}
			require.NoError(t, s.Close())
		})
		test(t, s)
	})
}

func TestMemoryStore(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Store) {
		ws := filepath.Join(t.TempDir(), "ws")
		write(t, ws, map[string]string{"a": "one", "dir/b": strings.Repeat("two", 1<<20), "empty/": ""})
		first := save(t, s, ws, "t")
		write(t, ws, map[string]string{"a": "changed"})
		second := save(t, s, ws, "t")
		require.Equal(t, first.ID, second.Parent)
		require.Equal(t, look(t, ws), look(t, restored(t, s, second.ID)))
		fork, err := s.Fork(t.Context(), first.ID, ForkOptions{Thread: "u"})
		require.NoError(t, err)
		require.Equal(t, first.Tree, fork.Tree)
		_, err = s.Delete(t.Context(), second.ID)
		require.NoError(t, err)
		res, err := s.GC(t.Context(), GCRequest{DryRun: true})
		require.NoError(t, err)
		require.Positive(t, res.Objects)
		res = gc(t, s)
		require.Positive(t, res.Freed)
		stats, err := s.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, stats.Threads)
		require.Positive(t, stats.PackBytes)
		restored(t, s, "t@latest")
	})
}

func TestArtifacts(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Store) {
		dir := t.TempDir()
		ws := filepath.Join(dir, "ws")
		write(t, ws, map[string]string{"f": "x"})
		write(t, dir, map[string]string{"report.html": "<html>", "data": "\x00\x01", "big": strings.Repeat("y", 3<<20)})
		add := func(file, name, media string) Artifact {
			a, _, err := s.AddArtifact(t.Context(), "t", ArtifactFile{Path: filepath.Join(dir, file), Name: name, MediaType: media}, policy.SecretsWarn, SecretsOptions{})
			require.NoError(t, err)
			return a
		}
		html := add("report.html", "", "")
		require.Equal(t, "report.html", html.Name)
		require.Contains(t, html.MediaType, "text/html")
		require.EqualValues(t, 6, html.Size)
		big := add("big", "a/b twice", "application/x-own")
		twin := add("big", "a/b twice", "")
		require.NotEqual(t, big.ID, twin.ID, "a name may repeat")

		first := save(t, s, ws, "t")
		require.EqualValues(t, 3, first.Artifacts)
		list, err := s.Artifacts(t.Context(), first.ID)
		require.NoError(t, err)
		require.Len(t, list, 3)
		var got bytes.Buffer
		require.NoError(t, s.ReadArtifact(t.Context(), first.ID, big.ID, &got))
		require.Equal(t, strings.Repeat("y", 3<<20), got.String())

		require.NoError(t, s.RemoveArtifact(t.Context(), "t", html.ID))
		res, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t", Artifacts: []ArtifactFile{{Path: filepath.Join(dir, "data"), Name: "data"}}})
		require.NoError(t, err)
		require.EqualValues(t, 3, res.Checkpoint.Artifacts, "one went, one came with the save")
		require.ErrorIs(t, s.ReadArtifact(t.Context(), res.Checkpoint.ID, html.ID, &got), index.ErrArtifactNotFound)
		require.NoError(t, s.ReadArtifact(t.Context(), first.ID, html.ID, &got), "the older checkpoint keeps it")
		later := save(t, s, ws, "t")
		require.EqualValues(t, 3, later.Artifacts, "an automatic save does not lose them")

		// A fork takes the checkpoint's artifacts along.
		_, err = s.Fork(t.Context(), first.ID, ForkOptions{Thread: "u"})
		require.NoError(t, err)
		forked := save(t, s, ws, "u")
		require.EqualValues(t, 3, forked.Artifacts)
		require.NoError(t, s.DeleteThread(t.Context(), "t"))
		gc(t, s)
		got.Reset()
		require.NoError(t, s.ReadArtifact(t.Context(), forked.ID, big.ID, &got))
		require.Equal(t, 3<<20, got.Len())

		_, _, err = s.AddArtifact(t.Context(), "new", ArtifactFile{Path: filepath.Join(dir, "data")}, policy.SecretsWarn, SecretsOptions{})
		require.NoError(t, err, "it makes the thread")
		_, err = s.Fork(t.Context(), forked.ID, ForkOptions{Thread: "new"})
		require.ErrorIs(t, err, ErrThreadNotEmpty)
		_, _, err = s.AddArtifact(t.Context(), "t", ArtifactFile{Path: filepath.Join(dir, "absent")}, policy.SecretsWarn, SecretsOptions{})
		require.ErrorIs(t, err, os.ErrNotExist)
		_, _, err = s.AddArtifact(t.Context(), "t", ArtifactFile{Path: dir}, policy.SecretsWarn, SecretsOptions{})
		require.ErrorIs(t, err, ErrRefused)
	})
}

// meanwhile is messages; between the two times that they are read it does something.
type meanwhile struct {
	*strings.Reader
	do func()
}

// Seek implements [io.Seeker].
func (m *meanwhile) Seek(offset int64, whence int) (int64, error) {
	if whence == io.SeekStart { // the save is under way now
		m.do()
	}
	return m.Reader.Seek(offset, whence)
}

// TestArtifactsMeanwhile: a thread's artifacts can change while it is saved, and so can
// another's; neither takes anything from the other.
func TestArtifactsMeanwhile(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Store) {
		dir := t.TempDir()
		write(t, dir, map[string]string{"ws/f": "x", "file": "content", "other": "another"})
		add := func(file string) Artifact {
			a, _, err := s.AddArtifact(t.Context(), "t", ArtifactFile{Path: filepath.Join(dir, file)}, policy.SecretsWarn, SecretsOptions{})
			require.NoError(t, err)
			return a
		}
		ids := func(ref string) (ids []string) {
			list, err := s.Artifacts(t.Context(), ref)
			require.NoError(t, err)
			for _, a := range list {
				ids = append(ids, a.ID)
				require.NoError(t, s.ReadArtifact(t.Context(), ref, a.ID, io.Discard))
			}
			return ids
		}
		gone := add("file")
		first := save(t, s, filepath.Join(dir, "ws"), "t")
		var added Artifact
		times := 0
		res, err := s.Save(t.Context(), SaveOptions{Workspace: filepath.Join(dir, "ws"), Thread: "t", Conversation: &meanwhile{strings.NewReader("[]"), func() {
			times++
			added = add("other")
			require.NoError(t, s.RemoveArtifact(t.Context(), "t", gone.ID))
			gc(t, s)
			_, err := s.Fork(t.Context(), first.ID, ForkOptions{Thread: "u"})
			require.NoError(t, err)
		}}})
		require.NoError(t, err)
		require.Equal(t, 1, times)
		require.Equal(t, []string{added.ID}, ids(res.Checkpoint.ID), "what the thread had in the end")
		require.Equal(t, []string{gone.ID}, ids(first.ID))
		require.Equal(t, []string{gone.ID}, ids("u@latest"))
		save(t, s, filepath.Join(dir, "ws"), "t")
		save(t, s, filepath.Join(dir, "ws"), "u")
		require.Equal(t, []string{added.ID}, ids("t@latest"))
		require.Equal(t, []string{gone.ID}, ids("u@latest"))
	})
}

// TestArtifactsInOneStep: what a thread gets in one step stands in one entry of the
// journal; more is refused with what to do, and changes nothing.
func TestArtifactsInOneStep(t *testing.T) {
	s := newStore(t)
	dir := t.TempDir()
	write(t, dir, map[string]string{"ws/f": "x"})
	opt := SaveOptions{Workspace: filepath.Join(dir, "ws"), Thread: "t"}
	for i := range 200 {
		name := strings.Repeat(string(rune('a'+i%26)), index.MaxArtifactName)
		opt.Artifacts = append(opt.Artifacts, ArtifactFile{Path: filepath.Join(dir, "ws/f"), Name: name})
	}
	_, err := s.Save(t.Context(), opt)
	require.NoError(t, err)
	res, err := s.Save(t.Context(), opt)
	require.NoError(t, err)
	require.EqualValues(t, 400, res.Checkpoint.Artifacts)
	_, err = s.Fork(t.Context(), res.Checkpoint.ID, ForkOptions{Thread: "u"})
	require.ErrorIs(t, err, cas.ErrTooLarge)
	require.Equal(t, "fork a checkpoint that holds fewer of them", Hint(err))
	_, err = s.Thread(t.Context(), "u")
	require.ErrorIs(t, err, index.ErrThreadNotFound)
	opt.Artifacts = append(opt.Artifacts, opt.Artifacts...)
	_, err = s.Save(t.Context(), opt)
	require.ErrorIs(t, err, cas.ErrTooLarge)
	require.Contains(t, Hint(err), "snapfs artifact add t FILE")
	save(t, s, opt.Workspace, "t")
}

// File data and artifact data never share an object.
func TestArtifactsAreApart(t *testing.T) {
	s := newStore(t)
	dir := t.TempDir()
	write(t, dir, map[string]string{"ws/f": "same bytes"})
	a, _, err := s.AddArtifact(t.Context(), "t", ArtifactFile{Path: filepath.Join(dir, "ws/f")}, policy.SecretsWarn, SecretsOptions{})
	require.NoError(t, err)
	save(t, s, filepath.Join(dir, "ws"), "t")
	hash, err := cas.ParseHash(a.Hash)
	require.NoError(t, err)
	has, err := s.blobs.Has(t.Context(), []cas.Key{{NS: cas.Files, Hash: hash}, {NS: cas.Artifacts, Hash: hash}})
	require.NoError(t, err)
	require.Equal(t, []bool{true, true}, has)
}

func TestRunsParentsAndLimits(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Store) {
		ws := filepath.Join(t.TempDir(), "ws")
		write(t, ws, map[string]string{"small": "x", "large": strings.Repeat("y", 5000)})
		res, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t", Run: "r1", Message: "done", Labels: map[string]string{"k": "v"}})
		require.NoError(t, err)
		cp := res.Checkpoint
		require.Equal(t, "checkpoint-r1", cp.ID)
		require.Equal(t, "automatic", cp.Reason)
		require.Equal(t, "r1", cp.Run)
		require.Equal(t, "done", cp.Message)
		require.Equal(t, map[string]string{"k": "v"}, cp.Labels)
		_, err = s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t", Run: "r1"})
		require.ErrorIs(t, err, index.ErrDuplicateID)
		next := save(t, s, ws, "t")
		_, err = s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t", Parent: cp.ID})
		require.ErrorIs(t, err, index.ErrStaleHead)
		_, err = s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t", Parent: next.ID})
		require.NoError(t, err)

		_, err = s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t", Settings: policy.Settings{MaxFileSize: 4999}})
		require.ErrorIs(t, err, cas.ErrTooLarge)
		require.ErrorContains(t, err, "large")
		require.NotContains(t, err.Error(), "small")
		_, err = s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t", Settings: policy.Settings{MaxSize: 5000}})
		require.ErrorIs(t, err, cas.ErrTooLarge)
		_, err = s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t", Settings: policy.Settings{MaxFileSize: 5000, MaxSize: 5001}})
		require.NoError(t, err)
	})
}
