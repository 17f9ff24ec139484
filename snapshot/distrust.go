package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	iofs "io/fs"
	"path/filepath"

	"github.com/snapfs/snapfs/cas"
)

// distrustFile keeps, in cache/, the objects that verify or a read found damaged,
// until a save has stored them anew. Without it, they would only be found again.
const distrustFile = "damaged.json"

// damagedObject is an entry of distrustFile. Another place is not meant.
type damagedObject struct {
	Namespace string `json:"namespace"`
	Hash      string `json:"hash"`
	Pack      string `json:"pack"`
	Offset    uint32 `json:"offset"`
}

// loadDistrust reads what earlier processes found.
func (h *localHolder) loadDistrust() {
	data, err := readAtMost(filepath.Join(h.dir, cacheDir, distrustFile), maxCacheFile)
	if errors.Is(err, iofs.ErrNotExist) {
		return
	}
	var list map[cas.Key]cas.Location
	if err == nil {
		list, err = decodeDistrust(data)
	}
	if err != nil {
		h.log.Warn("cannot read which objects are damaged; verify finds them again", "error", err)
		return
	}
	h.distrusted = list
}

// encodeDistrust returns the content of distrustFile.
func encodeDistrust(distrusted map[cas.Key]cas.Location) ([]byte, error) {
	list := make([]damagedObject, 0, len(distrusted))
	for key, at := range distrusted {
		list = append(list, damagedObject{Namespace: key.NS.String(), Hash: key.Hash.String(), Pack: at.Pack.String(), Offset: at.Offset})
	}
	return json.Marshal(list)
}

// decodeDistrust is the inverse of encodeDistrust.
func decodeDistrust(data []byte) (map[cas.Key]cas.Location, error) {
	var list []damagedObject
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, err
	}
	distrusted := make(map[cas.Key]cas.Location, len(list))
	for _, d := range list {
		ns, nerr := cas.ParseNamespace(d.Namespace)
		hash, herr := cas.ParseHash(d.Hash)
		pack, perr := cas.ParsePackID(d.Pack)
		if err := errors.Join(nerr, herr, perr); err != nil {
			return nil, err
		}
		distrusted[cas.Key{NS: ns, Hash: hash}] = cas.Location{Pack: pack, Offset: d.Offset}
	}
	return distrusted, nil
}

// saveDistrust writes the list; mu is held.
func (h *localHolder) saveDistrust() error {
	path := filepath.Join(h.dir, cacheDir, distrustFile)
	if len(h.distrusted) == 0 {
		if err := h.fsys.Remove(path); err != nil && !errors.Is(err, iofs.ErrNotExist) {
			return err
		}
		return nil
	}
	data, err := encodeDistrust(h.distrusted)
	if err != nil {
		return err
	}
	return writeFile(h.fsys, h.dir, path, data)
}

// Distrust implements [Holder].
func (h *localHolder) Distrust(_ context.Context, objects []cas.Located) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.distrusted == nil {
		h.distrusted = map[cas.Key]cas.Location{}
	}
	for _, o := range objects {
		h.distrusted[o.Key] = cas.Location{Pack: o.Location.Pack, Offset: o.Location.Offset}
	}
	return h.saveDistrust()
}

// found notes an object that a read found damaged.
func (h *localHolder) found(o cas.Located) {
	if h.isDistrusted(o.Key, o.Location) {
		return
	}
	h.log.Error("a stored object is damaged", "object", o.Key.String(), "pack", o.Location.Pack.String())
	if err := h.Distrust(context.Background(), []cas.Located{o}); err != nil {
		h.log.Warn("cannot note that an object is damaged", "object", o.Key.String(), "error", err)
	}
}

// isDistrusted reports whether verify found the object damaged at its place.
func (h *localHolder) isDistrusted(key cas.Key, at cas.Location) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	bad, ok := h.distrusted[key]
	return ok && bad.Pack == at.Pack && bad.Offset == at.Offset
}

// trustAgain forgets the damage of objects that have a new place.
func (h *localHolder) trustAgain(objects []cas.Located) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	healed := false
	for _, o := range objects {
		if _, ok := h.distrusted[o.Key]; ok {
			delete(h.distrusted, o.Key)
			healed = true
		}
	}
	if !healed {
		return nil
	}
	return h.saveDistrust()
}
