package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/disk/disktest"
	"github.com/snapfs/snapfs/policy"
)

// eventful makes a store with some of everything in its journal, closes it, and tells
// what it shows.
func eventful(t *testing.T) (dir string, shows map[string]published) {
	t.Helper()
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	file := filepath.Join(t.TempDir(), "artifact")
	require.NoError(t, os.WriteFile(file, []byte("an artifact"), 0o644))
	put := func(thread, id, name, content string) {
		write(t, ws, map[string]string{"f": content})
		_, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: thread, ID: id, Name: name, Files: policy.FilesOptions{NoDefaults: true}})
		require.NoError(t, err)
	}
	put("a", "a-first", "", "1")                          // entry 1
	put("a", "a-second", "in-publish", "2")               // 2
	put("b", "b-first", "", "3")                          // 3
	_, err := s.Rename(t.Context(), "a-first", "renamed") // 4
	require.NoError(t, err)
	put("gone", "gone-first", "", "4")                                                                                     // 5
	_, _, err = s.AddArtifact(t.Context(), "a", ArtifactFile{Name: "x", Path: file}, policy.SecretsWarn, SecretsOptions{}) // 6
	require.NoError(t, err)
	put("b", "b-second", "", "5")             // 7
	_, err = s.Delete(t.Context(), "b-first") // 8
	require.NoError(t, err)
	require.NoError(t, s.DeleteThread(t.Context(), "gone")) // 9
	put("a", "a-third", "", "6")                            // 10
	shows = stateOf(t, s)
	require.NoError(t, s.Close())
	return s.dir, shows
}

// flipEntries damages entries of a journal's only file, by number.
func flipEntries(t *testing.T, dir string, which ...int) {
	t.Helper()
	path := filepath.Join(dir, journalDir, "00000001.log")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	at := 28
	for n := 1; at < len(data); n++ {
		for _, w := range which {
			if n == w {
				data[at+15] ^= 4
			}
		}
		at += 12 + int(binary.BigEndian.Uint32(data[at+4:]))
	}
	require.NoError(t, os.WriteFile(path, data, 0o600))
}

func reindex(t *testing.T, dir string) (res ReindexResult, problems []string) {
	t.Helper()
	res, err := Reindex(t.Context(), dir, Options{}, func(p string) error {
		problems = append(problems, p)
		return nil
	})
	require.NoError(t, err)
	return res, problems
}

// TestReindex: packs and journal alone give all back, and again.
func TestReindex(t *testing.T) {
	dir, shows := eventful(t)
	for _, lost := range []bool{true, false} {
		if lost {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, indexDir)))
		}
		res, problems := reindex(t, dir)
		require.Empty(t, problems)
		require.Equal(t, ReindexResult{Threads: 2, Checkpoints: 4, Packs: 7}, res)
		s := openStore(t, dir)
		require.Equal(t, shows, stateOf(t, s))
		require.NoError(t, s.Close())
	}
	require.NoDirExists(t, filepath.Join(dir, local.DamagedDir))
}

// TestReindexHeld: who has the store is named.
func TestReindexHeld(t *testing.T) {
	s := newStore(t)
	_, err := Reindex(t.Context(), s.dir, Options{}, nil)
	require.ErrorIs(t, err, ErrLocked)
	require.ErrorContains(t, err, "process")
}

