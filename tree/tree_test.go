package tree

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
)

// memory is a source that counts what is read from it.
type memory struct {
	mu    sync.Mutex
	objs  map[cas.Key][]byte
	reads int
}

func newMemory() *memory { return &memory{objs: map[cas.Key][]byte{}} }

func (m *memory) put(objs ...cas.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range objs {
		m.objs[o.Key] = o.Data
	}
}

func (m *memory) Read(_ context.Context, key cas.Key, dst []byte) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	b, ok := m.objs[key]
	if !ok {
		return dst, cas.ErrNotFound
	}
	return append(dst, b...), nil
}

// took returns how many reads there were since the last call.
func (m *memory) took() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.reads
	m.reads = 0
	return n
}

// tb is what rapid.T and testing.TB share.
type tb interface {
	require.TestingT
	Helper()
}

// content makes a hash out of a word.
func content(s string) cas.Hash { return cas.Data.Sum([]byte(s)) }

func file(name, data string) Entry {
	return Entry{Name: name, Kind: File, Mode: 0o644, Size: uint64(len(data)), Hash: content(data), MtimeSec: 1_700_000_000, MtimeNsec: 123456789}
}

func symlink(name, target string) Entry {
	return Entry{Name: name, Kind: Symlink, Mode: 0o777, Size: uint64(len(target)), Target: target, MtimeSec: 1}
}

func dir(name string, h cas.Hash) Entry {
	return Entry{Name: name, Kind: Dir, Mode: 0o755, Hash: h, MtimeSec: 1_700_000_000}
}

// A model is a tree as a map from slash paths to entries. Directories have no
// hash in it, names are left to the paths, and every parent is there.
type model map[string]Entry

// build stores the tree below path and describes its root.
func (m model) build(t tb, src *memory, path string) Root {
	t.Helper()
	var names []string
	for p := range m {
		if p == path {
			continue
		}
		if dir, name := split(p); dir == path {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var b Builder
	for _, name := range names {
		p := join(path, name)
		e, below := m[p], Totals{}
		e.Name = name
		if e.Kind == Dir {
			root := m.build(t, src, p)
			e.Hash, below = root.Hash, root.Totals
		}
		require.NoError(t, b.Add(e, below))
	}
	root, objs, err := b.Finish()
	require.NoError(t, err)
	require.Equal(t, root.Hash, objs[len(objs)-1].Key.Hash)
	require.EqualValues(t, len(names), root.Entries)
	src.put(objs...)
	return root
}

func (m model) totals() Totals {
	var sum Totals
	for _, e := range m {
		_ = sum.addEntry(&e)
	}
	return sum
}

// paths returns the model's paths in walk order.
func (m model) paths() []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return cmp.Compare(strings.ReplaceAll(a, "/", "\x00"), strings.ReplaceAll(b, "/", "\x00"))
	})
}

func split(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 0)], path[i+1:]
}

// read walks a stored tree back into a model.
func read(t tb, r *Reader, root cas.Hash) model {
	t.Helper()
	m := model{}
	var order []string
	require.NoError(t, Walk(context.Background(), r, root, func(path string, e Entry) error {
		_, name := split(path)
		require.Equal(t, name, e.Name)
		e.Name = ""
		if e.Kind == Dir {
			e.Hash = cas.Hash{}
		}
		m[path] = e
		order = append(order, path)
		return nil
	}))
	require.Equal(t, m.paths(), order, "walk order")
	return m
}

// flat makes a directory of n files.
func flat(n int, seed uint64) []Entry {
	rng := rand.New(rand.NewPCG(seed, 1))
	es := make([]Entry, n)
	for i := range es {
		es[i] = file(fmt.Sprintf("module-%05x-%d.js", rng.IntN(1<<20), i), fmt.Sprint(i))
	}
	slices.SortFunc(es, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
	return es
}

// store builds one directory without subdirectories.
func store(t tb, src *memory, es []Entry) (Root, []cas.Object) {
	t.Helper()
	var b Builder
	for _, e := range es {
		require.NoError(t, b.Add(e, Totals{}))
	}
	root, objs, err := b.Finish()
	require.NoError(t, err)
	src.put(objs...)
	return root, objs
}

func entries(t tb, d *Directory, from int) []Entry {
	t.Helper()
	var es []Entry
	for e, err := range d.Entries(context.Background(), from) {
		require.NoError(t, err)
		es = append(es, e)
	}
	return es
}

func requireCorrupt(t tb, err error) {
	t.Helper()
	require.ErrorIs(t, err, cas.ErrCorrupt)
	require.ErrorIs(t, err, ErrInvalid)
}
