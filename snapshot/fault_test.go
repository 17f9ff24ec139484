package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/disk"
	"github.com/snapfs/snapfs/internal/disk/disktest"
	"github.com/snapfs/snapfs/internal/soak"
	"github.com/snapfs/snapfs/policy"
)

// published is what a test compares of a checkpoint: content follows from the tree,
// whose objects a verify has hashed.
type published struct{ Thread, Tree, Name, Artifacts string }

// stateOf is what a store shows of itself: its checkpoints by id, and its threads with
// their heads and artifacts.
func stateOf(t *testing.T, s *Store) map[string]published {
	t.Helper()
	ctx := t.Context()
	all := map[string]published{}
	threads, err := s.Threads(ctx, Page{})
	require.NoError(t, err)
	for _, th := range threads {
		artifacts, err := s.holder.Artifacts(ctx, th.ID)
		require.NoError(t, err)
		all["thread "+th.ID] = published{Thread: th.Head, Artifacts: names(artifacts)}
		if l, err := s.Writer(ctx, th.ID); !errors.Is(err, index.ErrNoWriter) {
			require.NoError(t, err)
			all["lease of "+th.ID] = published{Name: l.Owner}
		}
		cps, err := s.Checkpoints(ctx, th.ID, Page{})
		require.NoError(t, err)
		for _, cp := range cps {
			require.Equal(t, "ready", cp.Status, cp.ID)
			held, err := s.Artifacts(ctx, cp.ID)
			require.NoError(t, err)
			all[cp.ID] = published{Thread: th.ID, Tree: cp.Tree, Name: cp.Name, Artifacts: names(held)}
		}
	}
	return all
}

func names(artifacts []Artifact) string {
	var all []string
	for _, a := range artifacts {
		all = append(all, a.Name)
	}
	return strings.Join(all, ",")
}

// faultFixture is a store with some of everything, and workspaces to save.
type faultFixture struct {
	store   string
	next    string // changed since it was saved into thread a
	other   string // never saved
	small   string // an artifact
	fresh   string // no store yet
	another *Store // in memory, with what can be received
	restore string // a checkpoint that is there whatever is done, and what it looks like
	look    map[string]node
}

func newFaultFixture(t *testing.T) *faultFixture {
	t.Helper()
	top := t.TempDir()
	f := &faultFixture{another: OpenMemory(), store: top + "/store", next: top + "/next", other: top + "/other", small: top + "/small.txt", fresh: top + "/fresh"}
	require.NoError(t, os.WriteFile(f.small, []byte("an artifact"), 0o644))
	s, err := Open(t.Context(), f.store, Options{Create: true})
	require.NoError(t, err)
	put := func(ws, thread, id string) Checkpoint {
		t.Helper()
		res, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: thread, ID: id, Files: policy.FilesOptions{NoDefaults: true}})
		require.NoError(t, err)
		return res.Checkpoint
	}
	write(t, f.next, map[string]string{"a/one": "1", "a/two": "2", "b/three": "three", "empty/": "", "same": "an artifact"})
	noiseFile(t, f.other+"/received", 5, 200_000)
	_, err = f.another.Save(t.Context(), SaveOptions{Workspace: f.other, Thread: "received", ID: "r-first", Artifacts: []ArtifactFile{{Name: "received.txt", Path: f.small}}})
	require.NoError(t, err)
	noiseFile(t, f.next+"/large", 1, cas.ChunkedSize+300_000)
	noiseFile(t, f.next+"/worn/1", 2, 30_000)
	noiseFile(t, f.next+"/worn/2", 3, 90_000)
	put(f.next, "a", "a-first")
	require.NoError(t, os.Remove(f.next+"/worn/2"))
	put(f.next, "a", "a-second")
	noiseFile(t, f.other+"/garbage", 4, 200_000)
	write(t, f.other, map[string]string{"a/one": "1"})
	put(f.other, "gone", "gone-first")
	_, err = s.Fork(t.Context(), "a-first", ForkOptions{Thread: "b", ID: "b-first"})
	require.NoError(t, err)
	write(t, f.next, map[string]string{"a/two": "two"})
	put(f.next, "b", "b-second")
	_, _, err = s.AddArtifact(t.Context(), "b", ArtifactFile{Name: "old.txt", Path: f.small}, policy.SecretsWarn, SecretsOptions{})
	require.NoError(t, err)
	_, err = s.holder.AcquireLease(t.Context(), leaseOf("b"))
	require.NoError(t, err)
	f.restore, f.look = "a-second", look(t, restored(t, s, "a-second"))
	// What only these had is garbage now.
	require.NoError(t, s.DeleteThread(t.Context(), "gone"))
	_, err = s.Delete(t.Context(), "b-first")
	require.NoError(t, err)
	_, err = s.Delete(t.Context(), "a-first")
	require.NoError(t, err)
	require.NoError(t, s.Close())
	write(t, f.next, map[string]string{"a/one": "one", "c/new": "new"})
	return f
}

