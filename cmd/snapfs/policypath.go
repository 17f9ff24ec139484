package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/snapshot"
)

// pathIn returns a path relative to a workspace, in which a given path that is not
// absolute begins, too; an absolute one has to lie inside. A slash at the end says that
// it is a directory. No link in it is followed but those above the workspace.
func pathIn(workspace, path string) (rel string, isDir bool, err error) {
	outside := func() error {
		return snapshot.WithHint(usage(fmt.Errorf("path %s is not in the workspace %s", quote(path), quote(workspace))), "it is relative to the workspace, which --workspace names; without it that is the current directory")
	}
	names := strings.Split(path, "/")
	if slices.Contains(names, "..") {
		return "", false, outside()
	}
	isDir = names[len(names)-1] == "" || names[len(names)-1] == "."
	if !filepath.IsAbs(path) {
		return withoutDot(filepath.Clean(path)), isDir, nil
	}
	abs, err := filepath.Abs(workspace)
	if err != nil {
		return "", false, fmt.Errorf("workspace %s: %w", quote(workspace), err)
	}
	roots := []string{abs}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		roots = append(roots, real)
	}
	for _, root := range roots {
		if snapshot.Within(path, root) {
			rel, err := filepath.Rel(root, path)
			return withoutDot(rel), isDir, err
		}
	}
	return "", false, outside()
}

// withoutDot is the empty path for the workspace itself.
func withoutDot(rel string) string {
	if rel == "." {
		return ""
	}
	return rel
}
