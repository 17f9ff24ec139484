package snapshot

import (
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"

	"github.com/dustin/go-humanize"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
)

// limitReserve is what a store with a limit keeps of it for deletions and collections, in
// bytes, or a tenth of the limit if that is less.
const limitReserve = 64 << 20

// checkLimit fails with [cas.ErrNoSpace] when the store would have more than its limit
// but for the reserve, with so many bytes more.
func (h *localHolder) checkLimit(more int64) error {
	if h.limit == 0 {
		return nil
	}
	_, _, used, err := h.sizes()
	if err != nil {
		return err
	}
	reserve := min(limitReserve, h.limit/10)
	if used+more <= h.limit-reserve {
		return nil
	}
	size := func(n int64) string { return humanize.IBytes(uint64(n)) }
	err = fmt.Errorf("the store has %s of its limit of %s, %s of which are kept in reserve, and would get %s more: %w", size(used), size(h.limit), size(reserve), size(more), cas.ErrNoSpace)
	return WithHint(err, "snapfs gc frees what was deleted and what saves like this one left; snapfs stats tells which threads take the room")
}

// sizes tells how many packs there are and what they take, in bytes, and what counts for a
// store's limit: packs and journal.
func (h *localHolder) sizes() (packs int, bytes, limited int64, err error) {
	if h.packs == nil {
		_, bytes := h.memory.Size()
		return 0, bytes, bytes, nil
	}
	if packs, bytes, err = local.Size(h.dir); err != nil {
		return 0, 0, 0, err
	}
	limited = bytes
	err = filepath.WalkDir(filepath.Join(h.dir, journalDir), func(_ string, e iofs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if os.IsNotExist(err) { // replaced meanwhile
			return nil
		}
		if err == nil {
			limited += info.Size()
		}
		return err
	})
	return packs, bytes, limited, err
}
