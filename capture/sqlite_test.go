package capture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/internal/soak"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// sqlite runs statements on a database.
func sqlite(t *testing.T, db, statements string) string {
	t.Helper()
	if _, err := exec.LookPath("sqlite3"); err != nil {
		t.Skip("no sqlite3")
	}
	cmd := exec.CommandContext(t.Context(), "sqlite3", db)
	cmd.Stdin = strings.NewReader(statements)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return strings.TrimSpace(string(out))
}

// writeSQLite has a process write short transactions as fast as it can until the
// test ends. Each of them counts in two tables and changes one of a thousand rows.
func writeSQLite(t *testing.T, db, synchronous string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "sqlite3", db)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := fmt.Fprintf(in, "pragma busy_timeout=10000; pragma synchronous=%s;\n", synchronous)
		for err == nil {
			_, err = in.Write([]byte("begin; update a set n = n + 1; update t set b = randomblob(300) where rowid = abs(random()) % 1000; update c set n = n + 1; commit;\n"))
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		in.Close()
		wg.Wait()
		require.NotContains(t, out.String(), "locked", "the writer met our lock")
		require.NotContains(t, strings.ToLower(out.String()), "error")
	})
}

// TestLiveSQLite: of a database that is written without a pause, what was saved is
// whole and of one moment, or the capture says that it could not.
func TestLiveSQLite(t *testing.T) {
	rounds := soak.Rounds(2, 50)
	for _, mode := range []struct {
		journal, synchronous string
		sure                 bool // it can always be saved
	}{
		{"wal", "normal", true},
		{"wal", "off", true},
		{"delete", "full", false},
		{"truncate", "normal", false},
		{"persist", "full", false},
	} {
		t.Run(mode.journal+" "+mode.synchronous, func(t *testing.T) {
			ws := t.TempDir()
			db := filepath.Join(ws, "dir", "app.db")
			require.NoError(t, os.Mkdir(filepath.Dir(db), 0o755))
			sqlite(t, db, "pragma journal_mode="+mode.journal+"; create table a(n int); insert into a values (0); create table t(b); create table c(n int); insert into c values (0); "+
				"with recursive r(x) as (select 1 union all select x + 1 from r where x < 1000) insert into t select randomblob(300) from r")
			writeSQLite(t, db, mode.synchronous)
			saved, rounds := 0, rounds
			if !mode.sure {
				rounds = soak.Rounds(2, 10)
			}
			for i := range rounds {
				m := newMemory()
				got, err := Tree(t.Context(), ws, m, Options{Files: rules(t)})
				if err != nil && !mode.sure {
					for path, why := range problems(t, err) {
						require.Contains(t, path, "dir/app.db")
						require.Contains(t, why, errBusy.Error())
					}
					continue
				}
				require.NoError(t, err)
				saved++
				all := m.entries(t, got)
				require.NotContains(t, all, "dir/app.db-shm")
				out := filepath.Join(t.TempDir(), fmt.Sprint(i))
				require.NoError(t, os.Mkdir(out, 0o755))
				for path, e := range all {
					require.Zero(t, e.Flags)
					if e.Kind == tree.File {
						require.NoError(t, os.WriteFile(filepath.Join(out, filepath.Base(path)), []byte(m.content(t, e)), 0o644))
					}
				}
				require.Equal(t, "ok\n0", sqlite(t, filepath.Join(out, "app.db"), "pragma integrity_check; select a.n - c.n from a, c"))
			}
			if mode.sure {
				require.Equal(t, rounds, saved)
			}
			t.Logf("%d of %d saved", saved, rounds)
		})
	}
}

// header makes a file that counts as a database.
func header(rest string) string { return "SQLite format 3\x00" + rest }

// TestDatabaseFiles: which files are tied to a database.
func TestDatabaseFiles(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{
		"app.db": header("x"), "app.db-wal": strings.Repeat("w", 100), "app.db-shm": "memory", "app.db-journal": "j", "app.db-backup": "b",
		"text": "no database", "text-wal": "1", "text-shm": "2", "text-journal": "3",
		"alone-wal": "4", "alone-shm": "5",
		"-wal": "6", "dir.db/x": "7", "dir.db-wal": "8",
		"new": "", "new-journal": "9",
		"a-wal": header("9"), "a-wal-wal": "10",
		"large.db": header(strings.Repeat("z", 2<<20)), "large.db-shm": "memory",
	})
	require.NoError(t, os.Link(filepath.Join(ws, "app.db"), filepath.Join(ws, "zz.db")))
	for _, workers := range []int{1, 4} {
		m := newMemory()
		got, err := captureWith(t, ws, m, workers, func(*walker) {})
		require.NoError(t, err)
		all := m.entries(t, got)
		require.Equal(t, []Omission{
			{"app.db-shm", "shared memory of a SQLite database"}, {"large.db-shm", "shared memory of a SQLite database"},
		}, got.Left)
		require.Equal(t, 2, got.Special)
		explainsTree(t, ws, Options{Files: rules(t)}, all)
		require.Equal(t, []string{
			"-wal", "a-wal", "a-wal-wal", "alone-shm", "alone-wal", "app.db", "app.db-backup", "app.db-journal", "app.db-wal",
			"dir.db", "dir.db-wal", "dir.db/x", "large.db", "new", "new-journal", "text", "text-journal", "text-shm", "text-wal", "zz.db",
		}, sortedKeys(all))
		require.Equal(t, strings.Repeat("w", 100), m.content(t, all["app.db-wal"]))
		require.Equal(t, header("x"), m.content(t, all["zz.db"]))
		require.Empty(t, m.links(t, got), "what is read with its log is no other name's")

		// And of what is known, nothing is read.
		again := newMemory()
		again.onPut = func(objs []cas.Object) error {
			for _, o := range objs {
				if o.Key.NS == cas.Files {
					return errors.New("a file was read")
				}
			}
			return nil
		}
		same, err := Tree(t.Context(), ws, again, Options{Files: rules(t), Known: known(t, got)})
		require.NoError(t, err)
		require.Equal(t, got.Root, same.Root)
	}
}

