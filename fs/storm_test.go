package fs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/soak"
	"github.com/snapfs/snapfs/snapshot"
)

// readWhole reads a file as programs do, and has the kernel drop its pages, so that
// the next one asks again.
func readWhole(path string, buf []byte) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	n := 0
	for {
		got, err := f.Read(buf[n:])
		if n += got; err != nil || n == len(buf) {
			break
		}
	}
	return buf[:n], unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// TestStorm: sixteen readers, each met by a thousand signals a second, while others
// save, delete and collect: no error and no wrong byte. SNAPFS_LARGE makes it as
// long as it should be: a minute, over 100,000 files.
func TestStorm(t *testing.T) {
	dirs, perDir, length := 40, 50, 3*time.Second
	if soak.Large() {
		dirs, perDir, length = 1000, 100, time.Minute
	}
	const readers = 16
	d := start(t)
	m := d.mount()
	cp := d.plant("t", dirs, perDir, smallFile)
	files := dirOf(m, cp)
	ws := write(t, map[string]string{"f": "x"})
	ctx, stop := context.WithTimeout(t.Context(), length)
	defer stop()

	heard := make(chan os.Signal, 1)
	signal.Notify(heard, unix.SIGUSR1)
	defer signal.Stop(heard)
	var g errgroup.Group
	var threads sync.Map
	var reads, signals atomic.Int64
	for reader := range readers {
		g.Go(func() error {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			tid := unix.Gettid()
			threads.Store(tid, true)
			defer threads.Delete(tid)
			r := rand.New(rand.NewPCG(uint64(reader), 7))
			buf := make([]byte, 64<<10)
			for ctx.Err() == nil {
				// Some in order, as programs do that go through a tree.
				first := r.IntN(dirs * perDir)
				for i := first; i < min(first+r.IntN(60)+1, dirs*perDir); i++ {
					got, err := readWhole(fmt.Sprintf("%s/dir-%05d/file-%07d.js", files, i/perDir, i), buf)
					if err != nil {
						return err
					}
					if !bytes.Equal(got, smallFile(i)) {
						return fmt.Errorf("file %d has other bytes", i)
					}
					reads.Add(1)
				}
			}
			return nil
		})
	}
	g.Go(func() error {
		for ctx.Err() == nil {
			threads.Range(func(tid, _ any) bool {
				signals.Add(1)
				_ = unix.Tgkill(os.Getpid(), tid.(int), unix.SIGUSR1) // it may have ended
				return true
			})
			time.Sleep(time.Millisecond)
		}
		return nil
	})
	g.Go(func() error {
		for i := 0; ctx.Err() == nil; i++ {
			if err := os.WriteFile(ws+"/f", fmt.Append(nil, i), 0o644); err != nil {
				return err
			}
			res, err := d.store.Save(t.Context(), snapshot.SaveOptions{Workspace: ws, Thread: "others"})
			if err != nil {
				return err
			}
			if _, err := d.store.Delete(t.Context(), res.Checkpoint.ID); err != nil {
				return err
			}
		}
		return nil
	})
	g.Go(func() error {
		for ctx.Err() == nil {
			if _, err := d.store.GC(t.Context(), snapshot.GCRequest{}); err != nil {
				return err
			}
			time.Sleep(50 * time.Millisecond)
		}
		return nil
	})
	require.NoError(t, g.Wait())
	t.Logf("%d reads, %d signals; requests: %v", reads.Load(), signals.Load(), d.requests())
	require.Greater(t, reads.Load(), int64(1000))
	require.Greater(t, signals.Load(), int64(1000))
}

