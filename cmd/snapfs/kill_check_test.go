package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	iofs "io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/snapshot"
)

// state is what a store has to hold.
type state struct {
	threads map[string]bool
	points  map[string]point // by id
	made    int              // counts what was ever planned
}

// point is a checkpoint, and what its workspace was.
type point struct {
	thread, name string
	made         int
	tree         map[string]string
}

func newState() state { return state{threads: map[string]bool{}, points: map[string]point{}} }

func (s state) clone() state {
	s.threads, s.points = maps.Clone(s.threads), maps.Clone(s.points)
	return s
}

// view is what listings of the state show: by thread, the head and then each
// checkpoint, newest first.
func (s state) view() map[string][]string {
	view := map[string][]string{}
	ids := slices.SortedFunc(maps.Keys(s.points), func(a, b string) int { return cmp.Compare(s.points[b].made, s.points[a].made) })
	for thread := range s.threads {
		lines := []string{"head "}
		for _, id := range ids {
			p := s.points[id]
			if p.thread != thread {
				continue
			}
			if len(lines) == 1 {
				lines[0] += id
			}
			lines = append(lines, fmt.Sprintf("%s ready %q", id, p.name))
		}
		view[thread] = lines
	}
	return view
}

// listed is the view that the store's own listings give.
func (r *rounds) listed() map[string][]string {
	view := map[string][]string{}
	for line := range strings.Lines(r.run("list", "--json")) {
		var thread snapshot.Thread
		require.NoError(r.t, json.Unmarshal([]byte(line), &thread))
		lines := []string{"head " + thread.Head}
		for line := range strings.Lines(r.run("list", "--all", "--json", thread.ID)) {
			var cp snapshot.Checkpoint
			require.NoError(r.t, json.Unmarshal([]byte(line), &cp))
			lines = append(lines, fmt.Sprintf("%s %s %q", cp.ID, cp.Status, cp.Name))
		}
		view[thread.ID] = lines
	}
	return view
}

// checkSome is what is looked at in each round.
func (r *rounds) checkSome(verb string, got result) {
	r.checkRestore(r.any())
	if r.d != nil && r.newMount {
		r.checkMount(r.any())
		r.newMount = false
	}
	// A process that takes the store sweeps it, and so does the end of a session.
	if r.mount == "" || got.code == 0 && r.d != nil && slices.Contains([]string{"save", "fork", "gc"}, verb) {
		r.checkTemporary()
	}
}

// checkAll is what is looked at every few rounds.
func (r *rounds) checkAll() {
	require.Empty(r.t, r.run("verify", "--data"))
	for id := range r.state.points {
		r.checkRestore(id)
	}
	if r.d != nil {
		r.checkMount(r.any())
	}
	r.run("gc")
	r.checkTemporary()
	require.Equal(r.t, r.state.view(), r.listed())
	require.Empty(r.t, r.run("verify", "--data"))
}

// end looks at everything once more, and at what all the kills have left.
func (r *rounds) end() {
	r.checkAll()
	if r.mount != "" {
		r.stopDaemon() // while it has the index open, that takes more room
	}
	r.checkSize()
	hits, tries := 0, 0
	for _, verb := range slices.Sorted(maps.Keys(r.tries)) {
		r.t.Logf("%s: %d of %d were killed while they ran; it takes %v", verb, r.hits[verb], r.tries[verb], r.took[verb])
		hits, tries = hits+r.hits[verb], tries+r.tries[verb]
	}
	hits += r.hits["daemon"]
	r.t.Logf("%d kills of %d hit a running process, %d of them the daemon beside a verb; %d verbs were not done", hits, tries, r.hits["daemon"], r.lost)
	r.require(hits > 0, "no kill hit anything")
}

// checkRestore restores a checkpoint and compares it with what was saved.
func (r *rounds) checkRestore(id string) {
	to := filepath.Join(r.dir, "restored")
	r.run("restore", id, to)
	require.Equal(r.t, r.state.points[id].tree, treeOf(r.t, to), id)
	require.NoError(r.t, os.RemoveAll(to))
}

// checkMount has another process compare what the mount shows with a restore.
func (r *rounds) checkMount(id string) {
	to := filepath.Join(r.dir, "beside-mount")
	r.run("restore", id, to)
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	at := filepath.Join(r.mount, "threads", r.state.points[id].thread, id, "files")
	out, err := exec.CommandContext(ctx, "diff", "-r", "--no-dereference", to, at).CombinedOutput()
	r.require(err == nil, "%s on the mount: %v: %s", id, err, out)
	require.NoError(r.t, os.RemoveAll(to))
}

// checkTemporary: nothing that a killed process was writing is left.
func (r *rounds) checkTemporary() {
	files, err := os.ReadDir(filepath.Join(r.store, "tmp"))
	require.NoError(r.t, err)
	require.Empty(r.t, files)
	err = filepath.WalkDir(filepath.Join(r.store, "cache"), func(path string, _ iofs.DirEntry, err error) error {
		r.require(!strings.HasPrefix(filepath.Base(path), "."), "%s is left", path)
		return err
	})
	require.NoError(r.t, err)
}

