package journal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/disk"
	"github.com/snapfs/snapfs/internal/disk/disktest"
)

// threeFiles makes a log of nine entries in three files.
func threeFiles(t *testing.T) (dir string, entries []Entry) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "journal")
	require.NoError(t, os.Mkdir(dir, 0o700))
	for n := range 3 {
		data := fileHeader(uint64(3*n + 1))
		for i := range 3 {
			e := Entry{Seq: uint64(3*n + i + 1), Time: time.Unix(int64(1000+3*n+i), 0).UTC(), Event: event(3*n + i + 1)}
			payload, err := encodePayload(e)
			require.NoError(t, err)
			frame := appendFrame(nil, payload)
			_, e.Sum, _, err = readFrame(frame)
			require.NoError(t, err)
			entries, data = append(entries, e), append(data, frame...)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, segmentName(n+1)), data, 0o600))
	}
	return dir, entries
}

// mend repairs a log; of lost entries nothing is known.
func mend(dir string, committed uint64) (Repaired, error) {
	return Repair(dir, RepairOptions{Committed: committed, Aside: filepath.Join(filepath.Dir(dir), "damaged"), Fill: func(Gap, []Entry) ([]Entry, error) { return nil, nil }})
}

// lostIn returns the numbers of the entries that are lost, and compares the others with
// what they were.
func lostIn(t *testing.T, dir string, was []Entry) (lost []uint64) {
	t.Helper()
	j := open(t, dir, Options{Existing: true})
	for e, err := range j.Replay(1) {
		require.NoError(t, err)
		if _, ok := e.Event.(Lost); ok {
			lost = append(lost, e.Seq)
		} else {
			require.Equal(t, was[e.Seq-1], e)
		}
	}
	last := j.Last()
	appendN(t, j, 1) // and it works on
	require.NoError(t, j.Close())
	for seq := last + 1; seq <= uint64(len(was)); seq++ {
		lost = append(lost, seq)
	}
	return lost
}

// TestRepair: what is lost by which damage.
func TestRepair(t *testing.T) {
	file := func(dir string, n int) string { return filepath.Join(dir, segmentName(n)) }
	flip := func(n int, at func(data []byte) int) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			data, err := os.ReadFile(file(dir, n))
			require.NoError(t, err)
			data[at(data)] ^= 0x20
			require.NoError(t, os.WriteFile(file(dir, n), data, 0o600))
		}
	}
	frame := func(n int) func([]byte) int { // within the n-th frame of a file
		return func(data []byte) int {
			at := fileHeaderSize
			for range n {
				_, _, size, err := readFrame(data[at:])
				if err != nil {
					panic(err)
				}
				at += size
			}
			return at + frameHeaderSize + 3
		}
	}
	const second, third = 4, 7 // first entries of files
	seqs := func(from, to uint64) (all []uint64) {
		for ; from <= to; from++ {
			all = append(all, from)
		}
		return all
	}
	tests := map[string]struct {
		damage    func(t *testing.T, dir string)
		committed uint64
		lost      []uint64
		unchanged bool
	}{
		"nothing":                {func(*testing.T, string) {}, 9, nil, true},
		"an entry in the middle": {flip(2, frame(1)), 9, seqs(second+1, second+1), false},
		"the first":              {flip(1, frame(0)), 9, seqs(1, 1), false},
		"the last of a file":     {flip(1, frame(2)), 9, seqs(second-1, second-1), false},
		"the last":               {flip(3, frame(2)), 9, seqs(9, 9), false},
		"the last, nobody knows": {flip(3, frame(2)), 0, seqs(9, 9), false},
		"a file's header":        {flip(2, func([]byte) int { return 9 }), 9, nil, false},
		"the last file's header": {flip(3, func([]byte) int { return 20 }), 0, nil, false},
		"a file":                 {func(t *testing.T, dir string) { require.NoError(t, os.Remove(file(dir, 2))) }, 9, seqs(second, third-1), false},
		"the first file":         {func(t *testing.T, dir string) { require.NoError(t, os.Remove(file(dir, 1))) }, 9, seqs(1, second-1), false},
		"the last file":          {func(t *testing.T, dir string) { require.NoError(t, os.Remove(file(dir, 3))) }, 9, seqs(third, 9), false},
		"the last file, unknown": {func(t *testing.T, dir string) { require.NoError(t, os.Remove(file(dir, 3))) }, 0, seqs(third, 9), true},
		"a file is zeros": {func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(file(dir, 2), make([]byte, 400), 0o600))
		}, 9, seqs(second, third-1), false},
		"all":                                {func(t *testing.T, dir string) { require.NoError(t, os.RemoveAll(dir)) }, 9, seqs(1, 9), false},
		"half an entry, by crash":            {func(t *testing.T, dir string) { cutFile(t, file(dir, 3), 20) }, 8, seqs(9, 9), true},
		"half an entry, which was committed": {func(t *testing.T, dir string) { cutFile(t, file(dir, 3), 20) }, 9, seqs(9, 9), false},
		"half a file":                        {func(t *testing.T, dir string) { cutFile(t, file(dir, 1), 120) }, 9, seqs(2, 3), false},
		"a file twice": {func(t *testing.T, dir string) {
			data, err := os.ReadFile(file(dir, 1))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(file(dir, 2), data, 0o600))
		}, 9, seqs(second, third-1), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir, entries := threeFiles(t)
			test.damage(t, dir)
			before, _ := os.ReadDir(dir)
			err := readAll(dir, test.committed)
			if !test.unchanged {
				require.ErrorIs(t, err, index.ErrCorrupt)
			}
			got, err := mend(dir, test.committed)
			require.NoError(t, err)
			if test.unchanged {
				require.Empty(t, got.Gaps)
				require.Empty(t, got.Copies)
			} else if len(before) > 0 && name != "a file" && name != "the first file" && name != "the last file" {
				require.NotEmpty(t, got.Copies)
			}
			again, err := mend(dir, test.committed)
			require.NoError(t, err)
			require.Empty(t, again.Gaps, "it is whole now")
			require.Empty(t, again.Copies)
			lost := lostIn(t, dir, entries)
			require.Equal(t, test.lost, lost)
		})
	}
}

