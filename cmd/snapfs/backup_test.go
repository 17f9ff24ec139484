package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas/castest"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/soak"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/snapshot"
)

// TestBackup runs the commands of docs/BACKUP.md while several savers are at work:
// whatever was acknowledged before a copy began is in it, and comes back as it was.
func TestBackup(t *testing.T) {
	if _, err := exec.LookPath("rsync"); err != nil {
		t.Skip("no rsync")
	}
	rounds := soak.Rounds(2, 12)
	b := newBackup(t)
	stop := make(chan struct{})
	var savers sync.WaitGroup
	for n := range 3 {
		savers.Go(func() { b.saves(n, stop) })
	}
	savers.Go(func() { b.renames(stop) })
	defer savers.Wait()
	ended := sync.OnceFunc(func() { close(stop) })
	defer ended()

	for n := range rounds {
		b.waitForMore()
		before, renamed := b.points(), b.renamed.Load()
		block := "copy"
		if n%3 == 2 {
			block = "prune"
		}
		b.commands(block)
		b.requireNoError()
		b.commands("check")
		b.compare(b.copy, before, renamed)
		b.deleteSome()
	}
	ended()
	savers.Wait()
	b.requireNoError()

	// What a collection moved is found in the copy, where an index knew it elsewhere.
	b.commands("copy")
	b.commands("check")
	b.deleteSome()
	b.commands("prune")
	b.commands("check")
	b.compare(b.copy, b.points(), b.renamed.Load())

	// The store is lost.
	before, renamed := b.points(), b.renamed.Load()
	b.commands("copy")
	require.NoError(t, b.live.Close())
	require.NoError(t, os.RemoveAll(b.store))
	b.commands("restore")
	b.compare(b.store, before, renamed)

	// Another store gets all of it.
	require.NoError(t, os.RemoveAll(b.copy))
	b.commands("push")
	b.compare(b.copy, before, renamed)
}

// backup is a store in use, and a copy of it.
type backup struct {
	t                *testing.T
	dir, store, copy string
	live             *snapshot.Store
	rnd              *rand.Rand

	renamed atomic.Int64 // how often, as was acknowledged

	mu    sync.Mutex
	saved map[string]saved // that were acknowledged, by id
	more  *sync.Cond       // one was saved, or a saver failed
	err   error
}

// saved is a checkpoint and what its workspace was.
type saved struct {
	id   string
	n    int // counts them
	tree map[string]string
}

func newBackup(t *testing.T) *backup {
	dir, err := os.MkdirTemp("/dev/shm", "snapfs-backup-")
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	b := &backup{t: t, dir: dir, store: filepath.Join(dir, "store"), copy: filepath.Join(dir, "backups", "copy"), rnd: rand.New(rand.NewPCG(1, 2)), saved: map[string]saved{}}
	b.more = sync.NewCond(&b.mu)
	b.live, err = snapshot.Open(t.Context(), b.store, snapshot.Options{Create: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.live.Close()) })
	return b
}

// commands runs a fenced block of the page.
func (b *backup) commands(block string) {
	b.t.Helper()
	page, err := os.ReadFile("../../docs/BACKUP.md")
	require.NoError(b.t, err)
	found := regexp.MustCompile("(?ms)^```sh "+block+"\n(.*?)^```$").FindAllSubmatch(page, -1)
	require.Len(b.t, found, 1, block)
	ctx, cancel := context.WithTimeout(b.t.Context(), 3*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-euxc", string(found[0][1]))
	cmd.Env = append(os.Environ(), programEnv+"=1", "store="+b.store, "copy="+b.copy, "HOME="+b.dir, "XDG_CONFIG_HOME=", "LC_ALL=C", "GORACE=atexit_sleep_ms=10", "PATH="+programDir(b.t)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	require.NoError(b.t, err, string(out))
}

// saves changes a workspace and saves it again and again.
func (b *backup) saves(n int, stop chan struct{}) {
	b.failed(func() error {
		rnd := rand.New(rand.NewPCG(uint64(n), 3))
		ws := filepath.Join(b.dir, fmt.Sprint("ws", n))
		for round := 0; ; round++ {
			select {
			case <-stop:
				return nil
			default:
			}
			for range 8 {
				path := filepath.Join(ws, fmt.Sprint(rnd.IntN(5)), fmt.Sprint(rnd.IntN(10)))
				if round == 0 {
					path = filepath.Join(ws, "0", "0")
				}
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, castest.Noise(rnd.Uint64(), rnd.IntN(30_000)), 0o644)); err != nil {
					return err
				}
			}
			tree, err := look(ws)
			if err != nil {
				return err
			}
			opt := snapshot.SaveOptions{Workspace: ws, Thread: fmt.Sprint("t", n), ID: fmt.Sprintf("cp-%d-%d", n, round), Files: policy.FilesOptions{NoDefaults: true}}
			_, err = b.live.Save(b.t.Context(), opt)
			if errors.Is(err, index.ErrStaleHead) {
				continue // the head was deleted meanwhile
			}
			if err != nil {
				return err
			}
			b.mu.Lock()
			b.saved[opt.ID] = saved{id: opt.ID, n: len(b.saved), tree: tree}
			b.more.Broadcast()
			b.mu.Unlock()
		}
	}())
}

