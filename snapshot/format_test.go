package snapshot

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/castest"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/policy"
)

// frozen is what a frozen store must show: the content of shows.json beside it.
type frozen struct {
	Threads     []Thread
	Checkpoints []frozenCheckpoint
}

type frozenCheckpoint struct {
	Shown        Checkpoint
	Artifacts    []Artifact
	Contents     map[string]string // of the artifacts by id: BLAKE3
	Conversation string
	Files        map[string]node // as restored, by quoted path; nil where they are those of another
}

// TestFrozenFormats: every later snapfs opens the stores of earlier formats, with and
// without an index of its own, and shows what the version that made them showed.
//
// With SNAPFS_FREEZE=DIR the store of the present format is made there instead: once,
// when the format's number is a new one.
func TestFrozenFormats(t *testing.T) {
	if dir := os.Getenv("SNAPFS_FREEZE"); dir != "" {
		freeze(t, dir)
		return
	}
	needRoot(t) // owners, and attributes of read-only files
	for version := 1; version <= Format; version++ {
		t.Run(fmt.Sprint("v", version), func(t *testing.T) {
			from := filepath.Join("..", "testdata", "format", fmt.Sprint("v", version))
			var want frozen
			data, err := os.ReadFile(filepath.Join(from, "shows.json"))
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(data, &want))
			dir := filepath.Join(t.TempDir(), "store")
			require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(from, "store"))))
			for range 2 { // the second time with the index of the first
				s := openStore(t, dir)
				got := show(t, s, want.Checkpoints)
				require.Equal(t, want.Threads, got.Threads)
				require.Len(t, got.Checkpoints, len(want.Checkpoints))
				for i, cp := range want.Checkpoints {
					if cp.Shown.Sequence == 0 { // it was not shown when that was frozen
						require.Positive(t, got.Checkpoints[i].Shown.Sequence)
						got.Checkpoints[i].Shown.Sequence = 0
					}
					require.Equal(t, cp, got.Checkpoints[i], cp.Shown.ID)
				}
				require.NoError(t, s.Close())
			}
			_, problems := reindex(t, dir)
			require.Empty(t, problems)

			// And it can be worked with.
			s := openStore(t, dir)
			ws := filepath.Join(t.TempDir(), "ws")
			write(t, ws, map[string]string{"f": "1"})
			save(t, s, ws, "main")
			gc(t, s)
			other := OpenMemory()
			defer other.Close()
			for _, cp := range want.Checkpoints {
				res, err := other.Import(t.Context(), bytes.NewReader(exportedBytes(t, s, cp.Shown.ID, Tar)), ImportOptions{Thread: "t"})
				require.NoError(t, err, cp.Shown.ID)
				require.Equal(t, cp.Shown.Tree, res.Checkpoint.Tree)
			}
			require.Empty(t, faults(t, other))
			require.Empty(t, faults(t, s))
		})
	}
}

// show looks at everything in a store. The files are looked at where wanted has some.
func show(t *testing.T, s *Store, wanted []frozenCheckpoint) (all frozen) {
	t.Helper()
	ctx := t.Context()
	var err error
	all.Threads, err = s.Threads(ctx, Page{})
	require.NoError(t, err)
	for _, th := range all.Threads {
		cps, err := s.Checkpoints(ctx, th.ID, Page{})
		require.NoError(t, err)
		for _, cp := range cps {
			one := frozenCheckpoint{Contents: map[string]string{}}
			one.Shown, err = s.Show(ctx, cp.ID)
			require.NoError(t, err)
			rules, err := policy.Decode([]byte(one.Shown.Policy))
			require.NoError(t, err)
			require.NotEmpty(t, rules.Files.Exclude)
			one.Artifacts, err = s.Artifacts(ctx, cp.ID)
			require.NoError(t, err)
			for _, a := range one.Artifacts {
				var b bytes.Buffer
				require.NoError(t, s.ReadArtifact(ctx, cp.ID, a.ID, &b))
				one.Contents[a.ID] = cas.Data.Sum(b.Bytes()).String()
			}
			if cp.Conversation {
				var b bytes.Buffer
				require.NoError(t, s.Conversation(ctx, cp.ID, &b))
				one.Conversation = b.String()
			}
			if i := len(all.Checkpoints); wanted == nil || wanted[i].Files != nil {
				one.Files = map[string]node{}
				for path, n := range look(t, restored(t, s, cp.ID)) {
					one.Files[strconv.Quote(path)] = n // JSON has UTF-8 only
				}
			}
			all.Checkpoints = append(all.Checkpoints, one)
		}
	}
	return all
}

