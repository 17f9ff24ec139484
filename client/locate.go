package client

import (
	"context"
	"net/http"
	"slices"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
)

// cachedLocations bounds the places that a holder remembers: about 10 MB.
const cachedLocations = 65536

// locations remembers where objects lie. A place stays good as long as its pack
// is there: packs never change. When a pack is gone, [local.Store] asks anew
// with [local.Fresh], and all that lay in that pack is forgotten.
type locations struct {
	lru *lru.Cache[cas.Key, cas.Location]
}

func newLocations() *locations {
	c, err := lru.New[cas.Key, cas.Location](cachedLocations)
	if err != nil {
		panic(err) // only for a size that is not positive
	}
	return &locations{lru: c}
}

// forget drops what lay in the pack that held key.
func (l *locations) forget(key cas.Key) {
	gone, ok := l.lru.Peek(key)
	if !ok {
		return
	}
	for _, k := range l.lru.Keys() {
		if at, ok := l.lru.Peek(k); ok && at.Pack == gone.Pack {
			l.lru.Remove(k)
		}
	}
}

// Locate implements [snapshot.Holder]. Found places are remembered; objects that
// are nowhere may come any moment, so those are not.
func (h *Holder) Locate(ctx context.Context, keys []cas.Key) ([]cas.Location, error) {
	locs := make([]cas.Location, len(keys))
	var unknown []int // positions in keys
	fresh := local.IsFresh(ctx)
	for i, k := range keys {
		if fresh {
			h.cache.forget(k)
		}
		at, ok := h.cache.lru.Get(k)
		if !ok {
			unknown = append(unknown, i)
			continue
		}
		locs[i] = at
	}
	for batch := range slices.Chunk(unknown, MaxKeys) {
		ask := make([]cas.Key, len(batch))
		for i, pos := range batch {
			ask[i] = keys[pos]
		}
		data, err := h.data(ctx, request{
			method: http.MethodPost, path: "/v1/locate", media: Binary,
			body: AppendKeys(make([]byte, 0, len(ask)*KeySize), ask),
		})
		if err != nil {
			return nil, err
		}
		found, err := ParseLocations(data, len(ask))
		if err != nil {
			return nil, err
		}
		for i, pos := range batch {
			locs[pos] = found[i]
			if !found[i].IsZero() {
				h.cache.lru.Add(keys[pos], found[i])
			}
		}
	}
	return locs, nil
}
