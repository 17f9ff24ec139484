package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/castest"
	"github.com/snapfs/snapfs/internal/disk/disktest"
	"github.com/snapfs/snapfs/internal/soak"
	"github.com/snapfs/snapfs/policy"
)

// modelCheckpoint is what a model knows of a checkpoint.
type modelCheckpoint struct {
	thread, tree, name string
	files              map[string]string
}

// model is a store as it should be.
type model struct {
	checkpoints map[string]modelCheckpoint
	threads     map[string][]string // ids, the oldest first
}

func (m model) clone() model {
	c := model{maps.Clone(m.checkpoints), map[string][]string{}}
	for thread, ids := range m.threads {
		c.threads[thread] = slices.Clone(ids)
	}
	return c
}

func (m model) add(id string, cp modelCheckpoint) {
	m.checkpoints[id] = cp
	m.threads[cp.thread] = append(m.threads[cp.thread], id)
}

func (m model) remove(id string) {
	thread := m.checkpoints[id].thread
	m.threads[thread] = slices.DeleteFunc(m.threads[thread], func(other string) bool { return other == id })
	delete(m.checkpoints, id)
}

func (m model) removeThread(thread string) {
	for _, id := range m.threads[thread] {
		delete(m.checkpoints, id)
	}
	delete(m.threads, thread)
}

func (m model) named(thread, name string) bool {
	return slices.ContainsFunc(m.threads[thread], func(id string) bool { return m.checkpoints[id].name == name })
}

// state is what [stateOf] should show.
func (m model) state() map[string]published {
	all := map[string]published{}
	for thread, ids := range m.threads {
		head := ""
		if len(ids) > 0 {
			head = ids[len(ids)-1]
		}
		all["thread "+thread] = published{Thread: head}
	}
	for id, cp := range m.checkpoints {
		all[id] = published{Thread: cp.thread, Tree: cp.tree, Name: cp.name}
	}
	return all
}

// machine is a store beside its model.
type machine struct {
	t      *testing.T
	top    string
	dir    string
	disk   *disktest.Disk
	boots  int
	s      *Store
	m      model
	made   int // checkpoints and stores so far
	spaces []map[string]string
	deeds  []string // what was done, for who reads a failure
}

// TestModel: whatever is done to a store, in whatever order, with kills and losses of
// power in between, it is like its model, and nothing in it is damaged.
func TestModel(t *testing.T) {
	soak.Checks(t, 6, 150)
	steps, crashes := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		m := newMachine(t)
		defer m.end()
		rt.Repeat(map[string]func(*rapid.T){
			"":      func(rt *rapid.T) { steps++; m.check(rt) },
			"edit":  m.edit,
			"do":    func(rt *rapid.T) { m.do(rt, m.draw(rt)) },
			"open":  func(*rapid.T) { m.reopen() },
			"crash": func(rt *rapid.T) { crashes++; m.crash(rt) },
		})
	})
	t.Logf("%d steps, %d crashes", steps, crashes)
}

func newMachine(t *testing.T) *machine {
	m := &machine{t: t, top: disktest.Memory(t), m: model{map[string]modelCheckpoint{}, map[string][]string{}}}
	for i := range 2 {
		require.NoError(t, os.Mkdir(m.workspace(i), 0o755))
		m.spaces = append(m.spaces, map[string]string{})
	}
	m.dir = filepath.Join(m.top, "store")
	require.NoError(t, Create(m.dir))
	m.open(true)
	return m
}

func (m *machine) end() {
	require.NoError(m.t, errors.Join(m.s.Close(), os.RemoveAll(m.top)))
}

func (m *machine) workspace(i int) string { return filepath.Join(m.top, fmt.Sprintf("ws%d", i)) }

// open opens the store, on a new disk if the old one has had its fault.
func (m *machine) open(newDisk bool) {
	var err error
	if newDisk {
		m.disk, err = disktest.New(m.dir, uint64(m.made))
		require.NoError(m.t, err)
	}
	m.s, err = Open(m.t.Context(), m.dir, Options{fsys: m.disk, bootID: fmt.Sprintf("boot-%d", m.boots)})
	require.NoError(m.t, err, m.deeds)
}

func (m *machine) reopen() {
	m.deeds = append(m.deeds, "open")
	require.NoError(m.t, m.s.Close(), m.deeds)
	m.open(false)
}

