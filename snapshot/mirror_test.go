package snapshot

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/restore"
)

// mirrored saves a workspace, fills it with more, and mirrors the checkpoint into it. It
// returns what became of each entry.
func mirrored(t *testing.T, opt SaveOptions, files, more map[string]string) map[string]string {
	t.Helper()
	s := newStore(t)
	ws := t.TempDir()
	write(t, ws, files)
	opt.Workspace, opt.Thread = ws, "t"
	res, err := s.Save(t.Context(), opt)
	require.NoError(t, err)
	write(t, ws, more)
	done := map[string]string{}
	_, err = s.Restore(t.Context(), res.Checkpoint.ID, RestoreOptions{
		Dir: ws, Mode: restore.Mirror, Force: true,
		Plan: func(all []restore.Change) {
			for _, c := range all {
				done[c.Path] = strings.TrimSuffix(string(c.Op)+": "+c.Why, ": ")
			}
		},
	})
	require.NoError(t, err)
	for path, what := range done {
		_, err := os.Lstat(filepath.Join(ws, path))
		require.Equal(t, strings.HasPrefix(what, "delete"), os.IsNotExist(err), "%s: %s", path, what)
	}
	delete(done, ".")
	return done
}

func exclude(patterns ...string) (rules []policy.Rule) {
	for _, p := range patterns {
		rules = append(rules, policy.Rule{Pattern: p, Source: "--exclude"})
	}
	return rules
}

// TestMirrorDeletesWhatItKnowsOf: a checkpoint speaks about what its policy let in, with
// the ignore files of then, and about nothing that could not be saved.
func TestMirrorDeletesWhatItKnowsOf(t *testing.T) {
	const gone = "delete"
	for name, tt := range map[string]struct {
		opt         SaveOptions
		files, more map[string]string
		want        map[string]string // of more, and what is kept of files
	}{
		"defaults": {
			SaveOptions{}, map[string]string{"f": "x"},
			map[string]string{".env": "S=1", "node_modules/a/b": "x", "src/node_modules/c": "x", "src/d": "x", ".git/HEAD": "x"},
			map[string]string{
				"f": "keep", ".env": "keep: not saved: excluded by .env (default)", "node_modules": "keep: not saved: excluded by node_modules/ (default)",
				"src": "keep: it holds what is kept", "src/node_modules": "keep: not saved: excluded by node_modules/ (default)", "src/d": gone,
				".git": "keep: not saved: excluded by .git (default)",
			},
		},
		"none excluded": {
			SaveOptions{Files: policy.FilesOptions{NoDefaults: true}}, map[string]string{"f": "x"},
			map[string]string{".env": "S=1", "node_modules/b": "x"},
			map[string]string{"f": "keep", ".env": gone, "node_modules": gone, "node_modules/b": gone},
		},
		"restricted": {
			SaveOptions{Files: policy.FilesOptions{Include: []policy.Rule{{Pattern: "/src/*.go", Source: "--include"}}}},
			map[string]string{"src/a.go": "x", "src/notes": "x", "top": "x"},
			map[string]string{"src/b.go": "x", "src/c.txt": "x", "new": "x"},
			map[string]string{
				"src": "keep", "src/a.go": "keep", "src/b.go": gone, "src/c.txt": "keep: not saved: not included",
				"src/notes": "keep: not saved: not included", "new": "keep: not saved: not included", "top": "keep: not saved: not included",
			},
		},
		"ignore files": {
			SaveOptions{Settings: policy.Settings{GitIgnore: true}},
			map[string]string{".snapfsignore": "*.log\n", "a/.gitignore": "/out\n!x.log\n", "a/f": "x"},
			map[string]string{"x.log": "1", "a/x.log": "1", "a/out/o": "1", "a/b/out": "1", "b/y.log": "1", "b/z": "1"},
			map[string]string{
				".snapfsignore": "keep", "a": "keep", "a/.gitignore": "keep", "a/f": "keep",
				"x.log": "keep: not saved: excluded by *.log (.snapfsignore:1)", "a/x.log": "keep: not saved: excluded by *.log (.snapfsignore:1)",
				"a/out": "keep: not saved: excluded by /out (a/.gitignore:1)", "a/b": gone, "a/b/out": gone,
				"b": "keep: it holds what is kept", "b/y.log": "keep: not saved: excluded by *.log (.snapfsignore:1)", "b/z": gone,
			},
		},
		"git's ignore files when nobody asked": {
			SaveOptions{}, map[string]string{".gitignore": "out\n"}, map[string]string{"out": "1"},
			map[string]string{".gitignore": "keep", "out": gone},
		},
		"the ignore file was left out itself": {
			SaveOptions{Files: policy.FilesOptions{Exclude: exclude(".snapfsignore")}},
			map[string]string{"a/.snapfsignore": "*.log\n", "a/f": "x"},
			map[string]string{"a/x.log": "1", "a/y": "1", "z": "1"},
			map[string]string{
				"a": "keep", "a/f": "keep", "z": gone, "a/.snapfsignore": "keep: not saved: what ignore files said about it is not known",
				"a/x.log": "keep: not saved: what ignore files said about it is not known", "a/y": "keep: not saved: what ignore files said about it is not known",
			},
		},
		"a cache": {
			SaveOptions{Settings: policy.Settings{ExcludeCaches: true}},
			map[string]string{"c/CACHEDIR.TAG": "Signature: 8a477f597d28d172789f06886806bc55", "c/old": "x", "f": "x"},
			map[string]string{"c/new": "x", "d/CACHEDIR.TAG": "Signature: 8a477f597d28d172789f06886806bc55", "d/e": "x", "g": "x"},
			map[string]string{
				"c": "keep", "c/CACHEDIR.TAG": "keep", "f": "keep", "g": gone, "c/old": "keep: not saved: it is in a cache directory", "c/new": "keep: not saved: it is in a cache directory",
				"d": "keep: it holds what is kept", "d/e": "keep: not saved: it is in a cache directory", "d/CACHEDIR.TAG": "keep: not saved: it is in a cache directory",
			},
		},
		"over the limit": {
			SaveOptions{Settings: policy.Settings{MaxFileSize: 3, SkipOver: true}},
			map[string]string{"long": "xxxx", "f": "x"}, map[string]string{"long2": "xxxx"},
			map[string]string{"f": "keep", "long2": "keep: not saved: it is longer than the limit", "long": "keep: not saved: "},
		},
		"another unfinished restore": {
			SaveOptions{}, map[string]string{"f": "x"}, map[string]string{"sub/.snapfs-restoring": "", "sub/x": "1", "y": "1"},
			map[string]string{
				"f": "keep", "y": gone, "sub": "keep: it holds what is kept", "sub/x": "keep: not saved: an unfinished restore is in it",
				"sub/.snapfs-restoring": "keep: not saved: an unfinished restore is in it",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := mirrored(t, tt.opt, tt.files, tt.more)
			for path, want := range tt.want {
				if strings.HasSuffix(want, ": ") {
					require.Contains(t, got[path], want, path)
				} else if want == "keep" {
					require.Contains(t, []string{"keep", "replace: its time"}, got[path], path)
				} else {
					require.Equal(t, want, got[path], path)
				}
				delete(got, path)
			}
			require.Empty(t, got)
		})
	}
}

