package snapshot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/internal/disk/disktest"
	"github.com/snapfs/snapfs/tree"
)

// A victim is a store with all that can be damaged: thread T with the checkpoints
// old and new, and F, a fork of old. What new changed and the fork have lies in
// packs of their own.
type victim struct {
	s        *Store
	ws       string
	artifact string
}

const oldConversation = `[{"role":"user","content":"as it was"}]`

func newVictim(t *testing.T) *victim {
	t.Helper()
	top := disktest.Memory(t)
	s, err := Open(t.Context(), filepath.Join(top, "store"), Options{Create: true})
	require.NoError(t, err)
	v := &victim{s: s, ws: filepath.Join(top, "w", "ws"), artifact: filepath.Join(top, "report")}
	t.Cleanup(func() { _ = v.s.Close() })
	require.NoError(t, os.WriteFile(v.artifact, []byte("the report"), 0o600))
	v.fill(t)
	v.save(t, "old")
	_, err = v.s.Fork(t.Context(), "old", ForkOptions{Thread: "F", ID: "fork"})
	require.NoError(t, err)
	v.change(t)
	_, err = v.s.Save(t.Context(), SaveOptions{Workspace: v.ws, Thread: "T", ID: "new"})
	require.NoError(t, err)
	return v
}

// fill makes the workspace of old.
func (v *victim) fill(t *testing.T) {
	t.Helper()
	files := map[string]string{
		"dir/changing": "old content", "dir/text": strings.Repeat("snappy packs this ", 100),
		"shared/deep/f": "a twin", "shared/long": strings.Repeat("zstd packs this well ", 4000), "shared/empty": "",
	}
	for i := range 400 {
		files[fmt.Sprintf("many/%03d", i)] = fmt.Sprint("one of many: ", i)
	}
	write(t, v.ws, files)
	_ = os.Remove(filepath.Join(v.ws, "shared", "twin"))
	noiseFile(t, filepath.Join(v.ws, "big"), 1, 2<<20)
	for i := range 3 {
		noiseFile(t, filepath.Join(v.ws, "dir", fmt.Sprint("noise", i)), uint64(10+i), 5000)
	}
	v.settle(t)
}

// change makes the workspace of new.
func (v *victim) change(t *testing.T) {
	t.Helper()
	write(t, v.ws, map[string]string{"dir/changing": "new content", "shared/twin": "a twin"})
	v.settle(t)
}

// settle gives everything one time, so that the same content makes the same tree.
func (v *victim) settle(t *testing.T) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(v.ws, func(path string, _ os.DirEntry, err error) error {
		at := time.Unix(1_700_000_000, 12345)
		return errors.Join(err, os.Chtimes(path, at, at))
	}))
}

// save saves the workspace with an artifact and a conversation.
func (v *victim) save(t *testing.T, id string) {
	t.Helper()
	_, err := v.s.Save(t.Context(), SaveOptions{
		Workspace: v.ws, Thread: "T", ID: id, Conversation: strings.NewReader(oldConversation),
		Artifacts: []ArtifactFile{{Path: v.artifact}},
	})
	require.NoError(t, err)
}

// entry is what a checkpoint has at a path.
func (v *victim) entry(t *testing.T, id, path string) tree.Entry {
	t.Helper()
	_, rec, err := v.s.record(t.Context(), id)
	require.NoError(t, err)
	e, err := v.s.trees.Find(t.Context(), rec.Root.Tree, path)
	require.NoError(t, err)
	return e
}

func (v *victim) file(t *testing.T, id, path string) cas.Key {
	return cas.Key{NS: cas.Files, Hash: v.entry(t, id, path).Hash}
}

func (v *victim) tree(t *testing.T, id, path string) cas.Key {
	return cas.Key{NS: cas.Trees, Hash: v.entry(t, id, path).Hash}
}