// leaseOf asks for the lease of a thread, whose token is known.
func leaseOf(thread string) LeaseRequest {
	return LeaseRequest{Thread: thread, Token: "the-very-token-of-" + thread, Owner: "owner of " + thread, TTL: index.MaxLease}
}

// faultCase is one thing that is done to a store while something goes wrong.
type faultCase struct {
	do   func(ctx context.Context, f *faultFixture, s *Store) error
	once bool // it cannot be done twice
}

func faultCases() map[string]faultCase {
	everything := policy.FilesOptions{NoDefaults: true}
	return map[string]faultCase{
		"save": {func(ctx context.Context, f *faultFixture, s *Store) error {
			_, err := s.Save(ctx, SaveOptions{Workspace: f.next, Thread: "a", ID: "new", Name: "named", Files: everything, Artifacts: []ArtifactFile{{Name: "new.txt", Path: f.small}}})
			return err
		}, true},
		"save, new thread": {func(ctx context.Context, f *faultFixture, s *Store) error {
			_, err := s.Save(ctx, SaveOptions{Workspace: f.other, Thread: "c", ID: "new", Files: everything})
			return err
		}, true},
		"fork": {func(ctx context.Context, _ *faultFixture, s *Store) error {
			_, err := s.Fork(ctx, "a-second", ForkOptions{Thread: "c", ID: "new"})
			return err
		}, true},
		"receive": {func(ctx context.Context, f *faultFixture, s *Store) error {
			_, err := Transfer(ctx, f.another, s, TransferOptions{})
			return err
		}, false},
		"rename": {func(ctx context.Context, _ *faultFixture, s *Store) error {
			_, err := s.Rename(ctx, "a-second", "named")
			return err
		}, false},
		"delete": {func(ctx context.Context, _ *faultFixture, s *Store) error {
			_, err := s.Delete(ctx, "b-second")
			return err
		}, true},
		"delete thread": {func(ctx context.Context, _ *faultFixture, s *Store) error {
			return s.DeleteThread(ctx, "b")
		}, true},
		"artifact": {func(ctx context.Context, f *faultFixture, s *Store) error {
			_, _, err := s.AddArtifact(ctx, "a", ArtifactFile{Name: "new.txt", Path: f.small}, policy.SecretsWarn, SecretsOptions{})
			return err
		}, true},
		"acquire lease": {func(ctx context.Context, _ *faultFixture, s *Store) error {
			_, err := s.holder.AcquireLease(ctx, leaseOf("a"))
			return err
		}, false},
		"release lease": {func(ctx context.Context, _ *faultFixture, s *Store) error {
			return s.ReleaseWriter(ctx, "b", leaseOf("b").Token)
		}, true},
		"gc": {func(ctx context.Context, _ *faultFixture, s *Store) error {
			_, err := s.GC(ctx, GCRequest{})
			return err
		}, false},
		"gc, purge": {func(ctx context.Context, _ *faultFixture, s *Store) error {
			_, err := s.GC(ctx, GCRequest{Purge: true})
			return err
		}, false},
	}
}

// A mishap is a way in which an operation of the disk goes wrong.
type mishap struct {
	name  string
	fault disktest.Fault
	left  disktest.Left // where the power is lost
}

var mishaps = []mishap{
	{"power lost, least left", disktest.Fault{Power: true}, disktest.Least},
	{"I/O error", disktest.Fault{Err: unix.EIO}, 0},
	{"power lost, some left", disktest.Fault{Power: true}, disktest.Some},
	{"disk full from then on", disktest.Fault{Err: unix.ENOSPC, Lasts: true}, 0},
	{"power lost, most left", disktest.Fault{Power: true}, disktest.Most},
	{"disk full once", disktest.Fault{Err: unix.ENOSPC}, 0},
}

// alike are cases that make the same operations of the disk as others.
var alike = map[string]string{"save, new thread": "save", "release lease": "acquire lease"}

