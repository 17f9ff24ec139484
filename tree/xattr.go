package tree

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/cas"
)

// Limits of extended attributes: those of Linux.
const (
	MaxXAttrName  = 255     // bytes
	MaxXAttrValue = 1 << 16 // bytes
	MaxXAttrNames = 1 << 16 // bytes of all names of a set, each with a NUL behind it
)

// The two attributes outside of the user namespace that a set may hold.
const (
	ACLAccess  = "system.posix_acl_access"
	ACLDefault = "system.posix_acl_default"
)

// An XAttr is one extended attribute: of the user namespace, or a POSIX ACL.
type XAttr struct {
	Name  string
	Value []byte
}

// CheckXAttrName tells whether a set may hold an attribute of that name:
// "user." with something behind it, [ACLAccess] or [ACLDefault], at most
// [MaxXAttrName] bytes without NUL. The error wraps [ErrInvalid]. Attributes
// that give rights (security.capability) are refused so that no stored tree can
// plant them.
func CheckXAttrName(name string) error {
	what := func() string { return fmt.Sprintf("attribute %.64q", name) }
	switch {
	case len(name) > MaxXAttrName:
		return invalid(what(), "its name has %d bytes, at most %d can be", len(name), MaxXAttrName)
	case strings.IndexByte(name, 0) >= 0:
		return invalid(what(), "its name contains a NUL byte")
	case name == ACLAccess || name == ACLDefault:
		return nil
	case !strings.HasPrefix(name, "user.") || len(name) == len("user."):
		return invalid(what(), "it is neither of the user namespace nor a POSIX ACL")
	}
	return nil
}

// EncodeXAttrs makes the object of a set of one attribute or more, in any
// order. An entry without attributes has no set: its hash is zero. The error
// wraps [ErrInvalid], or [cas.ErrTooLarge] when the set is larger than an
// object can be.
func EncodeXAttrs(set []XAttr) (cas.Object, error) {
	if len(set) == 0 {
		return cas.Object{}, invalid("set of extended attributes", "it is empty")
	}
	set = slices.Clone(set)
	slices.SortFunc(set, func(a, b XAttr) int { return cmp.Compare(a.Name, b.Name) })
	size, names := len(xattrMagic)+binary.MaxVarintLen64, 0
	for i, x := range set {
		if err := checkXAttr(x.Name, len(x.Value)); err != nil {
			return cas.Object{}, err
		}
		if i > 0 && set[i-1].Name == x.Name {
			return cas.Object{}, invalid(fmt.Sprintf("attribute %q", x.Name), "it is there twice")
		}
		size += 1 + len(x.Name) + binary.MaxVarintLen32 + len(x.Value)
		names += len(x.Name) + 1
	}
	if names > MaxXAttrNames {
		return cas.Object{}, fmt.Errorf("set of extended attributes: names of %d bytes: %w", names, cas.ErrTooLarge)
	}
	if size > cas.MaxObject {
		return cas.Object{}, fmt.Errorf("set of extended attributes: %w", cas.ErrTooLarge)
	}
	b := append(make([]byte, 0, size), xattrMagic...)
	b = binary.AppendUvarint(b, uint64(len(set)))
	for _, x := range set {
		b = appendName(b, x.Name)
		b = appendString(b, string(x.Value))
	}
	return cas.NewObject(cas.Trees, cas.Data, b), nil
}

// DecodeXAttrs is the inverse of [EncodeXAttrs]. The attributes come sorted by
// name and share no memory with data. The error wraps [ErrInvalid].
func DecodeXAttrs(data []byte) ([]XAttr, error) {
	p := parser{s: string(data)}
	p.magic(xattrMagic)
	n := p.count(8) // lengths, and "user." with one byte behind it
	if n == 0 {
		p.fail("the set is empty")
	}
	if p.err != nil {
		return nil, p.err
	}
	if n > MaxXAttrNames/len("user.x\x00") {
		p.fail("%d attributes, the kernel cannot list so many", n)
		return nil, p.err
	}
	set := make([]XAttr, 0, n)
	last, names := "", 0
	for range n {
		name := p.name()
		if names += len(name) + 1; names > MaxXAttrNames {
			p.fail("names of more than %d bytes", MaxXAttrNames)
		}
		value := p.bytes(p.number(MaxXAttrValue))
		if p.err == nil {
			p.err = checkXAttr(name, len(value))
		}
		if name <= last {
			p.fail("attribute %q comes after %q", name, last)
		}
		if p.err != nil {
			return nil, p.err
		}
		set = append(set, XAttr{Name: name, Value: []byte(value)})
		last = name
	}
	if err := p.end(); err != nil {
		return nil, err
	}
	return set, nil
}

func checkXAttr(name string, size int) error {
	if err := CheckXAttrName(name); err != nil {
		return err
	}
	if size > MaxXAttrValue {
		return invalid(fmt.Sprintf("attribute %q", name), "its value has %d bytes, at most %d can be", size, MaxXAttrValue)
	}
	return nil
}

// xattrSet is a set as the cache holds it.
type xattrSet []XAttr

func (s xattrSet) cost() int64 {
	size := int64(256)
	for _, x := range s {
		size += int64(2*len(x.Name)+len(x.Value)) + 64
	}
	return size
}
