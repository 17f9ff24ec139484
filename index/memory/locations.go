package memory

import (
	"context"
	"fmt"
	"iter"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
)

// Locate implements [index.Index].
func (ix *Index) Locate(ctx context.Context, keys []cas.Key) ([]cas.Location, error) {
	locs := make([]cas.Location, len(keys))
	err := ix.do(ctx, func(s *State) error {
		for i, k := range keys {
			locs[i] = s.places[k]
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("locate %d objects: %w", len(keys), err)
	}
	return locs, nil
}

// AddLocations implements [index.Index].
func (ix *Index) AddLocations(ctx context.Context, objects []index.Located) error {
	return ix.setLocations(ctx, "add", objects, func(old cas.Location) bool { return old.IsZero() })
}

// MoveLocations implements [index.Index].
func (ix *Index) MoveLocations(ctx context.Context, objects []index.Located) error {
	return ix.setLocations(ctx, "move", objects, func(cas.Location) bool { return true })
}

// setLocations records the places of those objects whose old place may be
// replaced, or of none when one is not valid.
func (ix *Index) setLocations(ctx context.Context, what string, objects []index.Located, replace func(old cas.Location) bool) error {
	err := ix.do(ctx, func(s *State) error {
		for _, o := range objects {
			if !o.Key.NS.Valid() || o.Location.IsZero() {
				return fmt.Errorf("%w location of %s", index.ErrInvalid, o.Key)
			}
		}
		for _, o := range objects {
			if replace(s.places[o.Key]) {
				s.places[o.Key] = o.Location
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s locations: %w", what, err)
	}
	return nil
}

// DropLocations implements [index.Index].
func (ix *Index) DropLocations(ctx context.Context, keys []cas.Key) error {
	err := ix.do(ctx, func(s *State) error {
		for _, k := range keys {
			delete(s.places, k)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("drop locations: %w", err)
	}
	return nil
}

// Locations implements [index.Index].
func (ix *Index) Locations(ctx context.Context) iter.Seq2[index.Located, error] {
	return list(ctx, ix, func(s *State) ([]index.Located, error) {
		all := make([]index.Located, 0, len(s.places))
		for k, l := range s.places {
			all = append(all, index.Located{Key: k, Location: l})
		}
		return all, nil
	})
}