// TestMirrorAroundTheStore: neither the store nor what is mounted is ever deleted.
func TestMirrorAroundTheStore(t *testing.T) {
	s := newStore(t)
	ws := t.TempDir()
	write(t, ws, map[string]string{"f": "x"})
	cp := save(t, s, ws, "t")
	around := filepath.Dir(s.dir)
	write(t, around, map[string]string{"old": "x"})
	opt := RestoreOptions{Dir: around, Mode: restore.Mirror}
	_, err := s.Restore(t.Context(), cp.ID, opt)
	require.ErrorIs(t, err, ErrRefused)
	require.FileExists(t, filepath.Join(around, "old"))
	opt.Force = true
	_, err = s.Restore(t.Context(), cp.ID, opt)
	require.NoError(t, err)
	require.NoFileExists(t, filepath.Join(around, "old"))
	require.DirExists(t, s.dir)

	needRoot(t)
	write(t, ws, map[string]string{"v/below": "x", "old/1": "x", "w": "x"})
	for _, dir := range []string{"v", "old"} {
		at := filepath.Join(ws, dir)
		require.NoError(t, unix.Mount("none", at, "tmpfs", 0, "size=64k"))
		t.Cleanup(func() { require.NoError(t, unix.Unmount(at, unix.MNT_DETACH)) })
	}
	write(t, ws, map[string]string{"v/mine": "x", "old/mine": "x"})
	opt.Dir = ws
	_, err = s.Restore(t.Context(), cp.ID, opt)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(ws, "v/mine"))
	require.FileExists(t, filepath.Join(ws, "old/mine"))
	require.NoFileExists(t, filepath.Join(ws, "w"))

	// A checkpoint that has something there, or another kind of entry, does not get in.
	other := t.TempDir()
	write(t, other, map[string]string{"v/x": "1", "f": "x"})
	for _, mode := range []restore.Mode{restore.Overlay, restore.Mirror} {
		opt.Mode = mode
		_, err = s.Restore(t.Context(), save(t, s, other, "o").ID, opt)
		require.ErrorIs(t, err, restore.ErrInTheWay)
		require.ErrorContains(t, err, "another file system")
	}
	require.NoError(t, os.RemoveAll(filepath.Join(other, "v")))
	write(t, other, map[string]string{"v": "a file"})
	_, err = s.Restore(t.Context(), save(t, s, other, "o").ID, opt)
	require.ErrorIs(t, err, restore.ErrInTheWay)
	require.FileExists(t, filepath.Join(ws, "v/mine"))
}

