package policy

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// benchEntry is one entry of a generated tree, in the order of a walk.
type benchEntry struct {
	path   string
	name   string
	parent int // index of its directory, -1 for the root
	isDir  bool
}

// benchTree makes a tree like that of an installed npm project, of exactly n
// entries. Its top is not called node_modules: nothing is pruned.
func benchTree(n int) []benchEntry {
	r := rand.New(rand.NewPCG(1, 2))
	var list []benchEntry
	add := func(parent int, name string, isDir bool) int {
		path := name
		if parent >= 0 {
			path = list[parent].path + "/" + name
		}
		if len(list) < n {
			list = append(list, benchEntry{path, name, parent, isDir})
		}
		return len(list) - 1
	}
	files := []string{"index.js", "index.d.ts", "utils.js", "package.json", "README.md", "LICENSE", ".eslintrc", "CHANGELOG.md"}
	top := add(-1, "modules", true)
	for p := 0; len(list) < n; p++ {
		at := top
		if p%7 == 0 {
			at = add(top, fmt.Sprintf("@scope-%d", p), true)
		}
		pkg := add(at, fmt.Sprintf("package-%d", p), true)
		for _, f := range files {
			add(pkg, f, false)
		}
		for _, dir := range []string{"lib", "dist", "src"} {
			d := add(pkg, dir, true)
			for depth := r.IntN(4); depth >= 0; depth-- {
				for f := r.IntN(16); f >= 0; f-- {
					add(d, fmt.Sprintf("module-%d.%s", f, []string{"js", "d.ts", "js.map"}[f%3]), false)
				}
				d = add(d, "internal", true)
			}
		}
	}
	return list
}

const benchEntries = 82_790

func benchFiles(b *testing.B) (*Files, []benchEntry) {
	files, err := CompileFiles(FilesOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return files, benchTree(benchEntries)
}

// BenchmarkDecide walks the tree once an iteration.
func BenchmarkDecide(b *testing.B) {
	files, tree := benchFiles(b)
	scopes := make([]Scope, len(tree))
	b.ReportAllocs()
	for b.Loop() {
		for i := range tree {
			e := &tree[i]
			at := files.Root()
			if e.parent >= 0 {
				at = scopes[e.parent]
			}
			d, sub := at.Decide(e.name, e.isDir)
			if !d.Keep {
				b.Fatal(e.path)
			}
			if e.isDir {
				scopes[i] = sub
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchEntries, "ns/entry")
}

// BenchmarkDecidePath asks about each path from the root again.
func BenchmarkDecidePath(b *testing.B) {
	files, tree := benchFiles(b)
	b.ReportAllocs()
	for b.Loop() {
		for i := range tree {
			if !files.Decide(tree[i].path, tree[i].isDir).Keep {
				b.Fatal(tree[i].path)
			}
		}
	}
}

// BenchmarkDecideManyRules has 1,000 rules of all kinds besides the defaults.
func BenchmarkDecideManyRules(b *testing.B) {
	var exclude []Rule
	for i := range 250 {
		for _, p := range []string{"name-%d", "/top/dir-%d/x", "**/deep-%d/**/x", "/a/*-%d/*.o"} {
			exclude = append(exclude, Rule{Pattern: fmt.Sprintf(p, i)})
		}
	}
	files, err := CompileFiles(FilesOptions{Exclude: exclude})
	if err != nil {
		b.Fatal(err)
	}
	tree := benchTree(benchEntries)
	_, top := files.Root().Decide("modules", true)
	for b.Loop() {
		for i := range tree {
			if d, _ := top.Decide(tree[i].name, tree[i].isDir); !d.Keep {
				b.Fatal(tree[i].path)
			}
		}
	}
}

// BenchmarkDecideIncludes has an include that takes all, and one that never matches, as
// they are and watched.
func BenchmarkDecideIncludes(b *testing.B) {
	tree := benchTree(benchEntries)
	for _, watch := range []bool{false, true} {
		b.Run(fmt.Sprintf("watched=%v", watch), func(b *testing.B) {
			files, err := CompileFiles(FilesOptions{Include: []Rule{{Pattern: "modules/"}, {Pattern: "src/q/*"}}})
			if err != nil {
				b.Fatal(err)
			}
			if watch {
				files, _ = files.WatchedIncludes()
			}
			_, top := files.Root().Decide("modules", true)
			for b.Loop() {
				for i := range tree {
					if d, _ := top.Decide(tree[i].name, tree[i].isDir); !d.Keep {
						b.Fatal(tree[i].path)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchEntries, "ns/entry")
		})
	}
}
