package capture

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/policy"
)

// TestWarnsOfWhatIsLost: no file is saved though there were some, or an include matches
// nothing. The plan of a capture says the same.
func TestWarnsOfWhatIsLost(t *testing.T) {
	for name, tt := range map[string]struct {
		tree             map[string]string
		exclude, include []string
		settings         policy.Settings
		want             []string
	}{
		"directories alone are lifted": {
			tree: map[string]string{"a": "", "src/b": "", "src/in/c": "", "d/": ""}, exclude: []string{"*", "!*/"},
			want: []string{"no file is saved: 3 entries are left out: excluded by * (--exclude)"},
		},
		"one directory is lifted": {
			tree: map[string]string{"a": "", "src/b": "", "z/c": ""}, exclude: []string{"*", "!src/"},
			want: []string{"no file is saved: 3 entries are left out: excluded by * (--exclude)"},
		},
		"all is excluded":        {tree: map[string]string{"a": ""}, exclude: []string{"*"}, want: []string{"no file is saved: 1 entry is left out: excluded by * (--exclude)"}},
		"by a default":           {tree: map[string]string{".git/HEAD": ""}, want: []string{"no file is saved: 1 entry is left out: excluded by .git (default)"}},
		"most by the second":     {tree: map[string]string{"a": "", "b.o": "", "c.o": ""}, exclude: []string{"a", "*.o"}, want: []string{"no file is saved: 3 entries are left out, 2 of them: excluded by *.o (--exclude)"}},
		"as many: the first":     {tree: map[string]string{"a.o": "", "b": ""}, exclude: []string{"b", "*.o"}, want: []string{"no file is saved: 2 entries are left out, 1 of them: excluded by *.o (--exclude)"}},
		"by the workspace":       {tree: map[string]string{".snapfsignore": "*", "a": ""}, want: []string{"no file is saved: 2 entries are left out: excluded by * (.snapfsignore:1)"}},
		"too long":               {tree: map[string]string{"a": "long"}, settings: policy.Settings{MaxFileSize: 1, SkipOver: true}, want: []string{"no file is saved: 1 entry is left out: over the limit for files: 4 bytes long (4 B), the limit is 1"}},
		"includes match none":    {tree: map[string]string{"a": "", "e/": ""}, include: []string{"e/"}, want: []string{"no file is saved: the includes match none"}},
		"nothing was there":      {tree: map[string]string{"e/": ""}},
		"nothing was left out":   {tree: map[string]string{"e/": ""}, exclude: []string{"x"}, include: []string{"e"}},
		"a file is left":         {tree: map[string]string{"a": "", "b": ""}, exclude: []string{"a"}},
		"an include for nothing": {tree: map[string]string{"a": ""}, include: []string{"a", "src/q/*"}, want: []string{"--include src/q/*: nothing in the workspace matches"}},
		"includes for nothing": {
			tree: map[string]string{"a": "", "d": "", "x/b": ""}, exclude: []string{"d"}, include: []string{"y", "d", "b/", "/x/c"},
			want: []string{
				"no file is saved: 1 entry is left out: excluded by d (--exclude)",
				"--include y: nothing in the workspace matches that is not excluded", "--include d: nothing in the workspace matches that is not excluded",
				"--include b/: nothing in the workspace matches that is not excluded", "--include /x/c: nothing in the workspace matches that is not excluded",
			},
		},
		"below another's match":       {tree: map[string]string{"src/a/b.go": ""}, include: []string{"src", "src/a/*", "*.go", "**/a/b.go"}},
		"not below another's match":   {tree: map[string]string{"src/a/b.go": ""}, include: []string{"src", "src/a/*.c"}, want: []string{"--include src/a/*.c: nothing in the workspace matches"}},
		"two that match the same":     {tree: map[string]string{"a": ""}, include: []string{"a", "/a", "?"}},
		"only a directory on the way": {tree: map[string]string{"src/a": "", "b": ""}, include: []string{"b", "src/x"}, want: []string{"--include src/x: nothing in the workspace matches"}},
	} {
		t.Run(name, func(t *testing.T) {
			ws := t.TempDir()
			write(t, ws, tt.tree)
			opt := policy.FilesOptions{}
			for _, p := range tt.exclude {
				opt.Exclude = append(opt.Exclude, policy.Rule{Pattern: p, Source: "--exclude"})
			}
			for _, p := range tt.include {
				opt.Include = append(opt.Include, policy.Rule{Pattern: p, Source: "--include"})
			}
			files, err := policy.CompileFiles(opt)
			require.NoError(t, err)
			copt := Options{Files: files, Settings: tt.settings}
			for range 2 { // a capture leaves no mark in the rules
				got, err := Tree(t.Context(), ws, newMemory(), copt)
				require.NoError(t, err)
				require.Equal(t, tt.want, got.Warnings)
			}
			got, _, err := Plan(t.Context(), ws, copt)
			require.NoError(t, err)
			require.Equal(t, tt.want, got.Warnings)
		})
	}
}

// A bit that a directory loses is no entry that is left out, a FIFO is one.
func TestWarnsOfLostSpecialFiles(t *testing.T) {
	ws := t.TempDir()
	dir := filepath.Join(ws, "d")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.Chmod(dir, 0o755|os.ModeSetgid))
	got, err := Tree(t.Context(), ws, newMemory(), Options{Files: rules(t)})
	require.NoError(t, err)
	require.Equal(t, 1, got.Setuid)
	require.Empty(t, got.Warnings)

	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "f"), 0o600))
	got, err = Tree(t.Context(), ws, newMemory(), Options{Files: rules(t)})
	require.NoError(t, err)
	require.Equal(t, []string{"no file is saved: 1 entry is left out: fifo"}, got.Warnings)
}
