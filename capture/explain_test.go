package capture

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// explained writes an explanation as one line.
func explained(e Explanation) string {
	s := "exclude"
	if e.Kept() {
		s = "include"
	}
	if e.Decision.Rule.Pattern != "" {
		s += " " + e.Decision.Rule.Pattern + " " + e.Decision.Rule.Source + " at " + e.At
	}
	if e.Why != "" {
		s += " because " + e.Why
	}
	return s
}

func TestExplain(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{
		".snapfsignore": "*.log\n", "a/.gitignore": "/gen/\n!x.log\n[\n", "a/gen/x": "", "a/x.log": "", "a/y": "12345", ".env": "", ".env.example": "", "node_modules/p/.snapfsignore": "!*\n",
		"node_modules/p/x": "", "c/CACHEDIR.TAG": cacheSignature, "c/x/y": "", "gen": "",
	})
	require.NoError(t, os.Symlink("a", filepath.Join(ws, "link")))
	require.NoError(t, unix.Mkfifo(filepath.Join(ws, "fifo"), 0o644))
	opt := Options{Files: withDefaults(t), Settings: policy.Settings{GitIgnore: true, ExcludeCaches: true, MaxFileSize: 4, SkipOver: true}}
	for _, tt := range []struct {
		path  string // one that ends in a slash is a directory where nothing is
		kind  string
		isDir bool
		want  string
	}{
		{"", "directory", true, "include"},
		{"a", "directory", true, "include"},
		{"a/", "directory", true, "include"},
		{"a/y", "file", false, "exclude because over the limit for files: 5 bytes long (5 B), the limit is 4"},
		{".env", "file", false, "exclude .env default at .env"},
		{".env.example", "file", false, "include !.env.example default at .env.example"},
		{".env.other", "", false, "exclude .env.* default at .env.other"},
		{"a/x.log", "file", false, "exclude *.log .snapfsignore:1 at a/x.log"},
		{"a/gen", "directory", true, "exclude /gen/ a/.gitignore:1 at a/gen"},
		{"a/gen/x", "file", false, "exclude /gen/ a/.gitignore:1 at a/gen"},
		{"gen", "file", false, "include"},
		{"node_modules/p/x", "file", false, "exclude node_modules/ default at node_modules"},
		{"node_modules", "directory", true, "exclude node_modules/ default at node_modules"},
		{"new/node_modules", "", false, "include"},
		{"new/node_modules/", "", true, "exclude node_modules/ default at new/node_modules"},
		{"new/deep/x.log/y", "", false, "exclude *.log .snapfsignore:1 at new/deep/x.log"},
		{"c/CACHEDIR.TAG", "file", false, "exclude because over the limit for files: 43 bytes long (43 B), the limit is 4"},
		{"c/x/y", "file", false, "exclude because c is a cache directory"},
		{"link", "symlink", false, "include"},
		{"link/y", "", false, "exclude because link is a symlink, and nothing lies below it"},
		{"gen/y", "", false, "exclude because gen is a file, and nothing lies below it"},
		{"fifo", "fifo", false, "exclude because fifo"},
	} {
		path, isDir := strings.CutSuffix(tt.path, "/")
		got, err := Explain(ws, path, isDir, opt)
		require.NoError(t, err, tt.path)
		require.Equal(t, tt.want, explained(got), tt.path)
		if tt.kind != "" {
			require.Equal(t, tt.kind, got.Kind, tt.path)
			require.Equal(t, tt.isDir, got.IsDir, tt.path)
		}
		if strings.HasPrefix(tt.path, "a/") && tt.path != "a/" {
			require.Contains(t, strings.Join(got.Warnings, "\n"), "a/.gitignore:3: pattern [ does not count", tt.path)
		}
	}
}

// TestExplainIsWhatTreeDoes: what is explained of each entry of a workspace is what a
// capture makes of it.
func TestExplainIsWhatTreeDoes(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{
		".snapfsignore": "*.log\n/b/c\n", "a/.gitignore": "/gen/\n!x.log\n", "a/gen/x": "", "a/x.log": "", "a/y": "12345", "b/c/d": "", "b/e": "", ".env": "", "node_modules/p/x": "",
		"c/CACHEDIR.TAG": cacheSignature, "c/x/y": "", "src/a.go": "", "src/deep/b.go": "", "only/this": "",
	})
	include, err := policy.CompileFiles(policy.FilesOptions{Include: []policy.Rule{{Pattern: "src"}, {Pattern: "*.log"}, {Pattern: "c"}, {Pattern: "/a"}}})
	require.NoError(t, err)
	for _, opt := range []Options{
		{Files: withDefaults(t)},
		{Files: rules(t), Settings: policy.Settings{GitIgnore: true}},
		{Files: include, Settings: policy.Settings{GitIgnore: true, ExcludeCaches: true, MaxFileSize: 4, SkipOver: true}},
		{Files: rules(t, "/*", "!/src/", "!/a/")},
	} {
		m := newMemory()
		got, err := Tree(t.Context(), ws, m, opt)
		require.NoError(t, err)
		explainsTree(t, ws, opt, m.entries(t, got))
	}
}

// explainsTree explains each entry of a workspace and compares with what was saved.
func explainsTree(t *testing.T, ws string, opt Options, all map[string]tree.Entry) {
	t.Helper()
	require.NoError(t, filepath.Walk(ws, func(path string, info os.FileInfo, err error) error {
		require.NoError(t, err)
		rel, err := filepath.Rel(ws, path)
		require.NoError(t, err)
		if rel == "." {
			return nil
		}
		e, err := Explain(ws, rel, false, opt)
		require.NoError(t, err)
		_, saved := all[rel]
		if e.Decision.Descend && !e.Decision.Keep {
			return nil // it depends on what is below
		}
		require.Equal(t, saved, e.Kept(), "%s: %s", rel, explained(e))
		return nil
	}))
}

// TestExplainUnfinished: what a restore left incomplete is not saved at all.
func TestExplainUnfinished(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{"a/in/" + Marker: "", "a/in/x": "", "a/y": "", ".env": ""})
	opt := Options{Files: withDefaults(t)}
	for path, want := range map[string]string{
		"a": "include", "a/y": "include", "a/other": "include",
		"a/in": "exclude because a/in: " + ErrUnfinished.Error() + ", and a save fails", "a/in/x": "exclude because a/in: " + ErrUnfinished.Error() + ", and a save fails",
	} {
		got, err := Explain(ws, path, false, opt)
		require.NoError(t, err)
		require.Equal(t, want, explained(got), path)
		require.Equal(t, path, got.Path)
	}
	got, err := Explain(filepath.Join(ws, "a/in"), "x", false, opt)
	require.NoError(t, err)
	require.Equal(t, "exclude because .: "+ErrUnfinished.Error()+", and a save fails", explained(got))
	got, err = Explain(filepath.Join(ws, "a/in"), "", true, opt)
	require.NoError(t, err)
	require.False(t, got.Kept())
}
