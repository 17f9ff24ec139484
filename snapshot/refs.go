package snapshot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/tree"
)

// Latest is the name that always means a thread's head.
const Latest = "latest"

// minPrefix is how many characters of an id are needed to mean it.
const minPrefix = 6

// quoted shows an id or a name in a message.
func quoted(s string) string { return tree.Quote(s) }

// Resolve implements [Holder]. A reference is, in this order: an exact id (that of a
// checkpoint that is being deleted comes last);
// THREAD@latest or THREAD@NAME, tried at each @ from the right, since both
// sides may hold one; a prefix of at least 6 characters of one id or of its last
// part.
func (h *localHolder) Resolve(ctx context.Context, ref string) (Checkpoint, error) {
	exact, err := h.index.Checkpoint(ctx, defaultOrg, ref)
	if err == nil && exact.Status != index.Deleting {
		return newCheckpoint(exact), nil
	}
	if err == nil {
		found, err := h.inexact(ctx, ref)
		if notThere(err) {
			return h.doc(exact), nil
		}
		return found, err
	}
	if !errors.Is(err, index.ErrCheckpointNotFound) && !errors.Is(err, index.ErrInvalid) {
		return Checkpoint{}, err
	}
	return h.inexact(ctx, ref)
}

// inexact finds what a reference means that is no id.
func (h *localHolder) inexact(ctx context.Context, ref string) (Checkpoint, error) {
	thread := "" // an existing one that the reference names
	for at := strings.LastIndexByte(ref, '@'); at >= 0; at = strings.LastIndexByte(ref[:at], '@') {
		cp, err := h.named(ctx, ref[:at], ref[at+1:])
		if err == nil {
			return newCheckpoint(cp), nil
		}
		if errors.Is(err, index.ErrCheckpointNotFound) && thread == "" {
			thread = ref[:at]
		} else if !notThere(err) {
			return Checkpoint{}, err
		}
	}
	found, err := h.byPrefix(ctx, ref)
	if thread != "" && errors.Is(err, index.ErrCheckpointNotFound) {
		err := fmt.Errorf("thread %s has no checkpoint named %s: %w", quoted(thread), quoted(ref[len(thread)+1:]), index.ErrCheckpointNotFound)
		return Checkpoint{}, WithHint(err, "snapfs list %s shows its checkpoints", quoted(thread))
	}
	return found, err
}

// notThere reports whether err says that something does not exist or could not.
func notThere(err error) bool {
	return errors.Is(err, index.ErrCheckpointNotFound) || errors.Is(err, index.ErrThreadNotFound) || errors.Is(err, index.ErrInvalid)
}

// named finds THREAD@NAME.
func (h *localHolder) named(ctx context.Context, thread, name string) (index.Checkpoint, error) {
	if name != Latest {
		return h.index.Named(ctx, defaultOrg, thread, name)
	}
	t, err := h.index.Thread(ctx, defaultOrg, thread)
	if err != nil {
		return index.Checkpoint{}, err
	}
	if t.Head == "" {
		return index.Checkpoint{}, fmt.Errorf("thread %s has no checkpoints: %w", quoted(thread), index.ErrCheckpointNotFound)
	}
	return h.index.Checkpoint(ctx, defaultOrg, t.Head)
}

// byPrefix finds the one checkpoint whose id begins so.
func (h *localHolder) byPrefix(ctx context.Context, ref string) (Checkpoint, error) {
	const shown = 10
	if utf8.RuneCountInString(ref) >= minPrefix {
		found, err := h.index.ByPrefix(ctx, defaultOrg, ref, shown+1)
		if err != nil && !notThere(err) {
			return Checkpoint{}, err
		}
		switch {
		case len(found) == 1:
			return newCheckpoint(found[0]), nil
		case len(found) > 1:
			var ids []string
			for _, cp := range found[:min(shown, len(found))] {
				ids = append(ids, quoted(cp.ID))
			}
			if len(found) > shown {
				ids = append(ids, "...")
			}
			err := fmt.Errorf("%s: %w", quoted(ref), ErrAmbiguous)
			return Checkpoint{}, WithHint(err, "it may mean %s", strings.Join(ids, ", "))
		}
	}
	err := fmt.Errorf("%s: %w", quoted(ref), index.ErrCheckpointNotFound)
	if _, terr := h.index.Thread(ctx, defaultOrg, ref); terr == nil {
		return Checkpoint{}, WithHint(err, "%s is a thread: its newest checkpoint is %s@latest", quoted(ref), quoted(ref))
	}
	return Checkpoint{}, WithHint(err, "snapfs list shows the threads, snapfs list THREAD their checkpoints")
}
