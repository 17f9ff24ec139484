package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/snapfs/snapfs"

// layers are the folders from the bottom up: a package imports from lower layers
// and from its own folder only.
var layers = [][]string{
	{"policy", "secrets"}, // pure decisions: see apart
	{"internal"},
	{"cas"},
	{"tree"},
	{"index"},
	{"capture", "restore"},
	{"snapshot"},
	{"fs", "server", "client"},
	{"workspace"},
	{"cmd"},
}

// siblings may import each other although they are of one layer.
var siblings = [][2]string{
	{"restore", "capture"}, // the marker of an unfinished restore, which capture refuses
	{"server", "client"},   // what both sides of the connection agree on
}

// policyUsers are the folders that ask the policy.
var policyUsers = []string{"capture", "restore", "snapshot", "cmd"}

// engines are the libraries that one folder alone knows.
var engines = map[string]string{
	"github.com/dgraph-io/badger":           "index/badger",
	"github.com/hanwen/go-fuse":             "fs",
	"github.com/danielgtaylor/huma":         "server",
	"github.com/klauspost/compress":         "cas/local",
	"github.com/PlakarKorp/go-cdc-chunkers": "cas",
	"github.com/urfave/cli":                 "cmd/snapfs",
	"go.yaml.in/yaml":                       "cmd/snapfs",
	"github.com/aymanbagabas/go-udiff":      "internal/textdiff",
}

// suites are the tests that every engine of an interface passes.
var suites = []string{"cas/castest", "index/indextest"}

// goPackage is what go list tells of a package.
type goPackage struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

func TestLayers(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = "../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	found := 0
	var wrong []string
	for dec := json.NewDecoder(bytes.NewReader(out)); ; found++ {
		var p goPackage
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		wrong = append(wrong, wrongImports(p)...)
	}
	require.Empty(t, wrong)
	require.Greater(t, found, 10)
}

// TestLayersRefuse shows that the check above can fail.
func TestLayersRefuse(t *testing.T) {
	for _, c := range []struct{ from, imports, wrong string }{
		{"cas", "tree", "is of a higher layer"},
		{"cas", "cas/local", "is an engine of it"},
		{"capture", "restore", "is of the same layer"},
		{"client", "server", "is of the same layer"},
		{"index/badger", "snapshot", "is of a higher layer"},
		{"snapshot", "index/indextest", "is for tests"},
		{"tree", "policy", "does not ask the policy"},
		{"policy", "cas", "is of a higher layer"},
		{"util", "cas", "has no place"},
		{"snapshot", "github.com/dgraph-io/badger/v4", "belongs to index/badger"},
		{"fs", "github.com/danielgtaylor/huma/v2/adapters/humago", "belongs to server"},
		{"cas", "github.com/klauspost/compress/zstd", "belongs to cas/local"},
		{"cas/local", "cas", ""},
		{"index/badger", "index/journal", ""},
		{"restore", "capture", ""},
		{"snapshot", "cas/local", ""},
		{"fs", "github.com/hanwen/go-fuse/v2/fuse", ""},
		{"cmd/snapfs", "policy", ""},
	} {
		t.Run(c.from+" "+c.imports, func(t *testing.T) {
			imports := c.imports
			if !strings.HasPrefix(imports, "github.com/") {
				imports = module + "/" + imports
			}
			got := wrongImports(goPackage{ImportPath: module + "/" + c.from, Imports: []string{imports}})
			if c.wrong == "" {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			require.Contains(t, got[0], c.wrong)
		})
	}
}

// wrongImports names the imports of a package that the rules do not allow. Tests
// may import any package of the module, but no other folder's engine.
func wrongImports(p goPackage) []string {
	var wrong []string
	from := inside(p.ImportPath)
	for _, imported := range p.Imports {
		if strings.HasPrefix(imported, module+"/") {
			if why := wrongImport(from, inside(imported)); why != "" {
				wrong = append(wrong, why)
			}
		}
	}
	for _, imported := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
		for library, folder := range engines {
			if (imported == library || strings.HasPrefix(imported, library+"/")) && from != folder {
				wrong = append(wrong, fmt.Sprintf("%s imports %s, which belongs to %s", from, imported, folder))
			}
		}
	}
	return wrong
}

// wrongImport says what is wrong with an import between two folders; empty:
// nothing is.
func wrongImport(from, to string) string {
	a, b := layer(from), layer(to)
	complain := func(why string) string { return fmt.Sprintf("%s imports %s, which %s", from, to, why) }
	switch {
	case a < 0:
		return from + " has no place in the layers"
	case slices.Contains(suites, to):
		return complain("is for tests")
	case top(from) == top(to):
		if strings.HasPrefix(to, from+"/") {
			return complain("is an engine of it")
		}
		return ""
	case to == "policy" && !slices.Contains(policyUsers, top(from)):
		return from + " does not ask the policy, but imports it"
	case b > a:
		return complain("is of a higher layer")
	case b == a && !slices.Contains(siblings, [2]string{from, to}):
		return complain("is of the same layer")
	}
	return ""
}

// inside is an import path within the module.
func inside(importPath string) string {
	return strings.TrimPrefix(strings.TrimPrefix(importPath, module), "/")
}

// top is a package's first folder.
func top(folder string) string {
	first, _, _ := strings.Cut(path.Clean(folder), "/")
	return first
}

// layer counts from the bottom; -1: the folder is in none.
func layer(folder string) int {
	return slices.IndexFunc(layers, func(l []string) bool { return slices.Contains(l, top(folder)) })
}
