package badger

import (
	"context"
	"fmt"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/index/journal"
)

// Published implements [index.Index]: the journal has it.
func (ix *Index) Published(ctx context.Context, org string, seq uint64) (id string, record cas.Hash, err error) {
	if err := ix.enter(ctx); err != nil {
		return "", record, err
	}
	defer ix.leave()
	if seq > 0 {
		for e, err := range ix.journal.Replay(seq) {
			if err != nil {
				return "", record, err
			}
			if ev, _, ok := journal.Published(e.Event); ok && e.Seq == seq && ev.Org == org && ev.Record != record {
				return ev.Checkpoint, ev.Record, nil
			}
			break
		}
	}
	return "", record, fmt.Errorf("journal entry %d publishes none: %w", seq, index.ErrCheckpointNotFound)
}