func (v *victim) at(t *testing.T, key cas.Key) cas.Located {
	t.Helper()
	at, err := v.s.holder.Locate(t.Context(), []cas.Key{key})
	require.NoError(t, err)
	require.False(t, at[0].IsZero())
	return cas.Located{Key: key, Location: at[0]}
}

func (v *victim) pack(id cas.PackID) string {
	name := id.String()
	return filepath.Join(v.s.dir, "packs", name[:2], name+".pack")
}

// flip changes one byte of a pack.
func (v *victim) flip(t *testing.T, id cas.PackID, off int64) {
	t.Helper()
	f, err := os.OpenFile(v.pack(id), os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	b := make([]byte, 1)
	if off < 0 {
		info, err := f.Stat()
		require.NoError(t, err)
		off += info.Size()
	}
	_, err = f.ReadAt(b, off)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{b[0] ^ 0x10}, off)
	require.NoError(t, err)
}

// flipObject changes the last byte of an object's record.
func (v *victim) flipObject(t *testing.T, key cas.Key) {
	t.Helper()
	o := v.at(t, key)
	v.flip(t, o.Location.Pack, local.RecordEnd(o.Location)-1)
}

// reopen forgets all that is in memory, and all of the index if that is wanted.
func (v *victim) reopen(t *testing.T, withIndex bool) {
	t.Helper()
	require.NoError(t, v.s.Close())
	if !withIndex {
		require.NoError(t, os.RemoveAll(filepath.Join(v.s.dir, indexDir)))
	}
	s, err := Open(t.Context(), v.s.dir, Options{})
	require.NoError(t, err)
	v.s = s
}

// verify returns who suffers, "checkpoint ID: WHAT", and how many other findings
// there are.
func (v *victim) verify(t *testing.T, opt VerifyOptions) (who []string, others int, res VerifyResult) {
	t.Helper()
	res, err := v.s.Verify(t.Context(), opt, func(problem string) error {
		parts := strings.SplitN(problem, ": ", 3)
		if strings.HasPrefix(problem, "checkpoint ") || strings.HasPrefix(problem, "thread ") {
			what := parts[1]
			if strings.HasPrefix(what, "artifact ") {
				what = "artifact" // whose id is made up
			}
			who = append(who, parts[0]+": "+what)
			require.NotContains(t, parts[2], "%!")
			if strings.Contains(parts[2], cas.ErrCorrupt.Error()) {
				require.Contains(t, parts[2], "pack ", "where")
			}
		} else {
			others++
		}
		return nil
	})
	require.NoError(t, err)
	slices.Sort(who)
	return who, others, res
}

