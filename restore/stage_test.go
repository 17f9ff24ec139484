package restore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/internal/disk"
	"github.com/snapfs/snapfs/tree"
)

// TestLivingRestore: while a restore goes on, no other one uses its target, not even
// the same, and it is none the worse for their trying.
func TestLivingRestore(t *testing.T) {
	for _, existing := range []bool{false, true} {
		t.Run(fmt.Sprintf("existing %v", existing), func(t *testing.T) {
			m := newMemory()
			src := sample(t, m)
			target := filepath.Join(scratch(t), "target")
			if existing {
				require.NoError(t, os.Mkdir(target, 0o755))
			}
			different := m.source(t, dir{"other": "1"})
			others := onceFunc(func() {
				for _, other := range []Source{src, different} {
					before := list(t, filepath.Dir(target))
					second := &memory{objects: m.objects, read: map[cas.Key]int{}}
					_, err := Tree(t.Context(), second, tree.NewReader(second, 0), other, target, Options{})
					var e *UnfinishedError
					if !errors.As(err, &e) || !e.Living {
						t.Errorf("%v", err)
					}
					if after := list(t, filepath.Dir(target)); len(after) < len(before) {
						t.Errorf("%v is gone", before)
					}
				}
			})
			m.onRead = func(key cas.Key) error {
				if string(m.objects[key]) == "file" {
					others()
				}
				return nil
			}
			_, err := m.restore(t, src, target)
			require.NoError(t, err)
			require.Equal(t, sampleList(), list(t, target))
			require.Len(t, names(t, filepath.Dir(target)), 1)
		})
	}
}

// TestPlantedStage: what somebody puts at the stage's place is neither followed nor
// filled nor taken away, unless it is an empty directory.
func TestPlantedStage(t *testing.T) {
	mark := func(t *testing.T, m *memory, src Source, path string, change func(*marker)) {
		mark := newMarker(src, Options{Checkpoint: "cp", Files: only(t, nil)})
		mark.Stage = filepath.Base(path)
		if change != nil {
			change(&mark)
		}
		dir, err := openTarget(path)
		require.NoError(t, err)
		defer dir.close()
		l, err := dir.mark(mark, path)
		require.NoError(t, err)
		l.release()
	}
	full := func(path string) {
		require.NoError(t, errors.Join(os.MkdirAll(filepath.Join(path, stageTree), 0o700), os.Chmod(path, 0o700), os.WriteFile(filepath.Join(path, stageTree, "precious"), []byte("mine"), 0o644)))
	}
	for name, c := range map[string]struct {
		plant func(t *testing.T, m *memory, src Source, path, outside string)
		gone  bool
	}{
		"link": {func(t *testing.T, m *memory, src Source, path, outside string) {
			full(outside)
			mark(t, m, src, outside, func(m *marker) { m.Stage = filepath.Base(path) })
			require.NoError(t, os.Symlink(outside, path))
		}, false},
		"dangling link": {func(t *testing.T, m *memory, src Source, path, outside string) {
			require.NoError(t, os.Symlink("nowhere", path))
		}, false},
		"file": {func(t *testing.T, m *memory, src Source, path, outside string) {
			require.NoError(t, os.WriteFile(path, nil, 0o700))
		}, false},
		"somebody's files": {func(t *testing.T, m *memory, src Source, path, outside string) { full(path) }, false},
		"open to others": {func(t *testing.T, m *memory, src Source, path, outside string) {
			full(path)
			mark(t, m, src, path, nil)
			require.NoError(t, os.Chmod(path, 0o777))
		}, false},
		"another target's": {func(t *testing.T, m *memory, src Source, path, outside string) {
			full(path)
			mark(t, m, src, path, func(m *marker) { m.Stage = "" }) // restored in place, and moved here
		}, false},
		"marker of a hook": {func(t *testing.T, m *memory, src Source, path, outside string) {
			full(path)
			require.NoError(t, os.WriteFile(filepath.Join(path, capture.Marker), nil, 0o600))
		}, false},
		"marker is a link": {func(t *testing.T, m *memory, src Source, path, outside string) {
			full(path)
			full(outside)
			mark(t, m, src, outside, func(m *marker) { m.Stage = filepath.Base(path) })
			require.NoError(t, os.Symlink(filepath.Join(outside, capture.Marker), filepath.Join(path, capture.Marker)))
		}, false},
		"somebody else's": {func(t *testing.T, m *memory, src Source, path, outside string) {
			needRoot(t)
			full(path)
			mark(t, m, src, path, nil)
			require.NoError(t, os.Chown(path, 12345, 12345))
		}, false},
		"somebody else's marker": {func(t *testing.T, m *memory, src Source, path, outside string) {
			needRoot(t)
			full(path)
			mark(t, m, src, path, nil)
			require.NoError(t, os.Chown(filepath.Join(path, capture.Marker), 12345, 12345))
		}, false},
		"empty": {func(t *testing.T, m *memory, src Source, path, outside string) {
			require.NoError(t, os.Mkdir(path, 0o755))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			src := sample(t, m)
			top, around := scratch(t), scratch(t)
			target, outside := filepath.Join(top, "target"), filepath.Join(around, "outside")
			stage := filepath.Join(top, stageName("target"))
			require.NoError(t, os.Mkdir(outside, 0o700))
			c.plant(t, m, src, stage, outside)
			before, beside := portrait(t, top), portrait(t, around)
			_, err := m.restore(t, src, target)
			require.NoError(t, err)
			require.Equal(t, sampleList(), list(t, target))
			require.Equal(t, beside, portrait(t, around))
			require.NoError(t, RemoveAll(target))
			after := portrait(t, top)
			if c.gone {
				delete(before, filepath.Base(stage))
			}
			delete(before, ".")
			delete(after, ".")
			require.Equal(t, before, after)
		})
	}
}