// edit changes a file of a workspace.
func (m *machine) edit(rt *rapid.T) {
	i := rapid.IntRange(0, 1).Draw(rt, "workspace")
	name := rapid.SampledFrom([]string{"a", "b", "dir/c", "dir/d", "large"}).Draw(rt, "file")
	data := rapid.SampledFrom([]string{"", "1", "2", "3", "remove"}).Draw(rt, "data")
	path := filepath.Join(m.workspace(i), name)
	if data == "remove" {
		require.NoError(m.t, os.RemoveAll(path))
		delete(m.spaces[i], name)
		return
	}
	if name == "large" {
		data = string(castest.Noise(uint64(len(data)), cas.ChunkedSize+len(data)*100_000))
	}
	require.NoError(m.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(m.t, os.WriteFile(path, []byte(data), 0o644))
	m.spaces[i][name] = data
}

// A deed is something that is done to the store, and what becomes of the model by it.
type deed struct {
	what  string
	do    func() error
	model func(model)
}

// draw chooses a deed.
func (m *machine) draw(rt *rapid.T) deed {
	ctx, s := m.t.Context(), m.s
	m.made++
	id := fmt.Sprintf("checkpoint-%d", m.made)
	thread := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(rt, "thread")
	name := rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(rt, "name")
	ids := slices.Sorted(maps.Keys(m.m.checkpoints))
	kinds := []string{"save", "save", "save", "gc", "receive"}
	if len(ids) > 0 {
		kinds = append(kinds, "fork", "rename", "delete", "delete", "delete thread")
	}
	kind := rapid.SampledFrom(kinds).Draw(rt, "kind")
	some := ""
	if len(ids) > 0 {
		some = rapid.SampledFrom(ids).Draw(rt, "checkpoint")
	}
	switch kind {
	case "save":
		i := rapid.IntRange(0, 1).Draw(rt, "workspace")
		if m.m.named(thread, name) {
			name = ""
		}
		cp := modelCheckpoint{thread: thread, tree: m.treeOf(i), name: name, files: maps.Clone(m.spaces[i])}
		return deed{fmt.Sprintf("save ws%d as %s into %s, named %q", i, id, thread, name), func() error {
			_, err := s.Save(ctx, SaveOptions{Workspace: m.workspace(i), Thread: thread, ID: id, Name: name, Files: policy.FilesOptions{NoDefaults: true}})
			return err
		}, func(md model) { md.add(id, cp) }}
	case "receive":
		i := rapid.IntRange(0, 1).Draw(rt, "workspace")
		cp := modelCheckpoint{thread: "from " + id, tree: m.treeOf(i), files: maps.Clone(m.spaces[i])}
		return deed{fmt.Sprintf("receive ws%d as %s", i, id), func() error {
			from := OpenMemory()
			defer from.Close()
			_, err := from.Save(ctx, SaveOptions{Workspace: m.workspace(i), Thread: cp.thread, ID: id, Files: policy.FilesOptions{NoDefaults: true}})
			if err != nil {
				return err
			}
			_, err = Transfer(ctx, from, s, TransferOptions{})
			return err
		}, func(md model) { md.add(id, cp) }}
	case "fork":
		cp := m.m.checkpoints[some]
		cp.thread, cp.name = "fork of "+id, ""
		return deed{"fork " + some + " as " + id, func() error {
			_, err := s.Fork(ctx, some, ForkOptions{Thread: cp.thread, ID: id})
			return err
		}, func(md model) { md.add(id, cp) }}
	case "rename":
		if m.m.named(m.m.checkpoints[some].thread, name) {
			name = ""
		}
		return deed{"name " + some + " " + name, func() error {
			_, err := s.Rename(ctx, some, name)
			return err
		}, func(md model) {
			cp := md.checkpoints[some]
			cp.name = name
			md.checkpoints[some] = cp
		}}
	case "delete":
		return deed{"delete " + some, func() error {
			_, err := s.Delete(ctx, some)
			return err
		}, func(md model) { md.remove(some) }}
	case "delete thread":
		thread := m.m.checkpoints[some].thread
		return deed{"delete thread " + thread, func() error { return s.DeleteThread(ctx, thread) }, func(md model) { md.removeThread(thread) }}
	}
	return deed{"gc", func() error {
		_, err := s.GC(ctx, GCRequest{})
		return err
	}, func(model) {}}
}

// treeOf is the tree of a workspace, by a store that knows nothing else.
func (m *machine) treeOf(i int) string {
	s := OpenMemory()
	defer s.Close()
	res, err := s.Save(m.t.Context(), SaveOptions{Workspace: m.workspace(i), Thread: "t", Files: policy.FilesOptions{NoDefaults: true}})
	require.NoError(m.t, err)
	return res.Checkpoint.Tree
}

func (m *machine) do(_ *rapid.T, d deed) {
	m.deeds = append(m.deeds, d.what)
	require.NoError(m.t, d.do(), m.deeds)
	d.model(m.m)
}

// crash has the process killed or the power lost in the middle of a deed, or while the
// store is closed, and opens the store again.
func (m *machine) crash(rt *rapid.T) {
	d := m.draw(rt)
	left := disktest.Left(rapid.IntRange(-1, int(disktest.Most)).Draw(rt, "left")) // -1: killed
	at := rapid.IntRange(1, 20).Draw(rt, "operation")
	m.disk.Arm(disktest.Fault{At: at, Power: true})
	err := d.do()
	_ = m.s.Close()
	m.deeds = append(m.deeds, fmt.Sprintf("%s (crash at %q, left %d, error %v)", d.what, m.disk.Met(), left, err))
	after := m.m.clone()
	d.model(after)
	switch {
	case m.disk.Met() == "":
		m.disk.Arm(disktest.Fault{})
		require.NoError(m.t, err, m.deeds)
		m.open(false)
	case left < 0:
		m.disk.Restart()
		m.open(false)
	default:
		m.boots++
		m.made++
		crashed := filepath.Join(m.top, fmt.Sprintf("store-%d", m.made))
		require.NoError(m.t, m.disk.Crash(crashed, left))
		require.NoError(m.t, os.RemoveAll(m.dir))
		m.dir = crashed
		m.open(true)
	}
	if err == nil || fmt.Sprint(stateOf(m.t, m.s)) == fmt.Sprint(after.state()) {
		m.m = after
	}
}

// check compares the store with its model, and reads all of one checkpoint.
func (m *machine) check(rt *rapid.T) {
	require.Equal(m.t, m.m.state(), stateOf(m.t, m.s), m.deeds)
	require.Empty(m.t, faults(m.t, m.s), m.deeds)
	ids := slices.Sorted(maps.Keys(m.m.checkpoints))
	if len(ids) == 0 {
		return
	}
	id := rapid.SampledFrom(ids).Draw(rt, "read")
	for name, want := range m.m.checkpoints[id].files {
		var got bytes.Buffer
		require.NoError(m.t, m.s.Cat(m.t.Context(), id, name, &got), m.deeds)
		require.True(m.t, want == got.String(), "%s of %s: %v", name, id, m.deeds)
	}
}
