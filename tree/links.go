package tree

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/snapfs/snapfs/cas"
)

// maxLinkText bounds the sum of the lengths of all paths in one list, in bytes.
// Since prefixes are shared, a short list could unfold to a thousand times its
// length.
const maxLinkText = 256 << 20

// maxLinkNames is how many paths one list can have. It bounds what they take in
// memory beside their text.
const maxLinkNames = 4 << 20

// MaxLinkList is the longest that a list of hard links can be, in bytes: all text, and
// the numbers beside each path and each group.
const MaxLinkList = maxLinkText + 8*maxLinkNames

// EncodeLinks writes down which paths are names of one file. Each group has two
// slash paths or more, and no path occurs twice; the order of groups and paths
// does not matter. The list is stored as a blob in the trees namespace, or as
// the one object that it is while it is short. The error wraps [ErrInvalid], or
// [cas.ErrTooLarge] when there are more than 4,194,304 paths, or all together are longer
// than 256 MiB.
func EncodeLinks(groups [][]string) ([]byte, error) {
	sorted := make([][]string, len(groups))
	names := 0
	for i, group := range groups {
		if names += len(group); names > maxLinkNames {
			return nil, fmt.Errorf("list of hard links: %w: more than %d paths", cas.ErrTooLarge, maxLinkNames)
		}
		sorted[i] = slices.Sorted(slices.Values(group))
		if len(group) < 2 {
			return nil, fewLinks(group)
		}
	}
	slices.SortFunc(sorted, func(a, b []string) int { return cmp.Compare(a[0], b[0]) })
	if err := checkLinks(sorted); err != nil {
		return nil, err
	}
	b := binary.AppendUvarint([]byte(linkMagic), uint64(len(sorted)))
	var prev []string
	for _, group := range sorted {
		b = binary.AppendUvarint(b, uint64(len(group)))
		for j, path := range group {
			shared := common(reference(prev, group, j), path)
			b = binary.AppendUvarint(b, uint64(shared))
			b = appendString(b, path[shared:])
		}
		prev = group
	}
	return b, nil
}

// DecodeLinks is the inverse of [EncodeLinks]: groups sorted by their first
// path, the paths of each group sorted. The error wraps [ErrInvalid].
func DecodeLinks(data []byte) ([][]string, error) {
	p := parser{s: string(data)}
	p.magic(linkMagic)
	n := p.count(1 + 2*2) // a group's length, and two paths of two bytes each
	if n > maxLinkNames/2 {
		p.fail("%d groups, at most %d can be", n, maxLinkNames/2)
		return nil, p.err
	}
	groups := make([][]string, 0, n)
	var prev []string
	text, names := 0, 0
	for range n {
		size := p.count(2)
		if names += size; names > maxLinkNames {
			p.fail("it has more than %d paths", maxLinkNames)
			return nil, p.err
		}
		group := make([]string, 0, size)
		for j := range size {
			ref := reference(prev, group, j)
			shared := int(p.number(uint64(len(ref))))
			rest := p.bytes(p.number(MaxPath))
			text += shared + len(rest)
			if text > maxLinkText {
				p.fail("its paths have more than %d bytes", maxLinkText)
			}
			if p.err != nil {
				return nil, p.err
			}
			path := ref[:shared] + rest
			if common(ref, path) != shared {
				p.fail("path %q shares more with the one before", path)
			}
			group = append(group, path)
		}
		if p.err == nil && len(group) < 2 {
			p.err = fewLinks(group)
		}
		if p.err != nil {
			return nil, p.err
		}
		groups = append(groups, group)
		prev = group
	}
	if err := p.end(); err != nil {
		return nil, err
	}
	if err := checkLinks(groups); err != nil {
		return nil, err
	}
	return groups, nil
}

// reference is the path that the j-th one of group is written against: that of
// the same place in the group before, since hard links are made by copying
// trees; where that group has none, the path before it in its own.
func reference(prev, group []string, j int) string {
	switch {
	case j < len(prev):
		return prev[j]
	case j > 0:
		return group[j-1]
	}
	return ""
}

// common returns the length of the longest common prefix.
func common(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// checkLinks tells whether groups of two paths or more are allowed and sorted.
func checkLinks(groups [][]string) error {
	seen := make(map[string]struct{})
	text := 0
	for i, group := range groups {
		if i > 0 && group[0] < groups[i-1][0] {
			return invalid("list of hard links", "group %q comes after %q", group[0], groups[i-1][0])
		}
		for j, path := range group {
			if err := CheckPath(path); err != nil {
				return err
			}
			if j > 0 && path < group[j-1] {
				return invalid("list of hard links", "path %q comes after %q", path, group[j-1])
			}
			if _, ok := seen[path]; ok {
				return invalid("list of hard links", "path %q is there twice", path)
			}
			seen[path] = struct{}{}
			text += len(path)
		}
	}
	if text > maxLinkText {
		return fmt.Errorf("list of hard links: %w: its paths have more than %d bytes", cas.ErrTooLarge, maxLinkText)
	}
	return nil
}

func fewLinks(group []string) error {
	return invalid("list of hard links", "a group of %d paths", len(group))
}
