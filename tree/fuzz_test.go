package tree

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
)

// FuzzDecodeDir: what is accepted has one form, and no use of it fails in a
// way that readers do not expect.
func FuzzDecodeDir(f *testing.F) {
	var b Builder
	for _, e := range hard() {
		require.NoError(f, b.Add(e, Totals{}))
	}
	_, objs, err := b.Finish()
	require.NoError(f, err)
	f.Add(objs[0].Data)
	_, objs = store(f, newMemory(), flat(20_000, 1))
	f.Add(objs[0].Data)
	f.Add(objs[len(objs)-2].Data)
	f.Add(objs[len(objs)-1].Data)
	for _, s := range wellFormed {
		f.Add([]byte(dirMagic + s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := decodeObject(string(data))
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		require.True(t, bytes.Equal(data, o.encode()), "another form is accepted")
		require.NoError(t, o.totals.check())
		refs, err := Refs(data)
		require.NoError(t, err)
		for _, ref := range refs {
			require.False(t, ref.Key.Hash.IsZero())
		}
		ctx := context.Background()
		src := newMemory()
		obj := cas.NewObject(cas.Trees, cas.Data, data)
		src.put(obj)
		d, err := NewReader(src, 0).Open(ctx, obj.Key.Hash)
		if err != nil {
			requireCorrupt(t, err)
			return
		}
		n := 0
		for e, err := range d.Entries(ctx, 0) {
			if err != nil {
				require.ErrorIs(t, err, cas.ErrNotFound)
				return
			}
			require.NoError(t, e.check())
			got, err := d.Lookup(ctx, e.Name)
			require.NoError(t, err)
			require.Equal(t, e, got)
			n++
		}
		require.Equal(t, d.Len(), n)
	})
}

func FuzzDecodeXAttrs(f *testing.F) {
	obj, err := EncodeXAttrs([]XAttr{{Name: ACLAccess, Value: []byte{2, 0}}, {Name: "user.x", Value: []byte("v")}, {Name: "user.y"}})
	require.NoError(f, err)
	f.Add(obj.Data)
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := DecodeXAttrs(data)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		obj, err := EncodeXAttrs(set)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, obj.Data), "another form is accepted")
	})
}

func FuzzDecodeLinks(f *testing.F) {
	for _, groups := range [][][]string{nil, {{"a", "b"}}, {{"a/a", "b/a"}, {"a/b", "b/b", "b/c"}, {"x", "y"}}} {
		b, err := EncodeLinks(groups)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		groups, err := DecodeLinks(data)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		again, err := EncodeLinks(groups)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, again), "another form is accepted")
	})
}

// FuzzNarrowMode: whatever an ACL is, a mode is never made wider by it.
func FuzzNarrowMode(f *testing.F) {
	f.Add(uint32(0o1777), []byte{2, 0, 0, 0, 4, 0, 5, 0, 0xff, 0xff, 0xff, 0xff})
	f.Add(uint32(0o640), []byte{2, 0, 0, 0, 1, 0, 6, 0})
	f.Fuzz(func(t *testing.T, mode uint32, acl []byte) {
		mode &= MaxMode
		got := NarrowMode(mode, acl)
		require.Zero(t, got&^mode)
		require.Equal(t, mode&^0o070, got&^0o070)
	})
}

// FuzzQuote: a path that is shown is one line, and no two paths look alike.
func FuzzQuote(f *testing.F) {
	f.Add("a b", "a\nb")
	f.Add("\xff", "\\377")
	f.Add("", "\"\"")
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, show := range []func(string) string{Quote, QuoteShell} {
			require.Equal(t, a == b, show(a) == show(b))
			require.False(t, strings.ContainsFunc(show(a), unicode.IsControl))
			require.True(t, utf8.ValidString(show(a)))
		}
	})
}
