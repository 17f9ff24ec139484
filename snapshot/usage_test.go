package snapshot

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/castest"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/policy"
)

func usage(t require.TestingT, s *Store) Usage {
	u, err := s.Usage(context.Background())
	require.NoError(t, err)
	return u
}

func TestUsage(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Store) {
		empty := usage(t, s)
		require.Zero(t, empty.LogicalBytes+empty.UniqueBytes+empty.StoredBytes+empty.ReclaimableBytes+int64(empty.Objects))
		require.Zero(t, empty.DedupRatio+empty.CompressionRatio)
		require.NotNil(t, empty.Threads)

		ws := filepath.Join(t.TempDir(), "ws")
		shared := noiseFile(t, filepath.Join(ws, "shared"), 1, 100_000)
		twin := noiseFile(t, filepath.Join(ws, "twin"), 2, 30_000)
		require.NoError(t, os.WriteFile(filepath.Join(ws, "twin2"), twin, 0o644))
		text := strings.Repeat("all work and no play ", 5_000)
		write(t, ws, map[string]string{"text": text})
		conversation := `[{"role":"user"}]`
		_, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "a", Files: policy.FilesOptions{NoDefaults: true}, Conversation: strings.NewReader(conversation)})
		require.NoError(t, err)
		_, _, err = s.AddArtifact(t.Context(), "a", ArtifactFile{Path: filepath.Join(ws, "twin")}, policy.SecretsOff, SecretsOptions{})
		require.NoError(t, err)
		own := noiseFile(t, filepath.Join(ws, "own"), 3, 200_000)
		save(t, s, ws, "a")
		require.NoError(t, os.Remove(filepath.Join(ws, "own")))
		save(t, s, ws, "b")

		files := len(shared) + 2*len(twin) + len(text)
		u := usage(t, s)
		require.Equal(t, []string{"b", "a"}, []string{u.Threads[0].Thread, u.Threads[1].Thread})
		require.EqualValues(t, files, u.Threads[0].LogicalBytes)
		require.EqualValues(t, 2*files+len(own)+len(twin)+len(conversation), u.Threads[1].LogicalBytes, "an artifact counts where a checkpoint holds it")
		require.Equal(t, 2, u.Threads[1].Checkpoints)
		require.Equal(t, u.Threads[0].LogicalBytes+u.Threads[1].LogicalBytes, u.LogicalBytes)
		by := map[string]NamespaceUsage{}
		for _, n := range u.Namespaces {
			by[n.Namespace] = n
		}
		require.Len(t, by, 5)
		require.Equal(t, 4, by["files"].Objects)
		require.EqualValues(t, len(shared)+len(twin)+len(text)+len(own), by["files"].UniqueBytes)
		require.EqualValues(t, len(twin), by["artifacts"].UniqueBytes)
		require.EqualValues(t, len(conversation), by["conversations"].UniqueBytes)
		require.Zero(t, u.ReclaimableBytes)
		require.InDelta(t, float64(u.LogicalBytes)/float64(u.UniqueBytes), u.DedupRatio, 1e-9)
		require.Greater(t, u.DedupRatio, 1.5)
		if s.dir != "" {
			require.Greater(t, u.UniqueBytes-u.StoredBytes, int64(len(text)-5_000), "text is compressed")
			require.Greater(t, u.CompressionRatio, 1.0)
		}
		require.Greater(t, u.Threads[1].FreedBytes, int64(len(own)+len(twin)))
		require.Less(t, u.Threads[1].FreedBytes, int64(len(own)+len(twin)+10_000))
		require.Less(t, u.Threads[0].FreedBytes, int64(1_000), "b has only its record")

		require.NoError(t, s.DeleteThread(t.Context(), "a"))
		after := usage(t, s)
		require.Equal(t, u.Threads[1].FreedBytes, after.ReclaimableBytes)
		require.Equal(t, after.StoredBytes, after.Threads[0].FreedBytes, "all that is left")
		dry, err := s.GC(t.Context(), GCRequest{DryRun: true})
		require.NoError(t, err)
		require.Equal(t, after.ReclaimableBytes, dry.Bytes)
		require.Zero(t, dry.Freed)
		if s.dir != "" {
			_, err = s.GC(t.Context(), GCRequest{Purge: true})
			require.NoError(t, err)
		} else {
			require.Equal(t, after.ReclaimableBytes, gc(t, s).Freed)
		}
		require.Zero(t, usage(t, s).ReclaimableBytes)
	})
}

