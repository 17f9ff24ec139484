package snapshot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// plannedWorkspace has an entry of each kind, and something for each reason to leave
// it out.
func plannedWorkspace(t *testing.T) string {
	t.Helper()
	ws := t.TempDir()
	write(t, ws, map[string]string{
		"a": "1", "b/c/d": "22", "b/e/": "", "long": strings.Repeat("x", 3<<20), ".env": "", "node_modules/x/y": "", "x.log": "", "src/y.log": "",
		".snapfsignore": "/b/c/z\n", "b/c/z": "", "src/.gitignore": "gen/\n", "src/gen/x": "", "src/m.go": "333",
		"cache/CACHEDIR.TAG": "Signature: 8a477f597d28d172789f06886806bc55", "cache/z/z": "",
		"db": "SQLite format 3\x00" + strings.Repeat("-", 100), "db-wal": strings.Repeat("w", 200), "db-shm": "", "odd\n\xff": "", "deep/only/src/k": "",
	})
	require.NoError(t, os.Symlink("a", filepath.Join(ws, "l")))
	require.NoError(t, os.Link(filepath.Join(ws, "a"), filepath.Join(ws, "src/hard")))
	require.NoError(t, unix.Mkfifo(filepath.Join(ws, "fifo"), 0o644))
	require.NoError(t, os.Chmod(filepath.Join(ws, "src/m.go"), 0o755|os.ModeSetuid))
	return ws
}

// TestPlanIsWhatSaveDoes: a plan lists exactly what the save then stores and leaves
// out, with the same counts, warnings and errors.
func TestPlanIsWhatSaveDoes(t *testing.T) {
	rule := func(patterns ...string) (list []policy.Rule) {
		for _, p := range patterns {
			list = append(list, policy.Rule{Pattern: p, Source: "--flag"})
		}
		return list
	}
	for name, opt := range map[string]SaveOptions{
		"nothing said":    {},
		"no defaults":     {Files: policy.FilesOptions{NoDefaults: true}},
		"all settings":    {Settings: policy.Settings{GitIgnore: true, ExcludeCaches: true, MaxFileSize: 1 << 20, SkipOver: true, MaxSize: 1 << 30}},
		"over, databases": {Settings: policy.Settings{MaxFileSize: 150, SkipOver: true}},
		"includes":        {Files: policy.FilesOptions{Include: rule("src", "/b/c", "nothing/like/it")}},
		"excludes":        {Files: policy.FilesOptions{Exclude: rule("*.log", "b/**", "!.env")}},
		"everything":      {Files: policy.FilesOptions{Exclude: rule("*")}},
		"too long":        {Settings: policy.Settings{MaxFileSize: 10}},
		"too much":        {Settings: policy.Settings{MaxSize: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			ws := plannedWorkspace(t)
			s := newStore(t)
			opt.Workspace, opt.Thread = ws, "t"
			before := look(t, ws)
			plan, planErr := PlanSave(t.Context(), s.dir, opt)
			require.Equal(t, before, look(t, ws))
			require.Empty(t, tempFiles(t, s))
			res, err := s.Save(t.Context(), opt)
			if err != nil {
				require.EqualError(t, planErr, err.Error())
				require.ErrorIs(t, planErr, cas.ErrTooLarge)
				return
			}
			require.NoError(t, planErr)
			var stored []capture.Planned
			_, rec, err := s.record(t.Context(), res.Checkpoint.ID)
			require.NoError(t, err)
			require.NoError(t, tree.Walk(t.Context(), s.trees, rec.Root.Tree, func(path string, e tree.Entry) error {
				stored = append(stored, capture.Planned{Path: path, Kind: e.Kind, Size: e.Size})
				return nil
			}))
			require.ElementsMatch(t, stored, plan.Stored)
			full, err := s.Show(t.Context(), res.Checkpoint.ID)
			require.NoError(t, err)
			require.Len(t, plan.Left, len(full.Omissions))
			for i, o := range full.Omissions {
				require.Equal(t, capture.Omission{Path: o.Raw(), Why: o.Why}, plan.Left[i])
			}
			res.Checkpoint, res.Read = Checkpoint{}, 0
			require.Equal(t, res, plan.Result)
			require.Empty(t, faults(t, s))
		})
	}
}

// TestPlanNeedsNoStore: a store that is not there stays so.
func TestPlanNeedsNoStore(t *testing.T) {
	ws, dir := plannedWorkspace(t), filepath.Join(t.TempDir(), "none")
	plan, err := PlanSave(t.Context(), dir, SaveOptions{Workspace: ws})
	require.NoError(t, err)
	require.NotEmpty(t, plan.Stored)
	require.NoDirExists(t, dir)

	_, err = PlanSave(t.Context(), filepath.Join(ws, "store"), SaveOptions{Workspace: ws})
	require.ErrorIs(t, err, ErrRefused)
	s := newStore(t)
	_, err = PlanSave(t.Context(), s.dir, SaveOptions{Workspace: filepath.Dir(s.dir)})
	require.ErrorIs(t, err, ErrRefused)
	plan, err = PlanSave(t.Context(), s.dir, SaveOptions{Workspace: filepath.Dir(s.dir), Force: true})
	require.NoError(t, err)
	require.Contains(t, plan.Left, capture.Omission{Path: filepath.Base(s.dir), Why: "the store"})
	_, err = PlanSave(t.Context(), dir, SaveOptions{Workspace: filepath.Join(ws, "missing")})
	require.ErrorIs(t, err, os.ErrNotExist)
}
