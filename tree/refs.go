package tree

import (
	"slices"

	"github.com/snapfs/snapfs/cas"
)

// A Ref is one object or blob that an object of the trees namespace names.
type Ref struct {
	Key  cas.Key
	Size uint64 // of a file's blob in bytes; zero for what is in the trees namespace
}

// Refs returns what the object with these bytes names directly, in order, and
// more than once what it names more than once: a list of segments its segments,
// a segment or small directory the files' blobs, the directories and the sets
// of extended attributes. A set or a list of hard links names nothing. Following
// the references reaches all that a checkpoint's tree needs, and knowing which
// were followed already makes the next, similar tree cheap. It fails with
// [ErrInvalid] when data is no object of the namespace.
func Refs(data []byte) ([]Ref, error) { return AppendRefs(nil, data) }

// AppendRefs is [Refs] that appends to refs.
func AppendRefs(refs []Ref, data []byte) ([]Ref, error) {
	switch {
	case hasMagic(data, xattrMagic):
		_, err := DecodeXAttrs(data)
		return refs, err
	case hasMagic(data, linkMagic):
		_, err := DecodeLinks(data)
		return refs, err
	}
	o, err := decodeObject(string(data))
	if err != nil {
		return refs, err
	}
	refs = slices.Grow(refs, o.count())
	add := func(ns cas.Namespace, h cas.Hash, size uint64) {
		refs = append(refs, Ref{Key: cas.Key{NS: ns, Hash: h}, Size: size})
	}
	for i := range o.count() {
		if o.level > 0 {
			add(cas.Trees, o.item(i).hash, 0)
			continue
		}
		e := o.entry(i)
		switch e.Kind {
		case File:
			add(cas.Files, e.Hash, e.Size)
		case Dir:
			add(cas.Trees, e.Hash, 0)
		}
		if !e.XAttrs.IsZero() {
			add(cas.Trees, e.XAttrs, 0)
		}
	}
	return refs, nil
}

func hasMagic(data []byte, magic string) bool {
	return len(data) >= len(magic) && string(data[:len(magic)]) == magic
}
