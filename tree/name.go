package tree

import (
	"fmt"
	"strings"
)

const (
	// MaxName is the longest name of an entry in bytes.
	MaxName = 255
	// MaxPath is the longest slash path below a root in bytes: what Linux takes
	// in one system call. It bounds the depth of a tree, too: [Walk] and [Diff]
	// fail on what lies deeper.
	MaxPath = 4095
	// MaxTarget is the longest symlink target in bytes.
	MaxTarget = 4095
)

// CheckName tells whether name can be an entry's: 1 to [MaxName] bytes, of any
// encoding, without NUL and slash, and neither "." nor "..". The error wraps
// [ErrInvalid].
func CheckName(name string) error {
	switch {
	case name == "":
		return invalid("name", "it is empty")
	case len(name) > MaxName:
		return invalid(fmt.Sprintf("name %.32q...", name), "it has %d bytes, at most %d can be", len(name), MaxName)
	case name == "." || name == "..":
		return invalid(fmt.Sprintf("name %q", name), "it stands for a directory's self or parent")
	case strings.IndexByte(name, 0) >= 0:
		return invalid(fmt.Sprintf("name %q", name), "it contains a NUL byte")
	case strings.IndexByte(name, '/') >= 0:
		return invalid(fmt.Sprintf("name %q", name), "it contains a slash")
	}
	return nil
}

// CheckPath tells whether path is a slash path below a root: names as in
// [CheckName] with single slashes between them, at most [MaxPath] bytes long.
// It never begins or ends with a slash, and the root itself has no such path.
// The error wraps [ErrInvalid].
func CheckPath(path string) error {
	if len(path) > MaxPath {
		return tooDeep(path)
	}
	for name := range strings.SplitSeq(path, "/") {
		if err := CheckName(name); err != nil {
			return fmt.Errorf("path %q: %w", path, err)
		}
	}
	return nil
}

// join appends a name to a slash path.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "/" + name
}

func tooDeep(path string) error {
	return invalid(fmt.Sprintf("path %.64q...", path), "it has %d bytes, at most %d can be", len(path), MaxPath)
}