// TestReindexMendsTheJournal: damage anywhere in the journal is refused, told, and
// mended. With an index that knows, nothing is lost; without one the checkpoints come
// back from their records.
func TestReindexMendsTheJournal(t *testing.T) {
	whole := func(map[string]published) {}
	set := func(key string, change func(p *published)) func(map[string]published) {
		return func(m map[string]published) {
			p := m[key]
			change(&p)
			m[key] = p
		}
	}
	unnamed := func(p *published) { p.Name = "" }
	tests := map[string]struct {
		entries []int
		indexed func(map[string]published) // what is other with the old index; at the journal's end there is none
		without func(map[string]published) // and without
	}{
		"a publish":        {[]int{1}, whole, whole},
		"a named one":      {[]int{2}, whole, set("a-second", unnamed)},
		"three of them":    {[]int{1, 2, 3}, whole, set("a-second", unnamed)},
		"a rename":         {[]int{4}, whole, set("a-first", unnamed)},
		"an artifact":      {[]int{6}, whole, set("thread a", func(p *published) { p.Artifacts = "" })},
		"the last":         {[]int{10}, nil, whole},
		"all but the last": {[]int{1, 2, 3, 4, 5, 6, 7, 8, 9}, whole, nil},
	}
	for name, test := range tests {
		for _, withIndex := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				dir, shows := eventful(t)
				flipEntries(t, dir, test.entries...)
				change := test.without
				if withIndex && test.indexed != nil {
					change = test.indexed
				}
				if change == nil {
					t.Skip("the records say which checkpoints there were, and not what became of them")
				}
				if !withIndex {
					require.NoError(t, os.RemoveAll(filepath.Join(dir, indexDir)))
				}
				if _, err := Open(t.Context(), dir, Options{}); err != nil {
					require.ErrorIs(t, err, index.ErrCorrupt)
				} else {
					t.Fatal("the damage is not seen")
				}
				_, problems := reindex(t, dir)
				require.Contains(t, strings.Join(problems, "\n"), "lost")
				s := openStore(t, dir)
				change(shows)
				require.Equal(t, shows, stateOf(t, s))
				ws := t.TempDir()
				write(t, ws, map[string]string{"g": "1"})
				save(t, s, ws, "a")
				require.NoError(t, s.Close())
				copies, err := os.ReadDir(filepath.Join(dir, local.DamagedDir))
				require.NoError(t, err)
				require.Len(t, copies, 1)
			})
		}
	}
}

// TestReindexWithoutAJournal: every checkpoint whose record is there comes back.
func TestReindexWithoutAJournal(t *testing.T) {
	dir, shows := eventful(t)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, journalDir)))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, indexDir)))
	_, problems := reindex(t, dir)
	require.NotEmpty(t, problems)
	s := openStore(t, dir)
	got := stateOf(t, s)
	for id, want := range shows {
		if !strings.HasPrefix(id, "thread ") {
			require.Equal(t, want.Tree, got[id].Tree, id)
		}
	}
	require.Equal(t, "a-third", got["thread a"].Thread)
	require.Equal(t, "b-second", got["thread b"].Thread)
}

// TestReindexTellsLostRecords: a checkpoint whose record's pack is gone is named.
func TestReindexTellsLostRecords(t *testing.T) {
	dir, _ := eventful(t)
	s := openStore(t, dir)
	cp, err := s.Resolve(t.Context(), "a-second")
	require.NoError(t, err)
	hash, err := cas.ParseHash(cp.Record)
	require.NoError(t, err)
	at, err := s.holder.Locate(t.Context(), []cas.Key{{NS: cas.Records, Hash: hash}})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	for id, err := range local.Packs(dir) {
		require.NoError(t, err)
		if id == at[0].Pack {
			name := id.String()
			require.NoError(t, os.Remove(filepath.Join(dir, "packs", name[:2], name+".pack")))
		}
	}
	_, problems := reindex(t, dir)
	require.Len(t, problems, 1)
	require.Contains(t, problems[0], "checkpoint a-second of thread a is lost")
}

// TestReindexTrustsNoContent: a file that looks like a checkpoint's record of somebody
// else's thread, in a pack so damaged that it is found, becomes none.
func TestReindexTrustsNoContent(t *testing.T) {
	place := func(s *Store, key cas.Key) (path string, at cas.Location) {
		locs, err := s.holder.Locate(t.Context(), []cas.Key{key})
		require.NoError(t, err)
		name := locs[0].Pack.String()
		return filepath.Join(s.dir, "packs", name[:2], name+".pack"), locs[0]
	}
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"f": "1"})
	other := newStore(t)
	cp := save(t, other, ws, "victim")
	hash, err := cas.ParseHash(cp.Record)
	require.NoError(t, err)
	pack, at := place(other, cas.Key{NS: cas.Records, Hash: hash})
	data, err := os.ReadFile(pack)
	require.NoError(t, err)
	evil := data[at.Offset : at.Offset+64+at.Stored]

	s := newStore(t)
	require.NoError(t, os.WriteFile(filepath.Join(ws, "evil"), evil, 0o644))
	_, err = s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t", Compression: local.Off})
	require.NoError(t, err)
	pack, at = place(s, cas.NewObject(cas.Files, cas.Data, evil).Key)
	require.NoError(t, s.Close())
	data, err = os.ReadFile(pack)
	require.NoError(t, err)
	data[at.Offset] ^= 1
	require.NoError(t, os.WriteFile(pack, data[:len(data)-10], 0o600))
	objects, err := local.Footer(s.dir, at.Pack)
	require.NoError(t, err)
	require.Contains(t, keysOf(objects), cas.Key{NS: cas.Records, Hash: hash}, "the search finds it")
	require.NoError(t, os.RemoveAll(filepath.Join(s.dir, journalDir)))
	require.NoError(t, os.RemoveAll(filepath.Join(s.dir, indexDir)))
	_, problems := reindex(t, s.dir)
	require.Contains(t, strings.Join(problems, "\n"), "checkpoints are not looked for in it")
	again, err := Open(t.Context(), s.dir, Options{})
	require.NoError(t, err)
	defer again.Close()
	threads, err := again.Threads(t.Context(), Page{})
	require.NoError(t, err)
	require.Empty(t, threads)
}

