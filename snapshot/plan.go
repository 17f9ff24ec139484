package snapshot

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/capture"
)

// A SavePlan is what [Store.Save] would do.
type SavePlan struct {
	Stored []capture.Planned  // sorted by path
	Left   []capture.Omission // as in the record of a checkpoint, sorted by path
	// The counts and warnings that the save would have; its Checkpoint is not set. What
	// looks like a secret is found only if that would be left out.
	Result SaveResult
}

// PlanSave tells what a save would store and leave out, and writes nothing, neither
// to the workspace nor to a store. store is the directory of the store to save to,
// which need not be there. Of the options only those count that choose among entries.
func PlanSave(ctx context.Context, store string, opt SaveOptions) (SavePlan, error) {
	files, screen, err := opt.compile()
	if err != nil {
		return SavePlan{}, err
	}
	copt := capture.Options{Files: files, SkipUnreadable: opt.SkipUnreadable, AllowTorn: opt.AllowTorn, Settings: opt.Settings, Screen: screen}
	there := store
	if _, err := os.Stat(store); errors.Is(err, iofs.ErrNotExist) {
		there = ""
	}
	workspace, err := checkWorkspace(there, opt.Workspace, opt.Force)
	if err != nil {
		return SavePlan{}, err
	}
	if there == "" && !opt.Force && Within(realPath(filepath.Clean(store)), workspace) {
		return SavePlan{}, WithHint(fmt.Errorf("the store %s would lie in the workspace %s: %w", quoted(store), quoted(opt.Workspace), ErrRefused), "save a directory of its own, or add --force")
	}
	if opt.Force {
		if copt.Skip, err = skipped(there); err != nil {
			return SavePlan{}, err
		}
	}
	got, stored, err := capture.Plan(ctx, workspace, copt)
	if err != nil {
		return SavePlan{}, saveError(err, workspace, opt.Workspace)
	}
	plan := SavePlan{Stored: stored, Left: got.Left, Result: saveResult(got)}
	plan.Result.Found = inFiles(got.Secrets)
	return plan, nil
}