// TestEveryFault: whichever operation of the disk goes wrong while a store is opened,
// something is done and it is closed, the store is as before or as after, and as after
// if that was said; nothing in it is damaged, and it works on. Each operation goes
// wrong in one way, and with SNAPFS_LARGE in every way, some of them several times.
func TestEveryFault(t *testing.T) {
	f := newFaultFixture(t)
	for name, c := range faultCases() {
		t.Run(name, func(t *testing.T) {
			if like := alike[name]; like != "" && !soak.Large() {
				t.Skip("with SNAPFS_LARGE only: the disk is asked for the same as by " + like)
			}
			t.Parallel()
			r := newFaultRun(t, f, c)
			rounds, whole := soak.Rounds(1, 3), soak.Large()
			points, tried := 0, map[string]int{}
			for at := 1; ; at++ {
				met := 0
				for i, m := range mishaps {
					if !whole && at%len(mishaps) != i {
						continue
					}
					for round := range rounds {
						if round > 0 && m.left != disktest.Some {
							break // nothing is left to chance
						}
						if r.try(t, m, at, uint64(at*rounds+round)) {
							met++
							tried[m.name]++
						}
					}
				}
				if met == 0 {
					break
				}
				points++
			}
			require.Greater(t, points, 5, "nothing was tried")
			sum := 0
			for _, n := range tried {
				sum += n
			}
			t.Logf("%s: %d operations of the disk, %d points tried: %v", name, points, sum, tried)
		})
	}
}

// faultRun knows what a case does when nothing goes wrong.
type faultRun struct {
	f             *faultFixture
	c             faultCase
	before, after map[string]published
	size          int64 // bytes of packs afterwards and after a collection
}

func newFaultRun(t *testing.T, f *faultFixture, c faultCase) *faultRun {
	r := &faultRun{f: f, c: c}
	dir := filepath.Join(t.TempDir(), "store")
	require.NoError(t, os.CopyFS(dir, os.DirFS(f.store)))
	s := openStore(t, dir)
	r.before = stateOf(t, s)
	require.NoError(t, c.do(t.Context(), f, s))
	r.after = stateOf(t, s)
	gc(t, s)
	_, r.size = packBytes(t, s)
	require.NoError(t, s.Close())
	return r
}

// try has one operation go wrong. It reports whether there was one.
func (r *faultRun) try(t *testing.T, m mishap, at int, seed uint64) bool {
	top := disktest.Memory(t)
	dir := filepath.Join(top, "store")
	require.NoError(t, os.CopyFS(dir, os.DirFS(r.f.store)))
	d, err := disktest.New(dir, seed)
	require.NoError(t, err)
	m.fault.At = at
	d.Arm(m.fault)
	s, err := Open(t.Context(), dir, Options{fsys: d, bootID: "first"})
	if err == nil {
		err = r.c.do(t.Context(), r.f, s)
		if err != nil && !m.fault.Power && !m.fault.Lasts {
			r.goesOn(t, s, fmt.Sprintf("%s at %q, error %v", m.name, d.Met(), err))
		}
		_ = s.Close() // what was acknowledged needs none
	}
	met := d.Met()
	if met == "" {
		require.NoError(t, err)
		return false
	}
	what := fmt.Sprintf("%s at operation %d, %q, seed %d, error %v", m.name, at, met, seed, err)
	boot := "first"
	if m.fault.Power {
		boot = "second"
		crashed := filepath.Join(top, "crashed")
		require.NoError(t, d.Crash(crashed, m.left))
		dir = crashed
	}
	s, oerr := Open(t.Context(), dir, Options{bootID: boot})
	require.NoError(t, oerr, what)
	t.Cleanup(func() { s.Close() })
	require.Empty(t, faults(t, s), what)
	r.check(t, s, err == nil, what)
	r.repeat(t, s, what)
	require.NoError(t, s.Close(), what)
	require.NoError(t, os.RemoveAll(top))
	return true
}

// goesOn looks at a store in the process that met the fault.
func (r *faultRun) goesOn(t *testing.T, s *Store, what string) {
	t.Helper()
	if _, err := s.Threads(t.Context(), Page{}); err != nil {
		require.ErrorContains(t, err, "must be opened again", what)
		return
	}
	require.Empty(t, faults(t, s), what)
	r.check(t, s, false, what)
}

// check compares a store with what it may be.
func (r *faultRun) check(t *testing.T, s *Store, done bool, what string) {
	t.Helper()
	got := stateOf(t, s)
	if done {
		require.Equal(t, r.after, got, what)
	} else if fmt.Sprint(got) != fmt.Sprint(r.after) {
		require.Equal(t, r.before, got, what)
	}
}