// TestPrivateStage: nobody else looks into it, whatever the target will allow. The
// target has the group that its parent gives.
func TestPrivateStage(t *testing.T) {
	m := newMemory()
	src := sample(t, m)
	src.Stat.Mode = 0o777
	top := scratch(t)
	gid := os.Getgid()
	if os.Geteuid() == 0 {
		gid = 12345
	}
	require.NoError(t, errors.Join(os.Chown(top, -1, gid), unix.Chmod(top, 0o2777)))
	target := filepath.Join(top, "target")
	m.onRead = func(key cas.Key) error {
		if string(m.objects[key]) == "file" {
			for _, name := range []string{"", stageTree} {
				var st unix.Stat_t
				if err := unix.Lstat(filepath.Join(top, stageName("target"), name), &st); err != nil || st.Mode&0o7777 != 0o700 {
					return fmt.Errorf("stage: %o %w", st.Mode, err)
				}
			}
		}
		return nil
	}
	_, err := m.restore(t, src, target)
	require.NoError(t, err)
	st := stat(t, target)
	require.Equal(t, uint32(0o777), st.Mode&0o7777)
	require.Equal(t, gid, int(st.Gid))
}

// TestResumedFails: one that fails takes away what the killed one had made too, but
// nothing else, and an existing target is as it was before both.
func TestResumedFails(t *testing.T) {
	eachUnfinished(t, func(t *testing.T, m *memory, src Source, target, in string) {
		require.NoError(t, os.Remove(filepath.Join(in, "three/g")))
		m.onRead = func(key cas.Key) error {
			if string(m.objects[key]) == "1" {
				return cas.ErrCorrupt
			}
			return nil
		}
		_, err := m.restore(t, src, target)
		require.ErrorIs(t, err, cas.ErrCorrupt)
		if in == target {
			require.Empty(t, names(t, target))
		} else {
			require.Empty(t, names(t, filepath.Dir(target)))
		}
		m.onRead = nil
		_, err = m.restore(t, src, target)
		require.NoError(t, err)
	})

	m := newMemory()
	src := everything(t, m)
	volume := filepath.Join(t.TempDir(), "volume")
	mountTmpfs(t, volume, "64m")
	require.NoError(t, os.MkdirAll(filepath.Join(volume, "lost+found/x"), 0o700))
	around := acl(2, 7, 7, 7)
	root, err := openTarget(volume)
	require.NoError(t, err)
	defer root.close()
	mark := newMarker(src, Options{Checkpoint: "cp", Files: only(t, nil)})
	mark.ACL = around
	l, err := root.mark(mark, volume)
	require.NoError(t, err)
	l.release()
	require.NoError(t, os.Mkdir(filepath.Join(volume, "three"), 0o755))
	theirs := onceFunc(func() { require.NoError(t, os.WriteFile(filepath.Join(volume, "theirs"), nil, 0o644)) })
	m.onRead = func(key cas.Key) error {
		if string(m.objects[key]) == "1" {
			theirs()
			return cas.ErrCorrupt
		}
		return nil
	}
	_, err = m.restore(t, src, volume)
	require.ErrorIs(t, err, cas.ErrCorrupt)
	require.Equal(t, map[string]string{"lost+found": "/", "lost+found/x": "/", "theirs": ""}, list(t, volume))
	require.Equal(t, around, xattr(t, volume, tree.ACLDefault), "a failure puts it back")
}