// readAll opens a log and reads all of it.
func readAll(dir string, committed uint64) error {
	j, err := Open(dir, Options{Existing: true, Committed: func() (uint64, error) { return committed, nil }})
	if err != nil {
		return err
	}
	for _, err := range j.Replay(1) {
		if err != nil {
			return errors.Join(err, j.Close())
		}
	}
	return j.Close()
}

// cutFile takes bytes off a file's end.
func cutFile(t *testing.T, path string, n int64) {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, info.Size()-n))
}

// TestRepairFills: what is known of lost entries stands in their place, no more of it
// than were lost, and at the end all.
func TestRepairFills(t *testing.T) {
	for _, test := range []struct {
		missing  int // file
		known    int
		wantLost int
		wantLast uint64
	}{{2, 0, 3, 9}, {2, 1, 2, 9}, {2, 3, 0, 9}, {2, 7, 0, 9}, {3, 0, 3, 9}, {3, 2, 1, 9}, {3, 7, 0, 13}} {
		t.Run(fmt.Sprintf("file %d, %d known", test.missing, test.known), func(t *testing.T) {
			dir, entries := threeFiles(t)
			require.NoError(t, os.Remove(filepath.Join(dir, segmentName(test.missing))))
			var found []Entry
			for i := range test.known {
				found = append(found, Entry{Time: time.Unix(int64(i+1), 0).UTC(), Event: Rename{Org: "found", Name: fmt.Sprint(i)}})
			}
			got, err := Repair(dir, RepairOptions{Committed: 9, Aside: dir + "-aside", Fill: func(g Gap, kept []Entry) ([]Entry, error) {
				require.Len(t, kept, 6)
				require.Equal(t, test.missing == 3, g.Before.IsZero())
				return found, nil
			}})
			require.NoError(t, err)
			require.Len(t, got.Gaps, 1)
			j := open(t, dir, Options{Existing: true})
			require.Equal(t, test.wantLast, j.Last())
			lost, filled := 0, 0
			for e, err := range j.Replay(1) {
				require.NoError(t, err)
				switch ev := e.Event.(type) {
				case Lost:
					lost++
				case Rename:
					if ev.Org == "found" {
						require.Equal(t, fmt.Sprint(filled), ev.Name)
						require.Equal(t, found[filled].Time, e.Time)
						filled++
						continue
					}
					require.Equal(t, entries[e.Seq-1], e)
				default:
					require.Equal(t, entries[e.Seq-1], e)
				}
			}
			require.Equal(t, test.wantLost, lost)
		})
	}
}