// TestDatabaseAtOneMoment: a database that is changed when a file of it was read, and
// which of the changes matter.
func TestDatabaseAtOneMoment(t *testing.T) {
	wal := strings.Repeat("h", walHeader) + strings.Repeat("f", 200)
	tests := map[string]struct {
		files  map[string]string
		change func(ws string, n int) error
		want   map[string]string // content; nil: busy each time
		grew   int
	}{
		"frames are added to the log": {
			map[string]string{"db": header("1"), "db-wal": wal},
			func(ws string, _ int) error { return appendTo(filepath.Join(ws, "db-wal"), []byte("more")) },
			map[string]string{"db": header("1"), "db-wal": wal}, 1,
		},
		"frames of the last round are written over": {
			map[string]string{"db": header("1"), "db-wal": wal},
			func(ws string, n int) error { return overwrite(ws+"/db-wal", walHeader+100, fmt.Sprint(n)) },
			map[string]string{"db": header("1"), "db-wal": wal[:walHeader+100] + "1" + wal[walHeader+101:]}, 1,
		},
		"the log begins anew": {
			map[string]string{"db": header("1"), "db-wal": wal},
			func(ws string, n int) error { return overwrite(ws+"/db-wal", 8, fmt.Sprint(n)) }, nil, 0,
		},
		"the log is cut": {
			map[string]string{"db": header("1"), "db-wal": wal},
			func(ws string, n int) error { return os.Truncate(filepath.Join(ws, "db-wal"), int64(200-n%50)) }, nil, 0,
		},
		"the database changes": {
			map[string]string{"db": header("1"), "db-wal": wal},
			func(ws string, n int) error { return overwrite(ws+"/db", 16, fmt.Sprint(n)) }, nil, 0,
		},
		"the database changes once": {
			map[string]string{"db": header("1"), "db-wal": wal},
			func(ws string, n int) error {
				if n > 1 {
					return nil
				}
				return overwrite(ws+"/db", 16, "2")
			},
			map[string]string{"db": header("2"), "db-wal": wal}, 0,
		},
		"the journal changes": {
			map[string]string{"db": header("1"), "db-journal": "j"},
			func(ws string, n int) error { return overwrite(ws+"/db-journal", 0, fmt.Sprint(n)) }, nil, 0,
		},
		"the journal vanishes with the change": {
			map[string]string{"db": header("1"), "db-journal": "j"},
			func(ws string, n int) error {
				if n > 1 {
					return nil
				}
				return errors.Join(overwrite(ws+"/db", 16, "2"), os.Remove(filepath.Join(ws, "db-journal")))
			},
			map[string]string{"db": header("2")}, 0,
		},
		"a journal comes and stays": {
			map[string]string{"db": header(strings.Repeat("1", 2<<20))},
			func(ws string, n int) error {
				return errors.Join(overwrite(ws+"/db-journal", 0, fmt.Sprint(n)), overwrite(ws+"/db", 16, fmt.Sprint(n)))
			}, nil, 0,
		},
		"a log comes after the listing, and the database changes": {
			map[string]string{"db": header(strings.Repeat("1", 2<<20)), "e": "after"},
			func(ws string, n int) error {
				if n > 1 {
					return nil
				}
				return errors.Join(overwrite(ws+"/db-wal", 0, wal), overwrite(ws+"/db", 16, "2"))
			},
			map[string]string{"db": header("2" + strings.Repeat("1", 2<<20-1)), "db-wal": wal, "e": "after"}, 0,
		},
		"a log comes after the listing, and the database is as it was": {
			map[string]string{"db": header("1"), "db-shm": "m"},
			func(ws string, n int) error { return overwrite(ws+"/db-wal", 0, wal) },
			map[string]string{"db": header("1")}, 0,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, torn := range []bool{false, true} {
				ws := t.TempDir()
				write(t, ws, test.files)
				settle(t, ws)
				m := newMemory()
				n := 0
				m.onPut = func(objs []cas.Object) error {
					if objs[0].Key.NS == cas.Files {
						n++
						return test.change(ws, n)
					}
					return nil
				}
				got, err := Tree(t.Context(), ws, m, Options{Files: rules(t), AllowTorn: torn})
				if test.want == nil && !torn {
					found := problems(t, err)
					require.Contains(t, found, "db")
					for _, why := range found {
						require.Equal(t, errBusy.Error(), why)
					}
					continue
				}
				require.NoError(t, err)
				all := m.entries(t, got)
				if test.want == nil {
					require.Positive(t, got.Torn)
					require.Equal(t, tree.Torn, all["db"].Flags)
					continue
				}
				require.Equal(t, test.grew, got.Grew)
				content := map[string]string{}
				for path, e := range all {
					require.Zero(t, e.Flags)
					content[path] = m.content(t, e)
				}
				require.Equal(t, test.want, content)
			}
		})
	}
}

