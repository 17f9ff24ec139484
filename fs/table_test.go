package fs

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// entryOf makes the i-th of many identities: every tenth a directory, every
// fiftieth a symlink.
func entryOf(i int) (place, meta) {
	m := sample()
	m.Size, m.Hash = uint64(i), cas.Hash{byte(i), byte(i >> 8), byte(i >> 16)}
	switch {
	case i%50 == 0:
		m.Kind, m.Target = tree.Symlink, fmt.Sprint("to", i)
	case i%10 == 0:
		m.Kind, m.Size = tree.Dir, 0
	}
	return placeOf(fmt.Sprint("p/", i)), m
}

// TestTable adds and forgets at random and compares with a plain map.
func TestTable(t *testing.T) {
	f := newFS("", nil, nil, Options{})
	known := map[int]uint64{} // identity -> node id
	ever := map[uint64]bool{}
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 40_000 {
		i := r.IntN(5000)
		at, m := entryOf(i)
		if id, ok := known[i]; ok && round%3 > 0 {
			n, ok := f.node(id).(interface{ number() uint64 })
			require.True(t, ok)
			require.EqualValues(t, m.ino(at), n.number())
			f.forget(id, 1)
			require.Nil(t, f.node(id))
			delete(known, i)
			continue
		}
		var id uint64
		if m.Kind == tree.Dir {
			id = f.dirNode(1, fmt.Sprint(i), nil, at, &m).id
		} else {
			n := f.fileNode(at, &m)
			require.Equal(t, m.Target, n.target)
			id = n.id
		}
		if before, ok := known[i]; ok {
			require.Equal(t, before, id)
			f.forget(id, 1)
		} else {
			require.False(t, ever[id], "a node id came back")
		}
		ever[id], known[i] = true, id
		require.Equal(t, len(known), f.table.used)
	}
	for _, id := range known {
		f.forget(id, 1)
	}
	require.Zero(t, f.table.used)
	require.Empty(t, f.table.extras)
	require.Empty(t, f.table.dirs)
	require.Empty(t, f.table.inDir)
	require.Empty(t, f.table.byIno.heads)
	require.Empty(t, f.table.chunks)
}

// TestTableIsSmall: what the kernel knows costs little memory, and nothing once
// it has forgotten it.
func TestTableIsSmall(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(inode{}), uintptr(112))
	const n = 200_000
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	f := newFS("", nil, nil, Options{})
	ids := make([]uint64, n)
	before := heap()
	for i := range ids {
		at, m := entryOf(i)
		if m.Kind == tree.Dir {
			ids[i] = f.dirNode(1, fmt.Sprint(i), nil, at, &m).id
		} else {
			ids[i] = f.fileNode(at, &m).id
		}
	}
	perNode := float64(heap()-before) / n
	t.Logf("%.0f bytes a node", perNode)
	require.Less(t, perNode, 150.0)
	for _, id := range ids {
		f.forget(id, 1)
	}
	require.Less(t, heap(), before+n, "bytes after all was forgotten")
	runtime.KeepAlive(f)
}