// TestReadersOfWhatGoesAway: who is in a checkpoint that is deleted and collected
// gets its bytes or an error, never other bytes, and nothing hangs. Beside them gc
// rewrites the packs of what stays.
func TestReadersOfWhatGoesAway(t *testing.T) {
	const dirs, perDir, rounds = 10, 40, 4
	d := start(t)
	m := d.mount()
	stays := d.plant("stays", dirs, perDir, func(i int) []byte { return smallFile(i + 1_000_000) })
	var failed, served atomic.Int64
	for round := range rounds {
		content := func(i int) []byte { return smallFile(i + 10_000*(round+1)) }
		goes := d.plant(fmt.Sprint("goes", round), dirs, perDir, content)
		root := open(t, dirOf(m, goes))
		kept := open(t, dirOf(m, stays))
		ctx, stop := context.WithCancel(t.Context())
		var g errgroup.Group
		for reader := range 4 {
			g.Go(func() error {
				r := rand.New(rand.NewPCG(uint64(reader), uint64(round)))
				for ctx.Err() == nil {
					i := r.IntN(dirs * perDir)
					name := fmt.Sprintf("dir-%05d/file-%07d.js", i/perDir, i)
					if f, err := kept.Open(name); err != nil {
						return err
					} else if err := same(f, smallFile(i+1_000_000)); err != nil {
						return fmt.Errorf("%s of what stays: %w", name, err)
					}
					f, err := root.Open(name)
					if err == nil {
						err = same(f, content(i))
					}
					switch {
					case err == nil:
						served.Add(1)
					case errors.Is(err, unix.EIO), errors.Is(err, unix.ENOENT):
						failed.Add(1)
					default:
						return fmt.Errorf("%s of what goes: %w", name, err)
					}
				}
				return nil
			})
		}
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, d.store.DeleteThread(t.Context(), goes.Thread))
		_, err := os.Stat(dirOf(m, goes))
		require.ErrorIs(t, err, os.ErrNotExist, "its path is gone at once")
		for range 3 {
			_, err := d.store.GC(t.Context(), snapshot.GCRequest{})
			require.NoError(t, err)
		}
		time.Sleep(100 * time.Millisecond)
		stop()
		require.NoError(t, g.Wait())
		_, err = d.store.Resolve(t.Context(), goes.ID)
		require.ErrorIs(t, err, index.ErrCheckpointNotFound)
	}
	t.Logf("%d reads served, %d failed", served.Load(), failed.Load())
	require.NotZero(t, served.Load())
}

// same compares a file with what it should be, and has the kernel forget it.
func same(f *os.File, want []byte) error {
	defer f.Close()
	buf := make([]byte, len(want)+1)
	n, err := f.ReadAt(buf, 0)
	if n != len(want) && err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !bytes.Equal(buf[:n], want) {
		return fmt.Errorf("other bytes: %d where %d are due", n, len(want))
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// TestReadersMeet: what one reader is given ahead another asks for at that very
// moment. Neither waits for long, and both get the right bytes.
func TestReadersMeet(t *testing.T) {
	const dirs, perDir = 20, 100
	d := start(t)
	m := d.mount()
	var meetings int64
	for round := range 3 {
		content := func(i int) []byte { return smallFile(i + round*1_000_000) }
		files := dirOf(m, d.plant(fmt.Sprint("t", round), dirs, perDir, content))
		name := func(i int) string { return fmt.Sprintf("%s/dir-%05d/file-%07d.js", files, i/perDir, i) }
		_, err := exec.Command("find", files, "-size", "+100k").Output() // the kernel only gets what it knows
		require.NoError(t, err)
		check := func(i int) error {
			got, err := os.ReadFile(name(i))
			if err == nil && !bytes.Equal(got, content(i)) {
				err = fmt.Errorf("file %d has other bytes", i)
			}
			return err
		}
		var at, done atomic.Int64
		var g errgroup.Group
		g.Go(func() error {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			defer done.Store(1)
			for i := range dirs * perDir {
				at.Store(int64(i))
				if err := check(i); err != nil {
					return err
				}
			}
			return nil
		})
		for ahead := range 3 {
			g.Go(func() error {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				for last := int64(0); done.Load() == 0; {
					// Seldom, so that the first one is alone for a while.
					now := at.Load()
					if now < last+20 {
						runtime.Gosched()
						continue
					}
					last = now
					if err := check(min(int(now)+1+4*ahead, dirs*perDir-1)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		finished := make(chan error, 1)
		go func() { finished <- g.Wait() }()
		select {
		case err := <-finished:
			require.NoError(t, err)
		case <-time.After(patience):
			t.Fatal("the readers wait for one another")
		}
		meetings = int64(d.requests()["STORE"])
	}
	require.NotZero(t, meetings, "nothing was given ahead")
}