// repeat does the same on the store that has recovered, and collects garbage.
func (r *faultRun) repeat(t *testing.T, s *Store, what string) {
	t.Helper()
	if !r.c.once || fmt.Sprint(stateOf(t, s)) != fmt.Sprint(r.after) {
		require.NoError(t, r.c.do(t.Context(), r.f, s), what)
	}
	require.Equal(t, r.after, stateOf(t, s), what)
	_, err := s.GC(t.Context(), GCRequest{})
	require.NoError(t, err, what)
	require.Empty(t, faults(t, s), what)
	require.Equal(t, r.after, stateOf(t, s), what)
	require.Empty(t, tempFiles(t, s), what)
	_, size := packBytes(t, s)
	require.InDelta(t, r.size, size, float64(r.size)/10+10_000, what)
	dir := filepath.Join(disktest.Memory(t), "restored")
	_, err = s.Restore(t.Context(), r.f.restore, RestoreOptions{Dir: dir})
	require.NoError(t, err, what)
	require.Equal(t, r.f.look, look(t, dir), what)
}

// TestEveryPowerLossAfterKill: a process is killed at some operation of the disk, what it
// wrote is seen by the next one, which is stopped by a loss of power. Nothing that was
// acknowledged by either rests on what the first had not made durable.
func TestEveryPowerLossAfterKill(t *testing.T) {
	for name, second := range map[string]struct{ lostIndex, saves bool }{
		"opened": {false, false}, "saved again": {false, true}, "index lost and saved again": {true, true},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); powerLossAfterKill(t, second.lostIndex, second.saves) })
	}
}

func powerLossAfterKill(t *testing.T, lostIndex, saves bool) {
	f := newFaultFixture(t)
	c := faultCases()["save"]
	r := newFaultRun(t, f, c)
	kills, losses, points := 6, 11, 0
	if soak.Large() {
		kills, losses = 1, 1
	}
	for killed, met := 1, true; met; killed += kills {
		for at := 1 + killed%losses; ; at += losses {
			top := disktest.Memory(t)
			dir := filepath.Join(top, "store")
			require.NoError(t, os.CopyFS(dir, os.DirFS(f.store)))
			d, err := disktest.New(dir, uint64(killed*1000+at))
			require.NoError(t, err)
			use := func(fault disktest.Fault, do bool) (err error) {
				d.Arm(fault)
				s, err := Open(t.Context(), dir, Options{fsys: d, bootID: "first"})
				if err == nil && do {
					err = c.do(t.Context(), f, s)
				}
				if s != nil {
					_ = s.Close()
				}
				return err
			}
			err = use(disktest.Fault{At: killed, Power: true}, true)
			if met = d.Met() != ""; !met {
				break
			}
			d.Restart()
			if lostIndex {
				require.NoError(t, os.RemoveAll(filepath.Join(dir, indexDir)))
			}
			what := fmt.Sprintf("killed at operation %d, power lost %d operations later, error %v", killed, at, err)
			again := use(disktest.Fault{At: at, Power: true}, saves)
			last := d.Met() == ""
			if last && !errors.Is(again, index.ErrDuplicateID) {
				require.NoError(t, again, what)
			}
			if again == nil && saves {
				err = nil
			}
			points++
			crashed := filepath.Join(top, "crashed")
			require.NoError(t, d.Crash(crashed, disktest.Least))
			s, oerr := Open(t.Context(), crashed, Options{bootID: "second"})
			require.NoError(t, oerr, what)
			require.Empty(t, faults(t, s), what)
			r.check(t, s, err == nil, what)
			require.NoError(t, errors.Join(s.Close(), os.RemoveAll(top)))
			if last {
				break
			}
		}
	}
	require.Greater(t, points, 5, "nothing was tried")
	t.Logf("%s: %d points tried", t.Name(), points)
}

// TestEveryFaultAtCreation: whichever operation of the disk goes wrong while a store is
// made, there is a store or none, and it can be made.
func TestEveryFaultAtCreation(t *testing.T) {
	for _, m := range mishaps {
		points := 0
		for at := 1; ; at++ {
			top := disktest.Memory(t)
			d, err := disktest.New(top, uint64(at))
			require.NoError(t, err)
			m.fault.At = at
			d.Arm(m.fault)
			dir := filepath.Join(top, "above", "store")
			err = create(d, dir)
			if d.Met() == "" {
				require.NoError(t, err)
				break
			}
			points++
			what := fmt.Sprintf("%s at %q, error %v", m.name, d.Met(), err)
			if m.fault.Power {
				crashed := filepath.Join(top, "crashed")
				require.NoError(t, d.Crash(crashed, m.left))
				dir = filepath.Join(crashed, "above", "store")
			}
			if err == nil {
				_, err := readStoreInfo(dir)
				require.NoError(t, err, what)
			}
			require.NoError(t, create(disk.OS, dir), what)
			s := openStore(t, dir)
			ws := t.TempDir()
			write(t, ws, map[string]string{"a": "1"})
			save(t, s, ws, "t")
			require.NoError(t, s.Close())
		}
		require.Greater(t, points, 5)
		t.Logf("making a store, %s: %d points tried", m.name, points)
	}
}
