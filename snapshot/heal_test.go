package snapshot

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/castest"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/disk/disktest"
)

// A save never relies on a pack that is gone or cut, nor on an object that verify
// found damaged: it stores the content anew, and older checkpoints read again.
func TestSaveHealsWhatIsLost(t *testing.T) {
	damage := map[string]func(t *testing.T, s *Store, path string){
		"gone": func(t *testing.T, _ *Store, path string) { require.NoError(t, os.Remove(path)) },
		"cut":  func(t *testing.T, _ *Store, path string) { require.NoError(t, os.Truncate(path, 300)) },
		"flipped, and met by a restore": func(t *testing.T, s *Store, path string) {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			data[len(data)/2] ^= 1
			require.NoError(t, os.WriteFile(path, data, 0o600))
			_, err = s.Restore(t.Context(), "t@latest", RestoreOptions{Dir: filepath.Join(t.TempDir(), "r")})
			require.ErrorIs(t, err, cas.ErrCorrupt)
		},
		"flipped, and verified": func(t *testing.T, s *Store, path string) {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			data[len(data)/2] ^= 1
			require.NoError(t, os.WriteFile(path, data, 0o600))
			require.NotEmpty(t, faults(t, s))
		},
	}
	for name, fn := range damage {
		t.Run(name, func(t *testing.T) {
			s, _ := unsound(t)
			ws := filepath.Join(t.TempDir(), "ws")
			for i := range 5 {
				noiseFile(t, filepath.Join(ws, "dir", string(rune('a'+i))), uint64(i), 4000)
			}
			first := save(t, s, ws, "t")
			want := look(t, restored(t, s, first.ID))
			for _, path := range packFiles(t, s) {
				fn(t, s, path)
			}
			second := save(t, s, ws, "u")
			require.Positive(t, second.NewBytes)
			require.Equal(t, want, look(t, restored(t, s, second.ID)))
			require.Zero(t, save(t, s, ws, "u").NewBytes, "once is enough")
		})
	}
}

// packs/, journal/ and store.json are a whole store.
func TestBackupOpens(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"f": "x"})
	cp := save(t, s, ws, "t")
	backup := filepath.Join(t.TempDir(), "backup")
	for _, part := range []string{"packs", journalDir} {
		require.NoError(t, os.CopyFS(filepath.Join(backup, part), os.DirFS(filepath.Join(s.dir, part))))
	}
	info, err := os.ReadFile(filepath.Join(s.dir, storeFile))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(backup, storeFile), info, 0o600))
	b := openStore(t, backup)
	restored(t, b, cp.ID)
	save(t, b, ws, "t")
}

// A store that lost its journal says so, and goes on saying so.
func TestLostJournalIsNotAnEmptyStore(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"f": "x"})
	save(t, s, ws, "t")
	require.NoError(t, s.Close())
	log := filepath.Join(s.dir, journalDir, "00000001.log")
	whole, err := os.ReadFile(log)
	require.NoError(t, err)
	for _, withIndex := range []bool{true, false} {
		require.NoError(t, os.Remove(log))
		if !withIndex {
			require.NoError(t, os.RemoveAll(filepath.Join(s.dir, indexDir)))
		}
		for range 2 {
			_, err := Open(t.Context(), s.dir, Options{Create: true})
			require.ErrorIs(t, err, index.ErrCorrupt)
			require.NotEmpty(t, Hint(err))
		}
		require.NoError(t, os.WriteFile(log, whole, 0o600))
		openStore(t, s.dir).Close()
	}
}

