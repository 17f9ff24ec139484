package restore

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/internal/soak"
	"github.com/snapfs/snapfs/tree"
)

// allStats is what lies in a directory, down to the times at which anything about it
// changed last.
func allStats(t *testing.T, dir string) map[string]unix.Stat_t {
	t.Helper()
	all := map[string]unix.Stat_t{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st := stat(t, path)
		st.Atim = unix.Timespec{} // who looks changes it
		all[path] = st
		return nil
	}))
	return all
}

// requireSame fails with the paths that differ.
func requireSame(t *testing.T, before, after map[string]unix.Stat_t) {
	t.Helper()
	for path, st := range before {
		require.Equal(t, st, after[path], path)
	}
	require.Len(t, after, len(before))
}

// exchange keeps exchanging what lies at one of the paths, if anything does, for a
// symlink that leads outside, and back, until done is called.
func exchange(paths func() []string, links, outside string) (done func() (times int)) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	times := 0
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			all := paths()
			if len(all) == 0 {
				continue
			}
			path := all[rand.IntN(len(all))]
			link := filepath.Join(links, fmt.Sprint(i))
			to := outside
			if rand.IntN(4) == 0 {
				to = filepath.Join(outside, "f")
			}
			// The links that are there already do not lead this test out either.
			in, err := unix.Openat2(unix.AT_FDCWD, filepath.Dir(path), &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
			if err != nil {
				continue
			}
			swap := func() error {
				return unix.Renameat2(in, filepath.Base(path), unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}
			if os.Symlink(to, link) != nil || swap() != nil {
				_ = os.Remove(link)
			} else {
				times++
				time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
				if rand.IntN(8) > 0 { // else it stays
					_ = swap()
				}
			}
			_ = unix.Close(in)
		}
	})
	return func() int { close(stop); wg.Wait(); return times }
}

// raceTime is how long a test tries what is won by chance.
func raceTime() time.Duration {
	if soak.Large() {
		return time.Minute
	}
	return 1500 * time.Millisecond
}

// tempting is a tree with hard links and attributes, and some of its paths.
func tempting(t *testing.T, m *memory, content string) (src Source, below []string) {
	t.Helper()
	acl := m.xattrs(t, tree.XAttr{Name: tree.ACLDefault, Value: acl(2, 7, 5, 7)}, tree.XAttr{Name: "user.a", Value: []byte("b")})
	var down func(depth int) dir
	down = func(depth int) dir {
		d := dir{"f": content, "l": symlink("f"), "x": m.file(t, 0o755, "#!")}
		if depth > 0 {
			for _, name := range []string{"a", "b", "c"} {
				e := m.sub(t, 0o755, down(depth-1))
				e.XAttrs = acl
				d[name] = e
			}
		}
		return d
	}
	src = m.source(t, down(3))
	src.Links = m.links(t, []string{"a/a/f", "b/f", "c/c/c/f"}, []string{"a/x", "b/b/b/x"})
	for _, first := range []string{"a", "b", "c"} {
		below = append(below, first, first+"/f", first+"/a", first+"/b/c", first+"/c/b", first+"/b/b/b", first+"/c/x")
	}
	return src, below
}

// amongSwaps tries restores into a target, for as long as such tests take, while somebody
// exchanges some of the paths for symlinks that lead out. What they lead to stays as it is,
// whether a restore ends or fails.
func amongSwaps(t *testing.T, m *memory, src Source, try func(n int, target string) (paths func() []string, run func() error)) {
	t.Helper()
	top := scratch(t)
	outside, links, here := filepath.Join(top, "outside"), filepath.Join(top, "links"), filepath.Join(top, "here")
	_, err := m.restore(t, Source{Root: src.Root, Stat: src.Stat}, outside)
	require.NoError(t, err)
	before := allStats(t, outside)
	ended, failed, swaps := 0, 0, 0
	for began := time.Now(); time.Since(began) < raceTime() || swaps == 0; {
		require.NoError(t, os.Mkdir(links, 0o755))
		require.NoError(t, os.Mkdir(here, 0o755))
		paths, run := try(ended+failed, filepath.Join(here, "target"))
		done := exchange(paths, links, outside)
		err := run()
		swaps += done()
		if err != nil {
			failed++
		} else {
			ended++
		}
		requireSame(t, before, allStats(t, outside))
		require.NoError(t, os.RemoveAll(here))
		require.NoError(t, os.RemoveAll(links))
	}
	t.Logf("%d restores ended, %d failed, %d swaps", ended, failed, swaps)
}