// TestOverlayOfDatabase: the log that a database had does not ruin the one that comes in
// its place.
func TestOverlayOfDatabase(t *testing.T) {
	sqlite, err := exec.LookPath("sqlite3")
	if err != nil {
		t.Skip("no sqlite3")
	}
	s, ws, live := newStore(t), t.TempDir(), t.TempDir()
	sql := func(db, text string) string {
		t.Helper()
		out, err := exec.Command(sqlite, db, text).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	sql(filepath.Join(ws, "db"), "CREATE TABLE a(x); INSERT INTO a SELECT value FROM generate_series(1,2000);")
	cp := save(t, s, ws, "t")
	at := filepath.Join(live, "db")
	sql(at, "PRAGMA journal_mode=wal; CREATE TABLE b(y); INSERT INTO b SELECT zeroblob(500) FROM generate_series(1,3000);")
	// A program that is killed leaves its log.
	killed := func(text string) {
		t.Helper()
		cmd := exec.Command(sqlite, at)
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		_, err = in.Write([]byte("PRAGMA wal_autocheckpoint=0;\n" + text + "\nSELECT 'done';\n"))
		require.NoError(t, err)
		buf := make([]byte, 64)
		for said := ""; !strings.Contains(said, "done"); {
			n, err := out.Read(buf)
			require.NoError(t, err)
			said += string(buf[:n])
		}
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}
	killed("INSERT INTO b SELECT zeroblob(900) FROM generate_series(1,200);")
	require.FileExists(t, at+"-wal")
	write(t, live, map[string]string{"other-wal": "mine", "text": "x", "text-journal": "mine"})

	res, err := s.Restore(t.Context(), cp.ID, RestoreOptions{Dir: live, Mode: restore.Overlay})
	require.NoError(t, err)
	require.Equal(t, int64(1), res.Deleted)
	require.NoFileExists(t, at+"-wal")
	require.FileExists(t, filepath.Join(live, "other-wal"))
	require.FileExists(t, filepath.Join(live, "text-journal"))
	require.Equal(t, "ok\n2000\n", sql(at, "PRAGMA integrity_check; SELECT count(*) FROM a;"))

	// Beside a database that is the checkpoint's already, too: what is in the log is not.
	sql(at, "PRAGMA journal_mode=wal;")
	cp = save(t, s, live, "wal")
	killed("INSERT INTO a VALUES (7);")
	require.Equal(t, "2001\n", sql("file:"+at+"?mode=ro", "SELECT count(*) FROM a;"))
	res, err = s.Restore(t.Context(), cp.ID, RestoreOptions{Dir: live, Mode: restore.Overlay, Force: true})
	require.NoError(t, err)
	require.Equal(t, int64(1), res.Deleted)
	require.Equal(t, "ok\n2000\n", sql(at, "PRAGMA integrity_check; SELECT count(*) FROM a;"))
}

// TestBesideIsFoundAgain: what a killed restore left of artifacts and conversation goes
// with the next one, and nobody else's is touched.
func TestBesideIsFoundAgain(t *testing.T) {
	s, ws, top := newStore(t), t.TempDir(), t.TempDir()
	write(t, ws, map[string]string{"f": "x"})
	res, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t", Conversation: strings.NewReader("[]")})
	require.NoError(t, err)
	opt := RestoreOptions{Dir: filepath.Join(top, "dir"), Artifacts: filepath.Join(top, "artifacts"), Conversation: filepath.Join(top, "talk")}
	// It is killed where it would begin with the files.
	kept := opt
	kept.Plan = func([]restore.Change) {
		names, err := filepath.Glob(filepath.Join(top, besidePrefix+"*"))
		require.NoError(t, err)
		require.Len(t, names, 2)
		for _, n := range names {
			require.NoError(t, exec.Command("cp", "-a", n, n+".left").Run())
		}
		_, err = s.Restore(t.Context(), res.Checkpoint.ID, RestoreOptions{Dir: filepath.Join(top, "other"), Artifacts: opt.Artifacts})
		require.ErrorIs(t, err, restore.ErrUnfinished)
	}
	_, err = s.Restore(t.Context(), res.Checkpoint.ID, kept)
	require.NoError(t, err)
	for _, dir := range []string{"dir", "artifacts"} {
		require.NoError(t, os.RemoveAll(filepath.Join(top, dir)))
	}
	require.NoError(t, os.Remove(opt.Conversation))
	left, err := filepath.Glob(filepath.Join(top, besidePrefix+"*"))
	require.NoError(t, err)
	require.Len(t, left, 2)
	for _, n := range left {
		require.NoError(t, os.Rename(n, strings.TrimSuffix(n, ".left")))
	}
	_, err = s.Restore(t.Context(), res.Checkpoint.ID, opt)
	require.NoError(t, err)
	entries, err := os.ReadDir(top)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.Equal(t, []string{"artifacts", "dir", "talk"}, names)
}