// On a full disk a store opens, lists and restores; saves are refused; a deletion
// and a collection make room; and with room all is as before.
func TestFullDisk(t *testing.T) {
	mnt := smallDisk(t, "64m")
	dir := filepath.Join(mnt, "store")
	s, err := Open(t.Context(), dir, Options{Create: true})
	require.NoError(t, err)
	ws := filepath.Join(t.TempDir(), "ws")
	noiseFile(t, filepath.Join(ws, "f"), 1, 6<<20)
	doomed := save(t, s, ws, "t")
	noiseFile(t, filepath.Join(ws, "f"), 2, 1<<20)
	kept := save(t, s, ws, "t")
	require.NoError(t, s.Close())

	ballast, err := os.Create(filepath.Join(mnt, "ballast"))
	require.NoError(t, err)
	for err == nil {
		_, err = ballast.Write(castest.Noise(3, 64<<10))
	}
	require.ErrorIs(t, err, unix.ENOSPC)
	require.NoError(t, ballast.Close())
	for _, withIndex := range []bool{true, false} {
		if !withIndex {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, indexDir)))
			grow, err := os.OpenFile(ballast.Name(), os.O_WRONLY|os.O_APPEND, 0)
			require.NoError(t, err)
			for err == nil {
				_, err = grow.Write(castest.Noise(4, 64<<10))
			}
			require.NoError(t, grow.Close())
		}
		s, err = Open(t.Context(), dir, Options{})
		require.NoError(t, err)
		restored(t, s, kept.ID)
		require.Empty(t, faults(t, s))
		_, err = s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t"})
		require.ErrorIs(t, err, cas.ErrNoSpace)
		require.NoError(t, s.Close())
	}
	require.NoError(t, os.Truncate(ballast.Name(), 40<<20))
	s, err = Open(t.Context(), dir, Options{})
	require.NoError(t, err)
	_, err = s.Delete(t.Context(), doomed.ID)
	require.NoError(t, err)
	require.Positive(t, gc(t, s).Freed)
	save(t, s, ws, "t")
	require.Empty(t, faults(t, s))
	require.NoError(t, s.Close())
}

// Somebody else's store is forbidden, not missing and not trouble.
func TestForeignStoreIsForbidden(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs a second user")
	}
	s := newStore(t)
	ws := filepath.Join(userDir(t), "ws")
	write(t, ws, map[string]string{"f": "x"})
	require.NoError(t, disktest.LetIn(filepath.Dir(s.dir)))
	res := asUser(t, "save", s.dir, ws, "t")
	require.Contains(t, res.Err, ErrForbidden.Error())
}

// A collection never passes over a pack that is lost.
func TestGCStopsAtALostPack(t *testing.T) {
	s, _ := unsound(t)
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"f": "x"})
	cp := save(t, s, ws, "t")
	fork, err := s.Fork(t.Context(), cp.ID, ForkOptions{Thread: "u"})
	require.NoError(t, err)
	before := packFiles(t, s)
	require.Len(t, before, 2)
	for _, path := range before {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.Remove(path))
		_, err = s.GC(t.Context(), GCRequest{})
		require.ErrorIs(t, err, cas.ErrNotFound)
		require.NoError(t, os.WriteFile(path, data, 0o600))
	}
	restored(t, s, fork.ID)
}

// On a small file system that is nearly full, a collection rewrites as much as
// there is room for, and so makes room for more.
func TestGCWithLittleRoom(t *testing.T) {
	mnt := smallDisk(t, "64m")
	s := openStore(t, filepath.Join(mnt, "store"))
	ws := filepath.Join(t.TempDir(), "ws")
	var doomed []Checkpoint
	for i := range uint64(6) { // packs that are half dead once their checkpoint is gone
		noiseFile(t, filepath.Join(ws, "kept", string(rune('a'+i))), 100+i, 3<<20)
		noiseFile(t, filepath.Join(ws, "changing"), i, 3<<20)
		doomed = append(doomed, save(t, s, ws, "t"))
	}
	kept := doomed[5]
	fill, err := os.Create(filepath.Join(mnt, "fill"))
	require.NoError(t, err)
	free, err := local.FreeSpace(mnt)
	require.NoError(t, err)
	_, err = fill.Write(castest.Noise(9, int(free-5<<20)))
	require.NoError(t, err)
	require.NoError(t, fill.Close())
	for _, cp := range doomed[:5] {
		_, err := s.Delete(t.Context(), cp.ID)
		require.NoError(t, err)
	}
	res := gc(t, s)
	require.Greater(t, res.Freed, int64(12<<20))
	restored(t, s, kept.ID)
}