// TestLinkedDatabase: what was read of a database under another name is of another
// moment than its log.
func TestLinkedDatabase(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{"a/name.db": header("1"), "db/app.db-wal": strings.Repeat("1", 100), "db/app.db-shm": "m"})
	require.NoError(t, os.Link(ws+"/a/name.db", ws+"/db/app.db"))
	settle(t, ws)
	m := newMemory()
	got, err := captureInOrder(t, ws, m, after("db/", func() {
		require.NoError(t, overwrite(ws+"/db/app.db", 0, header("2")))
		require.NoError(t, overwrite(ws+"/db/app.db-wal", 0, strings.Repeat("2", 100)))
	}))
	require.NoError(t, err)
	all := m.entries(t, got)
	require.Equal(t, header("1"), m.content(t, all["a/name.db"]))
	require.Equal(t, header("2"), m.content(t, all["db/app.db"]))
	require.Equal(t, strings.Repeat("2", 100), m.content(t, all["db/app.db-wal"]))
	again(t, ws, got)
}

// TestExcludedLog: who does not want a log saved gets the database without it, also
// when it is in use.
func TestExcludedLog(t *testing.T) {
	ws := t.TempDir()
	db := filepath.Join(ws, "app.db")
	sqlite(t, db, "pragma journal_mode=wal; create table a(n int); insert into a values (0); create table c(n int); insert into c values (0); create table t(b)")
	writeSQLite(t, db, "off")
	for range 3 {
		m := newMemory()
		got, err := Tree(t.Context(), ws, m, Options{Files: rules(t, "*-wal", "*-shm")})
		require.NoError(t, err)
		require.Equal(t, []string{"app.db"}, sortedKeys(m.entries(t, got)))
	}
}

// settle waits until files that were just made are old enough for any clock.
func settle(t *testing.T, dir string) {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Stat(dir, &st))
	w := &worker{walker: &walker{ctx: t.Context()}}
	w.pause(&directory{fd: &dirFD{}}, &st)
}

// TestDatabaseThatCannotBeRead: a database without its log is worth nothing, so none
// of it is saved.
func TestDatabaseThatCannotBeRead(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{"db": header("1"), "db-wal": strings.Repeat("w", 100), "other": "1"})
	m := newMemory()
	_, err := Tree(t.Context(), ws, m, Options{Files: rules(t), Settings: policy.Settings{MaxFileSize: 50}})
	require.ErrorIs(t, err, cas.ErrTooLarge)
	require.Len(t, problems(t, err), 2)

	require.NoError(t, os.Remove(filepath.Join(ws, "db-wal")))
	require.NoError(t, unix.Mkfifo(filepath.Join(ws, "db-wal"), 0o644))
	got, err := captureAll(t, ws, m)
	require.NoError(t, err, "a FIFO is no log")
	require.Equal(t, []string{"db", "other"}, sortedKeys(m.entries(t, got)))
}

// TestDatabaseAtTheEnd: the files of a database settle together, after which nothing
// of their directory may be left to look at.
func TestDatabaseAtTheEnd(t *testing.T) {
	ws := t.TempDir()
	files := map[string]string{"zz": header("1"), "zz-journal": "", "zz-wal": strings.Repeat("w", 100)}
	for i := range 3*stretch - len(files) - 1 {
		files[fmt.Sprintf("%03d", i)] = "1"
	}
	// Each time one more of its files is beyond the end of a stretch.
	for i := range 4 {
		files[fmt.Sprintf("more%d", i)] = "1"
		write(t, ws, files)
		settle(t, ws)
		m := newMemory()
		first, err := captureAll(t, ws, m)
		require.NoError(t, err)
		got, err := captureWith(t, ws, m, 1, func(w *walker) { w.known = known(t, first) })
		require.NoError(t, err)
		require.Equal(t, first.Root, got.Root)
		require.Zero(t, got.Read)
		require.Len(t, m.entries(t, got), len(files))
	}
}