// checkSize compares the store after a collection with one that was never hurt, and
// has the same checkpoints.
func (r *rounds) checkSize() {
	fresh := &rounds{t: r.t, bin: r.bin, dir: r.dir, store: filepath.Join(r.dir, "fresh")}
	ids := slices.SortedFunc(maps.Keys(r.state.points), func(a, b string) int { return cmp.Compare(r.state.points[a].made, r.state.points[b].made) })
	for _, id := range ids {
		p := r.state.points[id]
		ws := filepath.Join(r.dir, "again")
		r.run("restore", id, ws)
		fresh.run("save", "--thread", p.thread, "--id", id, ws)
		require.NoError(r.t, os.RemoveAll(ws))
	}
	fresh.run("gc")
	packs, rest := sizes(r.t, r.store)
	freshPacks, freshRest := sizes(r.t, fresh.store)
	r.t.Logf("%d checkpoints: packs of %d bytes, a fresh store's have %d; the rest %d, %d", len(ids), packs, freshPacks, rest, freshRest)
	r.require(packs <= freshPacks+freshPacks/5+1<<16, "packs of %d bytes, where %d are enough", packs, freshPacks)
	r.require(rest <= 2*freshRest+4<<20, "%d bytes beside the packs, where %d are enough", rest, freshRest)
	require.Empty(r.t, fresh.run("verify", "--data"))
}

// sizes are the bytes of a store's packs and of everything else in it.
func sizes(t *testing.T, store string) (packs, rest int64) {
	err := filepath.WalkDir(store, func(path string, e iofs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if strings.HasPrefix(path, filepath.Join(store, "packs")) {
			packs += info.Size()
		} else {
			rest += info.Size()
		}
		return nil
	})
	require.NoError(t, err)
	return packs, rest
}

// treeOf tells all of a directory that a restore has to bring back.
func treeOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	tree, err := look(dir)
	require.NoError(t, err)
	return tree
}

// look is [treeOf] for a goroutine of a test.
func look(dir string) (map[string]string, error) {
	tree := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e iofs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		what := ""
		if e.Type().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			what = fmt.Sprintf("%d bytes %x", len(data), sha256.Sum256(data))
		}
		rel, err := filepath.Rel(dir, path)
		tree[rel] = fmt.Sprintf("%s %d %s", info.Mode(), info.ModTime().UnixNano(), what)
		return err
	})
	return tree, err
}

// What a workspace is made of.
const (
	smallFiles = 200
	bigFile    = 3 << 20 // bytes: it is cut into chunks
)

// fillWorkspace makes the workspace.
func (r *rounds) fillWorkspace() {
	for n := range smallFiles {
		r.write(smallName(n), r.noise(100+r.rnd.IntN(4000)))
	}
	r.write("big", r.noise(bigFile))
	for n := range 4 {
		r.write(fmt.Sprintf("noise/%d", n), r.noise(20<<10))
	}
}

func smallName(n int) string { return fmt.Sprintf("d%02d/f%03d", n%20, n) }

// changeWorkspace edits some files, adds some, removes one, and replaces noise.
func (r *rounds) changeWorkspace() {
	for range 5 {
		r.write(smallName(r.rnd.IntN(smallFiles)), r.noise(100+r.rnd.IntN(4000)))
	}
	for range 3 {
		r.write(fmt.Sprintf("added/%02d/%02d", r.rnd.IntN(4), r.rnd.IntN(10)), r.noise(r.rnd.IntN(2000)))
	}
	gone := filepath.Join(r.ws, "added", fmt.Sprintf("%02d", r.rnd.IntN(4)))
	require.NoError(r.t, os.RemoveAll(gone))
	require.NoError(r.t, os.Chmod(filepath.Join(r.ws, smallName(r.rnd.IntN(smallFiles))), os.FileMode(0o600+r.rnd.IntN(0o100))))
	r.write(fmt.Sprintf("noise/%d", r.rnd.IntN(4)), r.noise(20<<10+r.rnd.IntN(40<<10)))
	f, err := os.OpenFile(filepath.Join(r.ws, "big"), os.O_WRONLY, 0)
	require.NoError(r.t, err)
	_, err = f.WriteAt(r.noise(10<<10), int64(r.rnd.IntN(bigFile-10<<10)))
	require.NoError(r.t, err)
	require.NoError(r.t, f.Close())
}

func (r *rounds) write(name string, data []byte) {
	path := filepath.Join(r.ws, name)
	require.NoError(r.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(r.t, os.WriteFile(path, data, 0o644))
}

// noise is what cannot be compressed.
func (r *rounds) noise(size int) []byte {
	b := make([]byte, 0, size+8)
	for len(b) < size {
		b = binary.LittleEndian.AppendUint64(b, r.rnd.Uint64())
	}
	return b[:size]
}