// freeze makes a store with some of everything that the format knows.
func freeze(t *testing.T, dir string) {
	require.NoError(t, os.Mkdir(dir, 0o755))
	s, err := Open(t.Context(), filepath.Join(dir, "store"), Options{Create: true})
	require.NoError(t, err)
	ws := filepath.Join(t.TempDir(), "ws")
	files := map[string]string{
		"text": strings.Repeat("text that snappy packs\n", 300), "long text": strings.Repeat("text that zstd packs, which is for longer ones\n", 1000),
		"noise": string(castest.Noise(1, 3000)), "same": "twice", "dir/same": "twice", "empty": "", "dir/empty/": "", ".env": "left out",
		"\xff\xfe not UTF-8\n": "1", "é": "NFC", "e\u0301": "NFD", "dir/executable": "#!/bin/sh\n", "dir/ro/f": "read-only",
		"chunked": strings.Repeat("a chunk of text is packed by zstd, too; ", 60_000) + string(make([]byte, 1<<20)) + "end",
	}
	for i := range 700 { // more than one segment, and a list of them
		files[fmt.Sprintf("many/%04d", i)] = fmt.Sprint(i % 10)
	}
	write(t, ws, files)
	at := func(path string) string { return filepath.Join(ws, path) }
	require.NoError(t, os.Symlink("../outside", at("link")))
	require.NoError(t, os.Link(at("same"), at("dir/hard")))
	require.NoError(t, unix.Setxattr(at("noise"), "user.one", []byte("1\x00\xff"), 0))
	require.NoError(t, unix.Setxattr(at("dir"), "user.two", []byte("2"), 0))
	require.NoError(t, unix.Setxattr(at("."), "user.root", []byte("3"), 0))
	require.NoError(t, os.Chmod(at("dir/executable"), 0o755))
	require.NoError(t, os.Lchown(at("noise"), 1234, 5678))
	require.NoError(t, unix.Mkfifo(at("fifo"), 0o644))
	for path, sec := range map[string]int64{"text": -1_000_000_000, "empty": 1 << 33, "dir/ro": 5} {
		ts := unix.Timespec{Sec: sec, Nsec: 123456789}
		require.NoError(t, unix.UtimesNanoAt(unix.AT_FDCWD, at(path), []unix.Timespec{ts, ts}, 0))
	}
	require.NoError(t, os.Chmod(at("dir/ro"), 0o555))
	t.Cleanup(func() { removable(ws) })

	artifact := at("../artifact")
	require.NoError(t, os.WriteFile(artifact, []byte("an artifact"), 0o644))
	put := func(opt SaveOptions) {
		t.Helper()
		opt.Workspace = ws
		_, err := s.Save(t.Context(), opt)
		require.NoError(t, err)
	}
	put(SaveOptions{
		Thread: "main", ID: "first", Name: "named", Message: "a message", Labels: map[string]string{"k": "v"},
		Conversation: strings.NewReader(`[{"role":"user","content":"hi"}]`), Artifacts: []ArtifactFile{{Name: "report.txt", Path: artifact}},
		Files: policy.FilesOptions{Exclude: []policy.Rule{{Pattern: "*.log", Source: "--exclude"}}},
	})
	write(t, ws, map[string]string{"many/0350": "changed"})
	put(SaveOptions{Thread: "main", Run: "7", Compression: local.Off})
	_, err = s.Fork(t.Context(), "first", ForkOptions{Thread: "a fork/\xc3\xa9", ID: "forked"})
	require.NoError(t, err)
	a, _, err := s.AddArtifact(t.Context(), "a fork/\xc3\xa9", ArtifactFile{Name: "gone", Path: artifact}, policy.SecretsWarn, SecretsOptions{})
	require.NoError(t, err)
	require.NoError(t, s.RemoveArtifact(t.Context(), "a fork/\xc3\xa9", a.ID))
	put(SaveOptions{Thread: "gone", ID: "deleted with its thread"})
	put(SaveOptions{Thread: "main", ID: "deleted"})
	_, err = s.Rename(t.Context(), "checkpoint-7", "renamed")
	require.NoError(t, err)
	_, err = s.Delete(t.Context(), "deleted")
	require.NoError(t, err)
	require.NoError(t, s.DeleteThread(t.Context(), "gone"))
	require.NoError(t, s.Close())

	// A lost entry, where nothing was said that is not said again.
	flipEntries(t, s.dir, 9)
	_, problems := reindex(t, s.dir)
	require.NotEmpty(t, problems)
	s = openStore(t, s.dir)
	all := show(t, s, nil)
	all.Checkpoints[len(all.Checkpoints)-1].Files = nil // those of a fork are its origin's
	require.NoError(t, s.Close())
	data, err := json.Marshal(all)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "shows.json"), append(data, '\n'), 0o644))
	for _, name := range []string{indexDir, cacheDir, "tmp", lockFile, local.DamagedDir} {
		require.NoError(t, os.RemoveAll(filepath.Join(s.dir, name)))
	}
}