// under joins each of some paths to a directory.
func under(dir string, paths ...string) (all []string) {
	for _, p := range paths {
		all = append(all, filepath.Join(dir, p))
	}
	return all
}

// TestSwappedDirectories: while restores go on, and end or fail and take back what they
// made, directories and files of the target are exchanged for symlinks that lead out, all
// the time, to where there are the names that are restored.
func TestSwappedDirectories(t *testing.T) {
	m := newMemory()
	src, below := tempting(t, m, "content of a file")
	for _, existing := range []bool{false, true} {
		t.Run(fmt.Sprintf("existing %v", existing), func(t *testing.T) {
			amongSwaps(t, m, src, func(_ int, target string) (func() []string, func() error) {
				if existing {
					require.NoError(t, os.Mkdir(target, 0o755))
				}
				return func() []string {
						all := under(target, below...)
						if stages, err := filepath.Glob(filepath.Dir(target) + "/.snapfs-restore-*"); err == nil && !existing {
							for _, s := range stages {
								all = append(append(all, s, filepath.Join(s, stageTree)), under(filepath.Join(s, stageTree), below...)...)
							}
						}
						return all
					}, func() error {
						_, err := m.restore(t, src, target)
						return err
					}
			})
		})
	}
}

// TestSwappedLive: the same while mirrors into a live directory compare, replace and
// delete.
func TestSwappedLive(t *testing.T) {
	m := newMemory()
	src, below := tempting(t, m, "content of a file")
	old, _ := tempting(t, m, "what was there")
	extra := m.source(t, dir{"a": dir{"b": dir{"f": "not", "gone": dir{"x": "y"}}}, "b": "a file", "c": dir{"b": "another", "c": m.sub(t, 0o700, dir{})}, "more": dir{"a": dir{"f": "1"}}})
	r := tree.NewReader(m, 1<<20)
	amongSwaps(t, m, src, func(n int, target string) (func() []string, func() error) {
		_, err := m.restore(t, []Source{old, extra}[n%2], target)
		require.NoError(t, err)
		return func() []string {
				all := under(target, append(below, "more", "more/a", "a/b/gone")...)
				asides, _ := filepath.Glob(target + "/.snapfs-restore-*")
				for _, a := range asides {
					all = append(all, under(a, "", stageTree, trashName, stageTree+"/a/b")...)
				}
				return all
			}, func() error {
				_, err := Tree(t.Context(), m, r, src, target, Options{Mode: Mirror, Force: true})
				return err
			}
	})
}

// TestResumeAmongSwaps: a restore that goes on where one was killed, with symlinks where
// directories and files of that one were, writes nothing behind them either.
func TestResumeAmongSwaps(t *testing.T) {
	m := newMemory()
	src := m.source(t, dir{"a": dir{"f": "1", "b": dir{"f": "2"}}, "c": dir{"f": strings.Repeat("3", 100)}})
	for _, victim := range []string{"a", "a/b", "a/f", "a/b/f", "c", "c/f"} {
		t.Run(victim, func(t *testing.T) {
			top := t.TempDir()
			outside, target := filepath.Join(top, "outside"), filepath.Join(top, "target")
			_, err := m.restore(t, src, outside)
			require.NoError(t, err)
			before := allStats(t, outside)
			_, err = m.restore(t, src, target)
			require.NoError(t, err)
			data := fmt.Sprintf(`{"version":1,"restore":%q}`, newMarker(src, Options{Files: only(t, nil)}).Restore)
			require.NoError(t, os.WriteFile(filepath.Join(target, capture.Marker), []byte(data), 0o600))
			require.NoError(t, os.RemoveAll(filepath.Join(target, victim)))
			require.NoError(t, os.Symlink(filepath.Join(outside, victim), filepath.Join(target, victim)))
			_, err = m.restore(t, src, target)
			require.ErrorIs(t, err, ErrNotEmpty)
			requireSame(t, before, allStats(t, outside))
		})
	}
}