// Deleting a thread frees what was foretold, whatever shares with whom.
func TestUsageForetells(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		s := OpenMemory()
		defer s.Close()
		names := []string{"a", "b", "c", "d"}
		var refs []string
		for i := range rapid.IntRange(1, 8).Draw(rt, "steps") {
			thread := rapid.SampledFrom(names).Draw(rt, "thread")
			switch rapid.IntRange(0, 4).Draw(rt, "what") {
			case 0:
				if len(refs) > 0 {
					cp, err := s.Fork(context.Background(), rapid.SampledFrom(refs).Draw(rt, "of"), ForkOptions{Thread: fmt.Sprint("fork", i)})
					require.NoError(rt, err)
					refs = append(refs, cp.ID)
				}
			case 1:
				path := filepath.Join(dir, "artifact")
				require.NoError(rt, os.WriteFile(path, castest.Noise(uint64(rapid.IntRange(0, 3).Draw(rt, "artifact")), 50), 0o644))
				_, _, err := s.AddArtifact(context.Background(), thread, ArtifactFile{Path: path}, policy.SecretsOff, SecretsOptions{})
				require.NoError(rt, err)
			default:
				ws := filepath.Join(dir, "ws")
				require.NoError(rt, os.RemoveAll(ws))
				for range rapid.IntRange(0, 5).Draw(rt, "files") {
					n := rapid.IntRange(0, 4).Draw(rt, "content")
					path := filepath.Join(ws, rapid.SampledFrom([]string{"", "x", "y", "x/z"}).Draw(rt, "dir"), fmt.Sprint(rapid.IntRange(0, 2).Draw(rt, "name")))
					require.NoError(rt, os.MkdirAll(filepath.Dir(path), 0o755))
					require.NoError(rt, os.WriteFile(path, castest.Noise(uint64(n), 100+n), 0o644))
				}
				require.NoError(rt, os.MkdirAll(ws, 0o755))
				res, err := s.Save(context.Background(), SaveOptions{Workspace: ws, Thread: thread})
				require.NoError(rt, err)
				refs = append(refs, res.Checkpoint.ID)
			}
		}
		u := usage(t, s)
		_, all := s.holder.(*localHolder).memory.Size()
		require.Equal(rt, all, u.StoredBytes+u.ReclaimableBytes)
		for len(u.Threads) > 0 {
			gone := rapid.SampledFrom(u.Threads).Draw(rt, "gone")
			require.NoError(rt, s.DeleteThread(context.Background(), gone.Thread))
			after := usage(t, s)
			require.Equal(rt, gone.FreedBytes, after.ReclaimableBytes-u.ReclaimableBytes, gone.Thread)
			u = after
		}
		require.Zero(rt, u.StoredBytes)
	})
}

// What is lost is told of, not counted as something else.
func TestUsageOfDamage(t *testing.T) {
	s, ws := unsound(t)
	save(t, s, ws, "t")
	for _, path := range packFiles(t, s) {
		require.NoError(t, os.Truncate(path, 100))
	}
	_, err := s.Usage(t.Context())
	require.ErrorIs(t, err, cas.ErrCorrupt)
	require.Contains(t, Hint(err), "verify")
}

func TestDu(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Store) {
		ws := filepath.Join(t.TempDir(), "ws")
		same := noiseFile(t, filepath.Join(ws, "a/same"), 1, 40_000)
		noiseFile(t, filepath.Join(ws, "b/same"), 1, 40_000)
		long := noiseFile(t, filepath.Join(ws, "b/long"), 2, 3<<20)
		require.NoError(t, os.Symlink("nowhere", filepath.Join(ws, "link")))
		cp := save(t, s, ws, "t")
		du := func(at string) (all []Sizes) {
			require.NoError(t, s.Du(t.Context(), cp.ID, at, func(sizes Sizes) error {
				all = append(all, sizes)
				return nil
			}))
			return all
		}
		all := du("")
		var paths []string
		for _, sizes := range all {
			paths = append(paths, sizes.Text)
		}
		require.Equal(t, []string{"a", "b", "link", "."}, paths)
		a, b, link, whole := all[0], all[1], all[2], all[3]
		require.EqualValues(t, len(same), a.Bytes)
		require.EqualValues(t, len(same)+len(long), b.Bytes)
		require.Equal(t, Sizes{Path: NewPath("link"), Files: 1}, link)
		require.EqualValues(t, cp.Bytes, whole.Bytes)
		require.Equal(t, cp.Files, whole.Files)
		require.Equal(t, cp.Dirs, whole.Dirs)
		require.Less(t, whole.UniqueBytes, a.UniqueBytes+b.UniqueBytes, "the twin counts once")
		require.Greater(t, whole.UniqueBytes, b.UniqueBytes)
		require.Greater(t, whole.StoredBytes, whole.UniqueBytes, "noise does not compress")
		require.Less(t, whole.StoredBytes, whole.UniqueBytes+10_000)

		file := du("/b/../b/long")
		require.Len(t, file, 1)
		require.Equal(t, "b/long", file[0].Text)
		require.EqualValues(t, len(long), file[0].Bytes)
		require.EqualValues(t, 1, file[0].Files)
		require.Error(t, s.Du(t.Context(), cp.ID, "nothing", nil))
		require.ErrorIs(t, s.Du(t.Context(), "nobody", "", nil), index.ErrCheckpointNotFound)
	})
}
