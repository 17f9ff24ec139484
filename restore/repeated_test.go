package restore

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
)

// TestRepeated: a content is kept from the first file that has it to the last.
func TestRepeated(t *testing.T) {
	h := func(b byte) cas.Hash { return cas.Hash{b} }
	r := newRepeated(map[cas.Hash]int{h(1): 1, h(2): 3, h(3): 2})
	for _, once := range []cas.Hash{h(1), h(9)} {
		_, ok := r.take(once)
		require.False(t, ok)
		r.keep(once, []byte("x"))
		require.Zero(t, r.used)
	}
	data := []byte("two")
	_, ok := r.take(h(2))
	require.False(t, ok)
	r.keep(h(2), data)
	data[0] = 'X' // the caller's own
	for left := range 2 {
		got, ok := r.take(h(2))
		require.True(t, ok)
		require.Equal(t, "two", string(got), "%d", left)
	}
	_, ok = r.take(h(2))
	require.False(t, ok, "no more files were to come")
	require.Zero(t, r.used)
	require.Empty(t, r.kept)

	r.keep(h(3), make([]byte, repeatedBytes+1))
	require.Zero(t, r.used, "too long to be kept")
}

// TestRepeatedIsReadOnce: by each worker at most, that is.
func TestRepeatedIsReadOnce(t *testing.T) {
	m := newMemory()
	d := dir{}
	for i := range 500 {
		d[fmt.Sprintf("f%d", i)] = "the same"
	}
	e := m.file(t, 0o644, "the same")
	out := filepath.Join(t.TempDir(), "out")
	_, err := m.restore(t, m.source(t, dir{"a": d, "b": d, "c": d}), out)
	require.NoError(t, err)
	require.LessOrEqual(t, m.read[cas.Key{NS: cas.Files, Hash: e.Hash}], 2*runtime.GOMAXPROCS(0))
	for _, path := range []string{"a/f0", "b/f499", "c/f250"} {
		data, err := os.ReadFile(filepath.Join(out, path))
		require.NoError(t, err)
		require.Equal(t, "the same", string(data))
	}
}

// TestModesWithUmask: files get their modes whatever the umask takes away.
func TestModesWithUmask(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	m := newMemory()
	d := dir{}
	want := map[string]os.FileMode{}
	for _, mode := range []uint32{0, 0o400, 0o444, 0o600, 0o640, 0o644, 0o666, 0o755, 0o777, 0o1777} {
		for _, n := range []string{"a", "b"} {
			name := n + strings.Repeat("x", int(mode)%50) + string(rune('A'+len(want)))
			d[name] = m.file(t, mode, name)
			want[name] = os.FileMode(mode & 0o777)
			if mode&0o1000 != 0 {
				want[name] |= os.ModeSticky
			}
		}
	}
	out := filepath.Join(t.TempDir(), "out")
	_, err := m.restore(t, m.source(t, d), out)
	require.NoError(t, err)
	for name, mode := range want {
		info, err := os.Stat(filepath.Join(out, name))
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode(), name)
	}
}