// damages are what may happen to a store. Each says who suffers.
var damages = map[string]struct {
	harm   func(t *testing.T, v *victim)
	who    []string
	lasts  []string // who suffers after a repair, if others
	stays  []string // and after the same content was saved again
	others int      // findings about packs; -1: some
	quiet  bool     // structure alone does not show it
}{
	"nothing": {harm: func(*testing.T, *victim) {}},
	"a file that new has not": {
		harm:   func(t *testing.T, v *victim) { v.flipObject(t, v.file(t, "old", "dir/changing")) },
		who:    []string{"checkpoint fork: dir/changing", "checkpoint old: dir/changing"},
		others: 1, quiet: true,
	},
	"a file of new alone": {
		harm:   func(t *testing.T, v *victim) { v.flipObject(t, v.file(t, "new", "dir/changing")) },
		who:    []string{"checkpoint new: dir/changing"},
		others: 1, quiet: true,
	},
	"a file with a twin": {
		harm:   func(t *testing.T, v *victim) { v.flipObject(t, v.file(t, "old", "shared/deep/f")) },
		who:    []string{"checkpoint fork: shared/deep/f", "checkpoint new: shared/deep/f", "checkpoint new: shared/twin", "checkpoint old: shared/deep/f"},
		others: 1, quiet: true,
	},
	"files of all encodings": {
		harm: func(t *testing.T, v *victim) {
			encodings := map[cas.Encoding]bool{}
			for _, path := range []string{"dir/noise1", "dir/text", "shared/long"} {
				key := v.file(t, "old", path)
				encodings[v.at(t, key).Location.Encoding] = true
				v.flipObject(t, key)
			}
			require.Len(t, encodings, 3)
		},
		who: []string{
			"checkpoint fork: dir/noise1", "checkpoint fork: dir/text", "checkpoint fork: shared/long", "checkpoint new: dir/noise1", "checkpoint new: dir/text",
			"checkpoint new: shared/long", "checkpoint old: dir/noise1", "checkpoint old: dir/text", "checkpoint old: shared/long",
		},
		others: 3, quiet: true,
	},
	"a chunk": {
		harm: func(t *testing.T, v *victim) {
			e := v.entry(t, "old", "big")
			chunks, err := cas.Chunks(t.Context(), v.s.blobs, cas.Files, cas.Blob{Hash: e.Hash, Size: int64(e.Size)})
			require.NoError(t, err)
			require.Greater(t, len(chunks), 1)
			v.flipObject(t, cas.Key{NS: cas.Files, Hash: chunks[1].Hash})
		},
		who:    []string{"checkpoint fork: big", "checkpoint new: big", "checkpoint old: big"},
		others: 1, quiet: true,
	},
	"a chunk list": {
		harm:   func(t *testing.T, v *victim) { v.flipObject(t, v.file(t, "old", "big")) },
		who:    []string{"checkpoint fork: big", "checkpoint new: big", "checkpoint old: big"},
		others: 1,
	},
	"a segment of a large directory": {
		harm: func(t *testing.T, v *victim) {
			data, err := v.s.blobs.Read(t.Context(), v.tree(t, "old", "many"), nil)
			require.NoError(t, err)
			refs, err := tree.Refs(data)
			require.NoError(t, err)
			require.Equal(t, cas.Trees, refs[1].Key.NS)
			v.flipObject(t, refs[1].Key)
		},
		who:    []string{"checkpoint fork: many", "checkpoint new: many", "checkpoint old: many"},
		others: 1,
	},
	"a directory of two": {
		harm:   func(t *testing.T, v *victim) { v.flipObject(t, v.tree(t, "old", "dir")) },
		who:    []string{"checkpoint fork: dir", "checkpoint old: dir"},
		others: 1,
	},
	"a root": {
		harm: func(t *testing.T, v *victim) {
			_, rec, err := v.s.record(t.Context(), "old")
			require.NoError(t, err)
			v.flipObject(t, cas.Key{NS: cas.Trees, Hash: rec.Root.Tree})
		},
		who:    []string{"checkpoint fork: tree", "checkpoint old: tree"},
		others: 1,
	},
	"a record": {
		harm: func(t *testing.T, v *victim) {
			cp, err := v.s.Resolve(t.Context(), "old")
			require.NoError(t, err)
			hash, err := cas.ParseHash(cp.Record)
			require.NoError(t, err)
			v.flipObject(t, cas.Key{NS: cas.Records, Hash: hash})
		},
		who:    []string{"checkpoint old: record"},
		lasts:  []string{},
		others: 1,
	},
	"an artifact": {
		harm: func(t *testing.T, v *victim) {
			v.flipObject(t, cas.NewObject(cas.Artifacts, cas.Data, []byte("the report")).Key)
		},
		who: []string{
			"checkpoint fork: artifact", "checkpoint new: artifact", "checkpoint old: artifact",
			"thread F: artifact", "thread T: artifact",
		},
		others: 1, quiet: true,
	},
	"a conversation": {
		harm: func(t *testing.T, v *victim) {
			v.flipObject(t, cas.NewObject(cas.Conversations, cas.Data, []byte(oldConversation)).Key)
		},
		who:    []string{"checkpoint fork: conversation", "checkpoint old: conversation"},
		others: 1,
	},
	"a footer": {
		harm: func(t *testing.T, v *victim) {
			v.flip(t, v.at(t, v.file(t, "old", "big")).Location.Pack, -20)
		},
		others: 1,
	},
	"a footer's magic, and a file behind which others lie": {
		harm: func(t *testing.T, v *victim) {
			o := v.at(t, v.file(t, "old", "dir/noise0"))
			v.flip(t, o.Location.Pack, -1)
			v.flip(t, o.Location.Pack, int64(o.Location.Offset)) // the record's header
		},
		who:    []string{"checkpoint fork: dir/noise0", "checkpoint new: dir/noise0", "checkpoint old: dir/noise0"},
		others: 1,
	},
	"a pack's header": {
		harm:   func(t *testing.T, v *victim) { v.flip(t, v.at(t, v.file(t, "old", "big")).Location.Pack, 3) },
		others: 1,
	},
	"a pack that is gone": {
		harm: func(t *testing.T, v *victim) {
			require.NoError(t, os.Remove(v.pack(v.at(t, v.file(t, "new", "dir/changing")).Location.Pack)))
		},
		who:   []string{"checkpoint new: record"},
		lasts: []string{"checkpoint new: tree"},
	},
	"a pack that others need and that is cut": {
		harm: func(t *testing.T, v *victim) { // all but the big file's chunks and what was stored before them
			require.NoError(t, os.Truncate(v.pack(v.at(t, v.file(t, "old", "big")).Location.Pack), 40))
		},
		who: []string{
			"checkpoint fork: artifacts", "checkpoint fork: conversation", "checkpoint fork: policy", "checkpoint fork: tree",
			"checkpoint new: artifacts", "checkpoint new: big", "checkpoint new: dir/noise0", "checkpoint new: dir/noise1", "checkpoint new: dir/noise2",
			"checkpoint new: dir/text", "checkpoint new: many", "checkpoint new: policy", "checkpoint new: shared/deep", "checkpoint new: shared/empty", "checkpoint new: shared/long",
			"checkpoint new: shared/twin", "checkpoint old: record", "thread F: artifact", "thread T: artifact",
		},
		lasts: []string{
			"checkpoint fork: artifacts", "checkpoint fork: conversation", "checkpoint fork: policy", "checkpoint fork: tree",
			"checkpoint new: artifacts", "checkpoint new: big", "checkpoint new: dir/noise0", "checkpoint new: dir/noise1", "checkpoint new: dir/noise2",
			"checkpoint new: dir/text", "checkpoint new: many", "checkpoint new: policy", "checkpoint new: shared/deep", "checkpoint new: shared/empty", "checkpoint new: shared/long",
			"checkpoint new: shared/twin", "checkpoint old: artifacts", "checkpoint old: conversation", "checkpoint old: policy", "checkpoint old: tree",
			"thread F: artifact", "thread T: artifact",
		},
		// A list with ids of its own is never saved again.
		stays:  []string{"checkpoint fork: artifacts", "checkpoint new: artifacts", "checkpoint old: artifacts"},
		others: 1,
	},
}

// TestVerifyNamesWhoSuffers: whatever is damaged, exactly the checkpoints and paths
// that need it are named, and nothing else is touched by a repair.
func TestVerifyNamesWhoSuffers(t *testing.T) {
	for name, test := range damages {
		t.Run(name, func(t *testing.T) {
			v := newVictim(t)
			test.harm(t, v)
			who, others, _ := v.verify(t, VerifyOptions{Data: true})
			require.Equal(t, test.who, who)
			require.Equal(t, test.others, others)
			if who, _, _ = v.verify(t, VerifyOptions{}); test.quiet {
				require.Empty(t, who)
			} else {
				require.Equal(t, test.who, who)
			}
			for _, id := range []string{"old", "fork", "new"} {
				var want []string
				for _, w := range test.who {
					if strings.HasPrefix(w, "checkpoint "+id+":") {
						want = append(want, w)
					}
				}
				who, _, _ = v.verify(t, VerifyOptions{Ref: id, Data: true})
				require.Equal(t, want, who)
			}
		})
	}
}
