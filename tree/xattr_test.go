package tree

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/cas"
)

func TestXAttrs(t *testing.T) {
	set := []XAttr{
		{Name: ACLAccess, Value: []byte{2, 0, 0, 0}},
		{Name: ACLDefault, Value: []byte{}},
		{Name: "user.\xff", Value: []byte("x\x00y")},
		{Name: "user." + strings.Repeat("z", 250), Value: make([]byte, 65536)},
	}
	want := append([]XAttr(nil), set...)
	want[2], want[3] = set[3], set[2]
	obj, err := EncodeXAttrs(set)
	require.NoError(t, err)
	require.Equal(t, cas.Trees, obj.Key.NS)
	require.Equal(t, "user.\xff", set[2].Name, "the argument is not sorted in place")
	got, err := DecodeXAttrs(obj.Data)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestXAttrsRefused(t *testing.T) {
	v := []byte("v")
	for _, set := range [][]XAttr{
		nil,
		{{Name: "", Value: v}},
		{{Name: "user.", Value: v}},
		{{Name: "user.a\x00b", Value: v}},
		{{Name: "security.capability", Value: v}},
		{{Name: "trusted.overlay.opaque", Value: v}},
		{{Name: "system.posix_acl_other", Value: v}},
		{{Name: "user." + strings.Repeat("z", 251), Value: v}},
		{{Name: "user.a", Value: make([]byte, 65537)}},
		{{Name: "user.a", Value: v}, {Name: "user.a"}},
	} {
		_, err := EncodeXAttrs(set)
		require.ErrorIs(t, err, ErrInvalid, "%.80v", set)
	}
	many := make([]XAttr, 1000)
	for i := range many {
		many[i] = XAttr{Name: fmt.Sprintf("user.%d", i), Value: make([]byte, 65536)}
	}
	_, err := EncodeXAttrs(many)
	require.NoError(t, err)
	for i := range 100 {
		many = append(many, XAttr{Name: fmt.Sprintf("user.m%d", i), Value: many[0].Value})
	}
	_, err = EncodeXAttrs(many)
	require.ErrorIs(t, err, cas.ErrTooLarge)
}

// TestXAttrNames: a set can have as many attributes as the kernel can list.
func TestXAttrNames(t *testing.T) {
	set := make([]XAttr, MaxXAttrNames/16)
	for i := range set {
		set[i] = XAttr{Name: fmt.Sprintf("user.%010d", i)}
	}
	obj, err := EncodeXAttrs(set)
	require.NoError(t, err)
	got, err := DecodeXAttrs(obj.Data)
	require.NoError(t, err)
	require.Len(t, got, len(set))

	set = append(set, XAttr{Name: "user.x"})
	_, err = EncodeXAttrs(set)
	require.ErrorIs(t, err, cas.ErrTooLarge)
	more := append([]byte(xattrMagic), binary.AppendUvarint(nil, uint64(len(set)))...)
	more = append(more, obj.Data[len(xattrMagic)+2:]...)
	_, err = DecodeXAttrs(append(more, "\x06user.x\x00"...))
	require.ErrorIs(t, err, ErrInvalid)
}

func TestDecodeXAttrsRefuses(t *testing.T) {
	for why, data := range map[string]string{
		"empty":         "",
		"no set":        "sfx\x01",
		"empty set":     "sfx\x01\x00",
		"magic":         "sfd\x01\x01\x06user.a\x00",
		"version":       "sfx\x02\x01\x06user.a\x00",
		"trailing":      "sfx\x01\x01\x06user.a\x00\x00",
		"short":         "sfx\x01\x01\x06user.a\x01",
		"long number":   "sfx\x01\x81\x00\x06user.a\x00",
		"huge count":    "sfx\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x06user.a\x00",
		"unsorted":      "sfx\x01\x02\x06user.b\x00\x06user.a\x00",
		"twice":         "sfx\x01\x02\x06user.a\x00\x06user.a\x00",
		"name":          "sfx\x01\x01\x06usr..a\x00",
		"empty name":    "sfx\x01\x01\x00\x06user.a\x00",
		"huge value":    "sfx\x01\x01\x06user.a\xff\xff\x7fxx",
		"65-bit number": "sfx\x01\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02\x06user.a\x00",
	} {
		_, err := DecodeXAttrs([]byte(data))
		require.ErrorIs(t, err, ErrInvalid, why)
	}
}

func TestXAttrsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.MapOfN(rapid.StringMatching(`user\.[a-c]{1,3}`), rapid.SliceOf(rapid.Byte()), 1, 5).Draw(t, "set")
		var set []XAttr
		for name, value := range m {
			set = append(set, XAttr{name, value})
		}
		obj, err := EncodeXAttrs(set)
		require.NoError(t, err)
		got, err := DecodeXAttrs(obj.Data)
		require.NoError(t, err)
		require.Len(t, got, len(m))
		for _, x := range got {
			require.Equal(t, string(m[x.Name]), string(x.Value))
		}
	})
}

func TestNarrowMode(t *testing.T) {
	// user::rw-, group::PERM, mask::rwx, other::r--
	acl := func(group byte) []byte {
		return []byte{2, 0, 0, 0, 1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff, 4, 0, group, 0, 0xff, 0xff, 0xff, 0xff, 0x10, 0, 7, 0, 0xff, 0xff, 0xff, 0xff}
	}
	for _, test := range []struct {
		mode, want uint32
		acl        []byte
	}{
		{0o674, 0o644, acl(4)}, {0o674, 0o674, acl(7)}, {0o634, 0o604, acl(4)}, {0o1674, 0o1604, acl(0)},
		{0o674, 0o604, nil}, {0o674, 0o604, []byte{2, 0, 0, 0, 4}},
	} {
		require.Equal(t, test.want, NarrowMode(test.mode, test.acl), "%o", test.mode)
	}
}
