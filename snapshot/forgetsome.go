package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/snapfs/snapfs/index"
)

// ForgetSome asks for the deletion of checkpoints of one thread that were found to be
// without a name and not its head. What is not so any more, when the deletion is decided,
// stays.
type ForgetSome struct {
	Thread      string   `json:"thread"`
	Checkpoints []string `json:"checkpoints" maxItems:"64"` // ids, at most [index.MaxForget]
}

// Forgotten is what became of them. What is in neither list stays, or was gone before.
type Forgotten struct {
	Deleted []string `json:"deleted"`
	// Failed: the deletion is decided, but could not be ended.
	Failed []string `json:"failed,omitempty"`
	Reason string   `json:"reason,omitempty"` // why
}

// Forget implements [Holder].
func (h *localHolder) Forget(ctx context.Context, req ForgetSome) (Forgotten, error) {
	res := Forgotten{Deleted: []string{}}
	accepted, err := h.index.BeginForget(ctx, defaultOrg, req.Thread, req.Checkpoints)
	if err != nil || len(accepted) == 0 {
		return res, err
	}
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return res, fmt.Errorf("forget: %w", index.ErrClosed)
	}
	h.ending.Add(1)
	h.mu.Unlock()
	defer h.ending.Done()
	names := map[string]string{}
	for _, id := range accepted {
		names[id] = ""
	}
	if err := h.completeSome(req.Thread, names); err != nil {
		if errors.Is(err, index.ErrCommitted) {
			return res, err
		}
		res.Failed, res.Reason = accepted, err.Error()
		return res, nil
	}
	res.Deleted = slices.Clone(accepted)
	return res, nil
}