// renames gives one checkpoint one long name after the other: the journal grows all
// the time, and begins new files.
func (b *backup) renames(stop chan struct{}) {
	b.failed(func() error {
		_, err := b.live.Save(b.t.Context(), snapshot.SaveOptions{Workspace: b.t.TempDir(), Thread: renamedID, ID: renamedID})
		for n := 1; err == nil; n++ {
			select {
			case <-stop:
				return nil
			default:
			}
			_, err = b.live.Rename(b.t.Context(), renamedID, fmt.Sprintf("%08d", n)+strings.Repeat("\u00e9", 240))
			b.renamed.Store(int64(n))
		}
		return err
	}())
}

// renamedID is a checkpoint that gets names.
const renamedID = "renamed"

// failed ends the test for what a goroutine of it met.
func (b *backup) failed(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = errors.Join(b.err, err)
	b.more.Broadcast()
}

// waitForMore waits until the savers have saved something since.
func (b *backup) waitForMore() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for more := len(b.saved) + 15; (len(b.saved) < more || b.renamed.Load() == 0) && b.err == nil; {
		b.more.Wait()
	}
}

func (b *backup) requireNoError() {
	b.mu.Lock()
	defer b.mu.Unlock()
	require.NoError(b.t, b.err)
}

// points are the checkpoints that are there now, oldest first.
func (b *backup) points() []saved {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []saved
	for _, p := range b.saved {
		all = append(all, p)
	}
	slices.SortFunc(all, func(x, y saved) int { return cmp.Compare(x.n, y.n) })
	return all
}

// deleteSome leaves half of the newest checkpoints, and collects: packs go, and
// others come.
func (b *backup) deleteSome() {
	all := b.points()
	for i, p := range all {
		if i < len(all)-40 || b.rnd.IntN(2) == 0 {
			_, err := b.live.Delete(b.t.Context(), p.id)
			require.NoError(b.t, err)
			b.mu.Lock()
			delete(b.saved, p.id)
			b.mu.Unlock()
		}
	}
	_, err := b.live.GC(b.t.Context(), snapshot.GCRequest{})
	require.NoError(b.t, err)
}

// compare looks for checkpoints in a store that is not open, and restores the newest
// and some others. One must have been renamed so often or more.
func (b *backup) compare(dir string, want []saved, renamed int64) {
	store, err := snapshot.Open(b.t.Context(), dir, snapshot.Options{})
	require.NoError(b.t, err)
	defer store.Close()
	cp, err := store.Resolve(b.t.Context(), renamedID)
	require.NoError(b.t, err)
	n, err := strconv.ParseInt(cp.Name[:8], 10, 64)
	require.NoError(b.t, err)
	require.GreaterOrEqual(b.t, n, renamed)
	for i, p := range want {
		cp, err := store.Resolve(b.t.Context(), p.id)
		require.NoError(b.t, err, "%d of %d", i, len(want))
		require.Equal(b.t, "ready", cp.Status, "%s: %s", p.id, cp.StatusMessage)
		if i < len(want)-5 && b.rnd.IntN(4) > 0 {
			continue
		}
		to := filepath.Join(b.dir, "restored")
		_, err = store.Restore(b.t.Context(), p.id, snapshot.RestoreOptions{Dir: to})
		require.NoError(b.t, err, p.id)
		require.Equal(b.t, p.tree, treeOf(b.t, to), p.id)
		require.NoError(b.t, os.RemoveAll(to))
	}
	logs, err := os.ReadDir(filepath.Join(dir, "journal"))
	require.NoError(b.t, err)
	b.t.Logf("%d checkpoints and %d names were there before, %d in %s; its journal has %d files", len(want), renamed, n, filepath.Base(dir), len(logs))
}
