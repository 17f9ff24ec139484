package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	iofs "io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/snapshot"
)

// variables are those that have an effect, and no other.
var variables = []string{
	"SNAPFS_COMPRESSION", "SNAPFS_CONFIG", "SNAPFS_JSON", "SNAPFS_LOG_FORMAT", "SNAPFS_LOG_LEVEL", "SNAPFS_POLICY", "SNAPFS_STORE", "SNAPFS_THREAD",
}

// TestVariables: what stands for flags is a closed list, in the flags and in all
// of the sources.
func TestVariables(t *testing.T) {
	found := map[string]bool{}
	add := func(flags []cli.Flag) {
		for _, f := range flags {
			if f, ok := f.(cli.DocGenerationFlag); ok {
				for _, name := range f.GetEnvVars() {
					found[name] = true
				}
			}
		}
	}
	app := newApp()
	add(app.Flags)
	eachVerb(app.Commands, func(cmd *cli.Command) { add(cmd.Flags) })
	require.Equal(t, variables, slices.Sorted(maps.Keys(found)))

	variable := regexp.MustCompile(`SNAPFS_[A-Z_]+`)
	for _, file := range sources(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			require.NoError(t, err)
			for _, name := range variable.FindAllString(text, -1) {
				require.Contains(t, variables, name)
			}
			return true
		})
	}
}

// sources parses every file of the program that is no test.
func sources(t *testing.T) []*ast.File {
	t.Helper()
	var files []*ast.File
	err := filepath.WalkDir("../..", func(path string, e iofs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "internal/soak/") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		files = append(files, file)
		return err
	})
	require.NoError(t, err)
	require.Greater(t, len(files), 50)
	return files
}

// TestNamesInJSON: documents have lowerCamelCase names, and say all that they
// have.
func TestNamesInJSON(t *testing.T) {
	camel := regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`)
	for _, doc := range []any{
		snapshot.Checkpoint{}, snapshot.Thread{}, snapshot.Artifact{}, snapshot.Lease{}, snapshot.Stats{}, snapshot.Usage{}, snapshot.NamespaceUsage{}, snapshot.ThreadUsage{}, snapshot.Sizes{}, statsDoc{}, snapshot.GCResult{}, snapshot.ForgetSome{}, snapshot.Forgotten{}, snapshot.TransferResult{}, snapshot.Received{}, snapshot.PublishedCheckpoint{}, snapshot.ScrubHit{}, changeDoc{}, revisionDoc{}, statDoc{}, statSum{}, artifactDoc{}, conversationDoc{}, entryDoc{}, restoreCounts{}, incompleteItem{}, value{},
	} {
		typ := reflect.TypeOf(doc)
		for f := range typ.Fields() {
			if f.Anonymous {
				continue
			}
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			require.Regexp(t, camel, name, "%s.%s", typ, f.Name)
		}
	}
}

// TestEveryVerbIsDocumented: the page about the command line has a section for
// each verb, and names each flag.
func TestEveryVerbIsDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/CLI.md")
	require.NoError(t, err)
	page, app := string(data), newApp()
	visible := func(in string, flags []cli.Flag) {
		for _, f := range flags {
			if v, ok := f.(cli.VisibleFlag); ok && v.IsVisible() && !slices.Contains(cli.HelpFlag.Names(), f.Names()[0]) {
				name := strings.Repeat("-", min(len(f.Names()[0]), 2)) + f.Names()[0]
				require.True(t, strings.Contains(in, name), "%s in %.40s", name, in)
			}
		}
	}
	visible(page, app.Flags)
	for _, cmd := range app.Commands {
		if cmd.Name == helpCommand.Name {
			continue
		}
		_, section, found := strings.Cut(page, "\n### "+cmd.Name+"\n")
		require.True(t, found, cmd.Name)
		section, _, _ = strings.Cut(section, "\n### ")
		eachVerb([]*cli.Command{cmd}, func(v *cli.Command) {
			require.Contains(t, section, v.Name)
			visible(section, v.Flags)
		})
	}
}
