package snapshot

import (
	"fmt"
	iofs "io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/soak"
)

// diskUsage is what du says of a directory, in bytes.
func diskUsage(t *testing.T, dir string) (size int64) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(_ string, e iofs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil {
			size += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return err
	}))
	return size
}

// TestGCGivesSpaceBack: after half of the checkpoints were deleted, a collection with
// 64 MiB of room brings the store to what the rest needs, or little more.
func TestGCGivesSpaceBack(t *testing.T) {
	mnt := smallDisk(t, "1g")
	ws, kept := filepath.Join(t.TempDir(), "ws"), filepath.Join(mnt, "kept")
	count := soak.Rounds(90, 150)
	chance := rand.New(rand.NewPCG(1, 2))
	doomed := map[int]bool{}
	for _, i := range chance.Perm(count)[:count/2] {
		doomed[i] = true
	}
	s, rest := openStore(t, filepath.Join(mnt, "store")), openStore(t, kept)
	var ids []string
	for i := range count {
		for j := range 10 {
			name := fmt.Sprint("each time/", j)
			if j > 7 {
				name = fmt.Sprint("seldom/", chance.IntN(50))
			}
			noiseFile(t, filepath.Join(ws, name), chance.Uint64(), 100_000)
		}
		ids = append(ids, save(t, s, ws, fmt.Sprint("t", i%7)).ID)
		if !doomed[i] {
			save(t, rest, ws, fmt.Sprint("t", i%7))
		}
	}
	gc(t, s) // so that packs are large, and what dies lies among what lives
	for i := range doomed {
		_, err := s.Delete(t.Context(), ids[i])
		require.NoError(t, err)
	}
	require.NoError(t, rest.Close())
	need := diskUsage(t, kept)
	require.NoError(t, os.RemoveAll(kept))
	before := diskUsage(t, s.dir)
	require.NoError(t, unix.Mount("", mnt, "", unix.MS_REMOUNT, fmt.Sprint("size=", before+64<<20)))
	res := gc(t, s)
	require.Zero(t, res.Waiting)
	for i, id := range ids {
		if _, err := s.Resolve(t.Context(), id); doomed[i] {
			require.Error(t, err)
		} else {
			require.NoError(t, err)
		}
	}
	require.NoError(t, s.Close())
	after := diskUsage(t, s.dir)
	t.Logf("%d MB before, %d after, the rest needs %d", before>>20, after>>20, need>>20)
	require.Greater(t, float64(before), 1.5*float64(need), "there was something to free")
	require.Less(t, float64(after), 1.15*float64(need))
	require.Empty(t, faults(t, openStore(t, s.dir)))
}
