package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/internal/disk"
)

// RecordSize is what an object takes in a pack, in bytes.
func RecordSize(l cas.Location) int64 { return recordHeader + int64(l.Stored) + footerEntry }

// RecordEnd is where an object's record ends in its pack, in bytes.
func RecordEnd(l cas.Location) int64 { return int64(l.Offset) + recordHeader + int64(l.Stored) }

// PackRoom is how many bytes of records, by [RecordSize], fit into one pack.
const PackRoom = maxPack - packHeader - trailer

// WholeSize is how long a pack is that has nothing but so many bytes of records, by
// [RecordSize].
func WholeSize(records int64) int64 { return packHeader + records + trailer }

// PackSize returns a pack's length in bytes.
func PackSize(dir string, id cas.PackID) (int64, error) {
	info, err := os.Stat(packPath(dir, id))
	if err != nil {
		return 0, fmt.Errorf("pack %s: %w", id, err)
	}
	return info.Size(), nil
}

// Rewrite copies records, still encoded, into one new pack, adds further objects,
// and returns their places. The pack is in packs/ and durable then; nothing knows it yet, and the
// old ones are as they were. The records must fit: see [PackRoom]. It may use
// the space that is kept in reserve, since it is done to free some.
func (s *Store) Rewrite(ctx context.Context, objects []cas.Located, more ...cas.Object) (moved []cas.Located, err error) {
	p, err := s.createPack(true)
	if err != nil {
		return nil, err
	}
	defer p.f.Close()
	defer func() {
		if err != nil {
			if rerr := s.fsys.Remove(p.f.Name()); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
				err = errors.Join(err, rerr)
			}
		}
	}()
	var buf []byte
	for _, o := range objects {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n := recordHeader + int(o.Location.Stored)
		if cap(buf) < n {
			buf = make([]byte, n)
		}
		if err := s.readPack(context.Background(), o.Location, buf[:n]); err != nil {
			return nil, fmt.Errorf("rewrite %s: %w", o.Key, err)
		}
		r, err := parseRecord(buf[:n], true)
		if err == nil && r.key != o.Key {
			err = fmt.Errorf("another object lies in its place: %w", cas.ErrCorrupt)
		}
		if err != nil {
			return nil, fmt.Errorf("rewrite %s: %w", o.Key, err)
		}
		if err := p.add(r); err != nil {
			return nil, err
		}
	}
	for _, o := range more {
		enc, payload, err := encode(o.Data, nil, s.opt.Compression)
		if err == nil {
			err = p.add(record{key: o.Key, kind: o.Kind, encoding: enc, plain: uint32(len(o.Data)), payload: payload})
		}
		if err != nil {
			return nil, err
		}
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	return s.Adopt(p.id)
}

// add is append for what has to fit.
func (p *openPack) add(r record) error {
	if !p.fits(r) {
		return fmt.Errorf("rewrite: the records do not fit into one pack: %w", cas.ErrTooLarge)
	}
	return p.append(r)
}

// DamagedDir is where packs lie, in a store, that were set aside.
const DamagedDir = "damaged"

// SetAside moves a pack out of packs/, where it is not looked for any more. Who has
// it open reads on. It is durable when it returns; a pack that is gone is none.
func (s *Store) SetAside(id cas.PackID) error {
	from := packPath(s.dir, id)
	aside := filepath.Join(s.dir, DamagedDir)
	if err := s.fsys.Mkdir(aside, 0o700); err == nil {
		err = errors.Join(disk.Own(aside, s.dir), s.fsys.SyncDir(s.dir))
		if err != nil {
			return fmt.Errorf("set pack aside: %w", err)
		}
	} else if !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("set pack aside: %w", cas.NoSpace(err))
	}
	if err := s.fsys.Rename(from, filepath.Join(aside, filepath.Base(from))); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("set pack aside: %w", cas.NoSpace(err))
	}
	s.packs.Remove(id) // after its name: nobody opens it again
	// It is in one of the two whatever happens in between.
	if err := errors.Join(s.fsys.SyncDir(aside), s.fsys.SyncDir(filepath.Dir(from))); err != nil {
		return fmt.Errorf("set pack aside: %w", err)
	}
	return nil
}

// RemovePack deletes a pack. Who has it open reads on.
func (s *Store) RemovePack(id cas.PackID) error {
	if err := s.fsys.Remove(packPath(s.dir, id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove pack: %w", err)
	}
	s.packs.Remove(id) // after its name: nobody opens it again
	return nil
}