// TestRepairAnything: after damage at random every entry that was not touched is there.
func TestRepairAnything(t *testing.T) {
	for seed := range uint64(60) {
		dir, entries := threeFiles(t)
		chance := rand.New(rand.NewPCG(seed, 7))
		touched := map[uint64]bool{}
		var all [][]byte
		for n := 1; n <= 3; n++ {
			data, err := os.ReadFile(filepath.Join(dir, segmentName(n)))
			require.NoError(t, err)
			all = append(all, data)
		}
		for range 1 + chance.IntN(3) {
			n := chance.IntN(3)
			at := chance.IntN(len(all[n]))
			size := min(1+chance.IntN(200), len(all[n])-at)
			first, err := readFileHeader(threeFirst(t, dir, n+1))
			require.NoError(t, err)
			whole, err := os.ReadFile(filepath.Join(dir, segmentName(n+1)))
			require.NoError(t, err)
			off := fileHeaderSize
			for seq := first; off < len(whole); seq++ {
				_, _, length, err := readFrame(whole[off:])
				require.NoError(t, err)
				if at < off+length && off < at+size {
					touched[seq] = true
				}
				off += length
			}
			for i := range size {
				all[n][at+i] = byte(chance.Uint32())
			}
		}
		for n, data := range all {
			require.NoError(t, os.WriteFile(filepath.Join(dir, segmentName(n+1)), data, 0o600))
		}
		_, err := mend(dir, 9)
		require.NoError(t, err)
		var lost []uint64
		for _, seq := range lostIn(t, dir, entries) {
			require.True(t, touched[seq], "seed %d: entry %d is lost", seed, seq)
			lost = append(lost, seq)
		}
		require.True(t, slices.IsSorted(lost))
	}
}

func threeFirst(t *testing.T, dir string, n int) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, segmentName(n)))
	require.NoError(t, err)
	return data
}

// TestEveryFaultInRepair: whatever goes wrong in it, it can be run again.
func TestEveryFaultInRepair(t *testing.T) {
	points := 0
	for _, left := range []disktest.Left{disktest.Least, disktest.Some, disktest.Most} {
		for at := 1; ; at++ {
			dir, entries := threeFiles(t)
			path := filepath.Join(dir, segmentName(2))
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			data[fileHeaderSize+20] ^= 1
			require.NoError(t, os.WriteFile(path, data, 0o600))
			require.NoError(t, os.Remove(filepath.Join(dir, segmentName(1))))
			d, err := disktest.New(filepath.Dir(dir), uint64(at))
			require.NoError(t, err)
			d.Arm(disktest.Fault{At: at, Power: true})
			run := func(fsys disk.FS, dir string) error {
				_, err := Repair(dir, RepairOptions{FS: fsys, Committed: 9, Aside: filepath.Join(filepath.Dir(dir), "damaged"), Fill: func(Gap, []Entry) ([]Entry, error) { return nil, nil }})
				return err
			}
			err = run(d, dir)
			if d.Met() == "" {
				require.NoError(t, err)
				break
			}
			points++
			require.ErrorIs(t, err, disktest.ErrPowerLost)
			crashed := filepath.Join(t.TempDir(), "crashed")
			require.NoError(t, d.Crash(crashed, left))
			crashed = filepath.Join(crashed, filepath.Base(dir))
			require.NoError(t, run(disk.OS, crashed))
			lost := lostIn(t, crashed, entries)
			require.Equal(t, []uint64{1, 2, 3, 4}, lost)
		}
	}
	require.Greater(t, points, 30)
	t.Logf("mending a journal: %d points tried", points)
}
