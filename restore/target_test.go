package restore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// TestMissingTarget: it is made with the directories above it, and nothing else
// is left beside it.
func TestMissingTarget(t *testing.T) {
	m := newMemory()
	top := t.TempDir()
	target := filepath.Join(top, "new", "parents", "target")
	res, err := m.restore(t, sample(t, m), target)
	require.NoError(t, err)
	require.Equal(t, sampleList(), list(t, target))
	require.Equal(t, Result{Files: 5, Dirs: 3, Bytes: 2<<20 + 4 + 4 + 9, Created: 8}, res)
	entries, err := os.ReadDir(filepath.Dir(target))
	require.NoError(t, err)
	require.Len(t, entries, 1)
	st := stat(t, target)
	require.Equal(t, uint32(0o751), st.Mode&0o7777)
	require.Equal(t, unix.Timespec{Sec: 1e9, Nsec: 7}, st.Mtim)
}

// TestExistingTarget: an empty directory stays the one it was: somebody may
// stand in it, or it may be a mountpoint.
func TestExistingTarget(t *testing.T) {
	m := newMemory()
	src := sample(t, m)
	target := t.TempDir()
	before := stat(t, target)
	t.Chdir(target)
	_, err := m.restore(t, src, target)
	require.NoError(t, err)
	require.Equal(t, sampleList(), list(t, target))
	require.Equal(t, before.Ino, stat(t, target).Ino)
	require.Equal(t, uint32(0o751), stat(t, target).Mode&0o7777)
	require.Equal(t, unix.Timespec{Sec: 1e9, Nsec: 7}, stat(t, target).Mtim)
	data, err := os.ReadFile("a/b/c") // from where we stand
	require.NoError(t, err)
	require.Equal(t, "deep", string(data))
}

func TestRelativeTarget(t *testing.T) {
	m := newMemory()
	top := t.TempDir()
	t.Chdir(top)
	_, err := m.restore(t, sample(t, m), "x/../target")
	require.NoError(t, err)
	require.Equal(t, sampleList(), list(t, filepath.Join(top, "target")))
}

// TestTargetInUse: anything that is there is a reason to refuse, and stays.
func TestTargetInUse(t *testing.T) {
	tests := map[string]struct {
		make func(path string) error
		want error
	}{
		"file in it":                       {func(p string) error { return os.WriteFile(filepath.Join(p, "x"), []byte("mine"), 0o644) }, ErrNotEmpty},
		"dot file":                         {func(p string) error { return os.Mkdir(filepath.Join(p, ".git"), 0o755) }, ErrNotEmpty},
		"lost+found without a file system": {func(p string) error { return os.Mkdir(filepath.Join(p, "lost+found"), 0o700) }, ErrNotEmpty},
		"marker":                           {func(p string) error { return os.WriteFile(filepath.Join(p, capture.Marker), nil, 0o600) }, ErrUnfinished},
		"marker among others": {func(p string) error {
			return errors.Join(os.WriteFile(filepath.Join(p, "#"), nil, 0o600), os.WriteFile(filepath.Join(p, capture.Marker), nil, 0o600), os.WriteFile(filepath.Join(p, "x"), nil, 0o600))
		}, ErrUnfinished},
		"is a file":          {func(p string) error { os.Remove(p); return os.WriteFile(p, []byte("mine"), 0o644) }, ErrNotEmpty},
		"is a dangling link": {func(p string) error { os.Remove(p); return os.Symlink("nowhere", p) }, ErrNotEmpty},
		"is a fifo":          {func(p string) error { os.Remove(p); return unix.Mkfifo(p, 0o644) }, ErrNotEmpty},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			top := t.TempDir()
			target := filepath.Join(top, "target")
			require.NoError(t, os.Mkdir(target, 0o700))
			require.NoError(t, test.make(target))
			if stat(t, target).Mode&unix.S_IFMT == unix.S_IFIFO {
				_, err := m.restore(t, sample(t, m), target)
				require.ErrorIs(t, err, test.want)
				return
			}
			before, mode := list(t, top), stat(t, target)
			_, err := m.restore(t, sample(t, m), target)
			require.ErrorIs(t, err, test.want)
			require.Equal(t, before, list(t, top))
			require.Equal(t, mode.Mtim, stat(t, target).Mtim)
			require.Equal(t, mode.Mode, stat(t, target).Mode)
		})
	}
}

