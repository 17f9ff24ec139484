package capture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// TestLog: files that are appended to all the time are saved as they were at some
// moment: their beginning, up to the end of something that was written.
func TestLog(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{"small.log": "", "large.log": strings.Repeat("0123456789abcde\n", 1<<17), "still": "x"})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	for _, name := range []string{"small.log", "large.log"} {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := appendTo(filepath.Join(ws, name), fmt.Appendf(nil, "%015d\n", i)); err != nil {
					panic(err)
				}
			}
		})
	}
	var before Result
	sawGrowth := false
	for range 8 {
		m := newMemory()
		got, err := captureAll(t, ws, m)
		require.NoError(t, err)
		all := m.entries(t, got)
		require.Equal(t, "x", m.content(t, all["still"]))
		require.Len(t, got.Left, got.Grew, "it is listed")
		for _, left := range got.Left {
			sawGrowth = true
			require.Contains(t, left.Path, ".log")
			require.Contains(t, left.Why, "grew")
		}
		for _, name := range []string{"small.log", "large.log"} {
			saved := m.content(t, all[name])
			now, err := os.ReadFile(filepath.Join(ws, name))
			require.NoError(t, err)
			require.True(t, bytes.HasPrefix(now, []byte(saved)), name)
			require.Zero(t, len(saved)%16, "%s ends with a whole write", name)
			require.Zero(t, all[name].Flags)
		}
		require.GreaterOrEqual(t, got.Root.Totals.Bytes, before.Root.Totals.Bytes)
		before = got
	}
	require.True(t, sawGrowth, "nobody appended while a file was read")
}

// TestGrewAtTheEnd: what was appended is not in it, and the next capture does not
// believe that it knows the file.
func TestGrewAtTheEnd(t *testing.T) {
	ws := t.TempDir()
	path := filepath.Join(ws, "log")
	first := strings.Repeat("0123456789abcdef", 1<<17)
	write(t, ws, map[string]string{"log": first})
	require.NoError(t, os.Chtimes(path, time.Time{}, time.Unix(1e9, 5)))
	m := newMemory()
	m.onPut = func(objs []cas.Object) error {
		if objs[0].Kind == cas.List {
			return appendTo(path, []byte("more"))
		}
		return nil
	}
	got, err := captureAll(t, ws, m)
	require.NoError(t, err)
	require.Equal(t, 1, got.Grew)
	e := m.entries(t, got)["log"]
	require.True(t, m.content(t, e) == first)
	require.Equal(t, int64(1e9), e.MtimeSec, "the time is that of what was saved")

	m.onPut = nil
	again, err := Tree(t.Context(), ws, m, Options{Files: rules(t), Known: known(t, got)})
	require.NoError(t, err)
	require.True(t, m.content(t, m.entries(t, again)["log"]) == first+"more")
	require.Zero(t, again.Grew)
}

// TestNotOnlyAppended: a file that became longer and is another at one of its ends
// was not appended to.
func TestNotOnlyAppended(t *testing.T) {
	for name, at := range map[string]func(size int64) int64{
		"beginning":             func(int64) int64 { return 0 },
		"end of the first edge": func(int64) int64 { return edge - 1 },
		"last edge":             func(size int64) int64 { return size - edge },
		"last byte":             func(size int64) int64 { return size - 1 },
	} {
		t.Run(name, func(t *testing.T) {
			ws := t.TempDir()
			path := filepath.Join(ws, "data")
			write(t, ws, map[string]string{"data": strings.Repeat("x", 2<<20)})
			m := newMemory()
			var n byte
			m.onPut = func(objs []cas.Object) error {
				if objs[0].Kind != cas.List {
					return nil
				}
				n++
				info, err := os.Stat(path)
				if err != nil {
					return err
				}
				return errors.Join(overwrite(path, at(info.Size()), string(rune(n))), appendTo(path, bytes.Repeat([]byte{'x'}, 2*edge)))
			}
			_, err := captureAll(t, ws, m)
			require.Equal(t, map[string]string{"data": errChanging.Error()}, problems(t, err))
		})
	}
}

