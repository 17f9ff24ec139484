package tree

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
)

// TestParts: the entries of all parts of a directory are its entries, in order.
func TestParts(t *testing.T) {
	for _, n := range []int{0, 1, 256, 257, 20_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			ctx := t.Context()
			src := newMemory()
			var b Builder
			for i := range n {
				require.NoError(t, b.Add(file(fmt.Sprintf("f%08d", i), "x"), Totals{}))
			}
			dir, objs, err := b.Finish()
			require.NoError(t, err)
			src.put(objs...)
			root, r := dir.Hash, NewReader(src, 1<<20)
			var names []string
			var follow func(h cas.Hash)
			follow = func(h cas.Hash) {
				p, err := r.Part(ctx, h)
				require.NoError(t, err)
				require.False(t, len(p.Entries) > 0 && len(p.Segments) > 0)
				for _, e := range p.Entries {
					names = append(names, e.Name)
				}
				for _, s := range p.Segments {
					follow(s)
				}
			}
			follow(root)
			var want []string
			d, err := r.Open(ctx, root)
			require.NoError(t, err)
			for e, err := range d.Entries(ctx, 0) {
				require.NoError(t, err)
				want = append(want, e.Name)
			}
			require.Equal(t, want, names)
			require.Len(t, names, n)
		})
	}
	_, err := NewReader(newMemory(), 0).Part(t.Context(), cas.Hash{1})
	require.ErrorIs(t, err, cas.ErrNotFound)
}