// TestMarker: what it says, and what is none.
func TestMarker(t *testing.T) {
	m := newMemory()
	src := sample(t, m)
	target := filepath.Join(scratch(t), "target")
	unfinished(t, m, src, target, func(m *marker) { m.Patterns = "exclude x" })
	path := filepath.Join(target, capture.Marker)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, part := range []string{`"version":1,`, `"checkpoint":"cp"`, `"tree":"` + src.Root.String(), `"restore":"`, `"boot":"` + disk.BootID(), `"patterns":"exclude x"`} {
		require.Contains(t, string(data), part)
	}
	require.Equal(t, uint32(0o600), stat(t, path).Mode&0o7777)
	require.Equal(t, &UnfinishedError{Dir: target, Checkpoint: "cp", Patterns: true}, Unfinished(target))
	for name, text := range map[string]string{
		"empty": "", "cut": string(data[:len(data)/2]), "not ours": "hello\n", "later version": strings.Replace(string(data), `"version":1`, `"version":2`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			before := list(t, target)
			_, err := m.restore(t, src, target)
			require.ErrorIs(t, err, ErrUnfinished)
			require.Equal(t, &UnfinishedError{Dir: target}, Unfinished(target))
			require.Equal(t, before, list(t, target))
		})
	}
	require.Nil(t, Unfinished(t.TempDir()))
	require.Nil(t, Unfinished(filepath.Join(target, "nowhere")))

	eachTarget(t, func(t *testing.T, target string) {
		_, err := m.restore(t, m.source(t, dir{capture.Marker: "x", "f": "1"}), target)
		require.ErrorIs(t, err, cas.ErrCorrupt, "no checkpoint has one")
	})
}

// TestTwoWaysToMark: a file system need not have files without a name.
func TestTwoWaysToMark(t *testing.T) {
	for name, make := range map[string]func(*target, []byte) (int, error){"linked": (*target).linkMarker, "created": (*target).createMarker} {
		t.Run(name, func(t *testing.T) {
			top := scratch(t)
			root, err := openTarget(top)
			require.NoError(t, err)
			defer root.close()
			fd, err := make(root, []byte(`{"version":1,"checkpoint":"cp"}`))
			require.NoError(t, err)
			_, err = make(root, []byte("another"))
			require.ErrorIs(t, err, unix.EEXIST)
			_, err = root.mark(marker{}, top)
			require.Equal(t, &UnfinishedError{Dir: top, Living: true}, err)
			require.Equal(t, []string{capture.Marker}, names(t, top))
			_, err = root.locked(top)
			require.Equal(t, &UnfinishedError{Dir: top, Living: true, Checkpoint: "cp"}, err)
			require.NoError(t, unix.Close(fd))
			l, err := root.locked(top)
			require.NoError(t, err)
			require.Equal(t, "cp", l.Checkpoint)
			l.release()
		})
	}
}