// TestVolume: a new file system with its lost+found is filled in place.
func TestVolume(t *testing.T) {
	m := newMemory()
	volume := filepath.Join(t.TempDir(), "volume")
	mountTmpfs(t, volume, "8m")
	lost := filepath.Join(volume, "lost+found")
	require.NoError(t, os.Mkdir(lost, 0o700))
	before := stat(t, volume)
	_, err := m.restore(t, sample(t, m), volume)
	require.NoError(t, err)
	want := sampleList()
	want["lost+found"] = "/"
	require.Equal(t, want, list(t, volume))
	require.Equal(t, []uint64{before.Dev, before.Ino}, []uint64{stat(t, volume).Dev, stat(t, volume).Ino})

	// A failure leaves what belongs to the file system.
	other := filepath.Join(t.TempDir(), "other")
	mountTmpfs(t, other, "8m")
	require.NoError(t, os.Mkdir(filepath.Join(other, "lost+found"), 0o700))
	m.onRead = failContent(cas.ErrCorrupt)
	_, err = m.restore(t, sample(t, m), other)
	require.ErrorIs(t, err, cas.ErrCorrupt)
	require.Equal(t, map[string]string{"lost+found": "/"}, list(t, other))
}

// TestTargetAppears: what somebody makes at the target's place while the restore
// goes on is not written over.
func TestTargetAppears(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"full":      func(p string) error { return os.MkdirAll(filepath.Join(p, "theirs"), 0o755) },
		"empty":     func(p string) error { return os.Mkdir(p, 0o755) },
		"file":      func(p string) error { return os.WriteFile(p, []byte("theirs"), 0o644) },
		"dead link": func(p string) error { return os.Symlink("nowhere", p) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			src := sample(t, m)
			top := t.TempDir()
			target := filepath.Join(top, "target")
			m.onHas = onceFunc(func() { require.NoError(t, make(target)) })
			_, err := m.restore(t, src, target)
			require.ErrorIs(t, err, ErrNotEmpty)
			entries, err := os.ReadDir(top)
			require.NoError(t, err)
			require.Len(t, entries, 1, "no staging directory is left")
			require.NotContains(t, list(t, top), "target/f")
		})
	}
}

// TestTargetFillsUp: a file that appears in the empty target between the first
// look and the first write is a reason to refuse, one that appears later stays
// whatever becomes of the restore.
func TestTargetFillsUp(t *testing.T) {
	m := newMemory()
	src := sample(t, m)
	target := t.TempDir()
	theirs := func(name string) func() {
		return onceFunc(func() { require.NoError(t, os.WriteFile(filepath.Join(target, name), []byte("theirs"), 0o644)) })
	}
	m.onHas = theirs("early")
	_, err := m.restore(t, src, target)
	require.ErrorIs(t, err, ErrNotEmpty)
	require.Equal(t, map[string]string{"early": "theirs"}, list(t, target))

	require.NoError(t, os.Remove(filepath.Join(target, "early")))
	m.onHas = nil
	late := theirs("late")
	m.onRead = func(key cas.Key) error {
		if key.NS == cas.Files && len(m.objects[key]) == len("deep") {
			late()
			return cas.ErrCorrupt
		}
		return nil
	}
	_, err = m.restore(t, src, target)
	require.ErrorIs(t, err, cas.ErrCorrupt)
	require.Equal(t, map[string]string{"late": "theirs"}, list(t, target))
}

// TestModesAndTimes: of everything, the order of writing notwithstanding.
func TestModesAndTimes(t *testing.T) {
	m := newMemory()
	times := []int64{-1<<31 + 1, -1, 0, 1 << 31, 1 << 33}
	d, want := dir{}, map[string]tree.Entry{}
	add := func(name string, e tree.Entry, into dir) {
		e.MtimeSec, e.MtimeNsec = times[len(want)%len(times)], uint32(len(want)+999_999_900)
		into[name], want[name] = e, e
	}
	for i, mode := range []uint32{0, 0o444, 0o600, 0o755, 0o1777, 0o007} {
		add("f"+string(rune('0'+i)), m.file(t, mode, "x"), d)
		add("d"+string(rune('0'+i)), m.sub(t, mode, dir{"in": "y"}), d)
	}
	add("dl", tree.Entry{Kind: tree.Symlink, Mode: 0o777, Target: "x", Size: 1}, d)
	src := m.source(t, d)
	src.Stat.Mode = 0o555
	for _, target := range []string{t.TempDir(), filepath.Join(t.TempDir(), "new")} {
		t.Cleanup(func() { _ = RemoveAll(target) })
		_, err := m.restore(t, src, target)
		require.NoError(t, err)
		require.Equal(t, uint32(0o555), stat(t, target).Mode&0o7777)
		for name, e := range want {
			st := stat(t, filepath.Join(target, name))
			require.Equal(t, e.Mode, st.Mode&0o7777, name)
			require.Equal(t, unix.Timespec{Sec: e.MtimeSec, Nsec: int64(e.MtimeNsec)}, st.Mtim, name)
		}
	}
}
