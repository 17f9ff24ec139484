package tree

import (
	"context"

	"github.com/snapfs/snapfs/cas"
)

// Verify reads all objects of the trees namespace that the directory root is
// made of, sets of extended attributes included, and checks them against each
// other; above all it counts the totals again, which no other reader can do
// without reading everything. The contents of files are not read. The first thing
// found wrong is returned. For many trees see [Checker].
func Verify(ctx context.Context, r *Reader, root cas.Hash) error {
	_, err := NewChecker(r, nil).Check(ctx, root, at)
	return err
}