// TestAllowTorn: what never holds still is kept as it was read last, says so, and is
// read again by the next capture, whatever its times.
func TestAllowTorn(t *testing.T) {
	ws := t.TempDir()
	path := filepath.Join(ws, "data")
	write(t, ws, map[string]string{"data": strings.Repeat("x", 2<<20), "other": "1"})
	m := newMemory()
	var n byte
	m.onPut = func(objs []cas.Object) error {
		if objs[0].Kind != cas.List {
			return nil
		}
		n++
		return overwrite(path, 5, string(rune(n)))
	}
	opt := Options{Files: rules(t), AllowTorn: true, SkipUnreadable: true}
	got, err := Tree(t.Context(), ws, m, opt)
	require.NoError(t, err)
	require.Equal(t, 1, got.Torn)
	require.Zero(t, got.Unreadable, "it is kept")
	require.Equal(t, []Omission{{"data", "torn: changed each time it was read"}}, got.Left)
	all := m.entries(t, got)
	require.Equal(t, tree.Torn, all["data"].Flags)
	require.Zero(t, all["other"].Flags)
	require.Equal(t, byte(tries-1), m.content(t, all["data"])[5])

	m.onPut = nil
	opt.Known = known(t, got)
	again, err := Tree(t.Context(), ws, m, opt)
	require.NoError(t, err)
	require.Zero(t, again.Torn)
	e := m.entries(t, again)["data"]
	require.Zero(t, e.Flags)
	require.Equal(t, byte(tries), m.content(t, e)[5])
}

// TestSmallTorn is TestAllowTorn for a file of a batch, under a writer without end.
func TestSmallTorn(t *testing.T) {
	ws := t.TempDir()
	path := filepath.Join(ws, "data")
	write(t, ws, map[string]string{"data": "aaaaaaaaaa", "other": "1"})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if err := os.WriteFile(path, bytes.Repeat([]byte{byte('a' + i%26)}, 1+i%5000), 0o644); err != nil {
				panic(err)
			}
		}
	})
	for range 50 {
		m := newMemory()
		got, err := Tree(t.Context(), ws, m, Options{Files: rules(t), AllowTorn: true})
		require.NoError(t, err)
		e := m.entries(t, got)["data"]
		data := m.content(t, e)
		require.Len(t, data, int(e.Size))
		if e.Flags == 0 && got.Grew == 0 {
			require.Equal(t, strings.Repeat(data[:min(1, len(data))], len(data)), data, "it is of one moment")
		}
	}
}

// TestFineTimes: where the kernel is said to tell all changes apart, it does.
func TestFineTimes(t *testing.T) {
	dir := t.TempDir()
	d, err := openRoot(dir)
	require.NoError(t, err)
	defer d.close()
	if !fineTimes(d.fd) {
		t.Skip("an older kernel, or another file system")
	}
	path := filepath.Join(dir, "f")
	write(t, dir, map[string]string{"f": "0"})
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	for i := range 2000 {
		before, err := d.look("f")
		require.NoError(t, err)
		_, err = f.WriteAt([]byte{byte(i)}, 0)
		require.NoError(t, err)
		after, err := d.look("f")
		require.NoError(t, err)
		require.False(t, unchangedSince(&before, &after), "change %d does not show", i)
	}
}

// TestPause: where a change may not show, the read waits until it must.
func TestPause(t *testing.T) {
	now := time.Now()
	at := func(ts time.Time) *unix.Stat_t {
		return &unix.Stat_t{Ctim: unix.NsecToTimespec(ts.UnixNano())}
	}
	w := &worker{walker: &walker{ctx: t.Context()}}
	coarse, fine := &directory{fd: &dirFD{}}, &directory{fd: &dirFD{fine: true}}
	require.False(t, w.pause(coarse, at(now.Add(-time.Second))), "long ago")
	require.False(t, w.pause(fine, at(time.Now())), "a kernel that tells changes apart")
	start := time.Now()
	st := at(start)
	require.True(t, w.pause(coarse, st))
	require.True(t, settledBefore(st, time.Now(), false))
	require.GreaterOrEqual(t, time.Since(start), tick)
	require.True(t, w.pause(coarse, at(time.Now().Add(time.Hour))), "a clock that was set back")
	require.Less(t, time.Since(start), time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.ctx = ctx
	require.True(t, w.pause(fine, at(time.Now().Truncate(time.Second))), "whole seconds only")
}

// TestCoarseTimes: a file that was written at this moment is saved all the same, and
// is not believed to be known.
func TestCoarseTimes(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{"a": "1", "large": strings.Repeat("x", 2<<20)})
	m := newMemory()
	got := captureCoarse(t, ws, m)
	all := m.entries(t, got)
	require.Equal(t, "1", m.content(t, all["a"]))
	require.Empty(t, got.Left)
}

// captureCoarse captures as on a kernel whose clock moves in ticks.
func captureCoarse(t *testing.T, dir string, m *memory) Result {
	t.Helper()
	got, err := captureWith(t, dir, m, 2, func(w *walker) { w.fineTimes = func(int) bool { return false } })
	require.NoError(t, err)
	return got
}