func keysOf(objects []cas.Located) (keys []cas.Key) {
	for _, o := range objects {
		keys = append(keys, o.Key)
	}
	return keys
}

// TestEveryFaultInReindex: a repair that is interrupted at any operation of the disk
// keeps the store closed until it is run again, and then nothing is lost.
func TestEveryFaultInReindex(t *testing.T) {
	from, shows := eventful(t)
	flipEntries(t, from, 2, 4, 6, 10)
	points := 0
	for _, left := range []disktest.Left{disktest.Least, disktest.Some, disktest.Most} {
		for at := 1; ; at++ {
			top := disktest.Memory(t)
			dir := filepath.Join(top, "store")
			require.NoError(t, os.CopyFS(dir, os.DirFS(from)))
			d, err := disktest.New(dir, uint64(at))
			require.NoError(t, err)
			d.Arm(disktest.Fault{At: at, Power: true})
			quiet := func(string) error { return nil }
			_, err = Reindex(t.Context(), dir, Options{fsys: d, bootID: "first"}, quiet)
			if d.Met() == "" {
				require.NoError(t, err)
				break
			}
			points++
			what := fmt.Sprintf("power lost at operation %d, %q, left %d, error %v", at, d.Met(), left, err)
			crashed := filepath.Join(top, "crashed")
			require.NoError(t, d.Crash(crashed, left))
			s, oerr := Open(t.Context(), crashed, Options{bootID: "second"})
			if oerr == nil {
				require.Equal(t, shows, stateOf(t, s), what)
				require.NoError(t, s.Close())
			} else {
				require.ErrorIs(t, oerr, index.ErrCorrupt, what)
				_, err = Reindex(t.Context(), crashed, Options{bootID: "second"}, quiet)
				require.NoError(t, err, what)
			}
			s, err = Open(t.Context(), crashed, Options{bootID: "second"})
			require.NoError(t, err, what)
			require.Equal(t, shows, stateOf(t, s), what)
			require.Empty(t, faults(t, s), what)
			require.NoError(t, errors.Join(s.Close(), os.RemoveAll(top)))
		}
	}
	require.Greater(t, points, 30)
	t.Logf("making an index anew: %d points tried", points)
}

// TestReindexKnowsRecordsWithoutAFooter: with the old index a checkpoint needs no footer
// to come back.
func TestReindexKnowsRecordsWithoutAFooter(t *testing.T) {
	dir, shows := eventful(t)
	for id, err := range local.Packs(dir) {
		require.NoError(t, err)
		name := id.String()
		path := filepath.Join(dir, "packs", name[:2], name+".pack")
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		data[len(data)-3] ^= 1
		require.NoError(t, os.WriteFile(path, data, 0o600))
	}
	require.NoError(t, os.RemoveAll(filepath.Join(dir, journalDir)))
	_, problems := reindex(t, dir)
	require.NotContains(t, strings.Join(problems, "\n"), "its record is not in the packs")
	s, err := Open(t.Context(), dir, Options{})
	require.NoError(t, err)
	defer s.Close()
	require.Equal(t, shows, stateOf(t, s))
}

// TestEmptyJournalFile: a journal whose only file was cut to less than its header is
// no new store's.
func TestEmptyJournalFile(t *testing.T) {
	for _, size := range []int64{0, 27} {
		dir, shows := eventful(t)
		require.NoError(t, os.Truncate(filepath.Join(dir, journalDir, "00000001.log"), size))
		require.NoError(t, os.RemoveAll(filepath.Join(dir, indexDir)))
		_, err := Open(t.Context(), dir, Options{})
		require.ErrorIs(t, err, index.ErrCorrupt)
		_, problems := reindex(t, dir)
		require.NotEmpty(t, problems)
		s := openStore(t, dir)
		require.Equal(t, shows["a-third"].Tree, stateOf(t, s)["a-third"].Tree)
		require.NoError(t, s.Close())
	}
}
