package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/internal/progress"
)

// A Damage is an object that cannot be read where it should lie.
type Damage struct {
	cas.Located
	Err error // names the object
}

// A Report tells what is wrong with one pack.
type Report struct {
	Problems []string      // one finding a line
	Whole    []cas.Located // objects that can be read: their records hash to their names
	Damaged  []Damage      // objects that the footer lists and that cannot be read
}

// VerifyPack reads every byte of a pack: records that are damaged or do not hash
// to their names, and a footer that does not agree with the records, are problems.
// Without a readable footer it looks for the records, as [Footer] does. It also
// tries the places of objects that somebody else says lie there. A pack that is
// gone is [io/fs.ErrNotExist].
func VerifyPack(ctx context.Context, dir string, id cas.PackID, said ...cas.Located) (Report, error) {
	f, err := os.Open(packPath(dir, id))
	if err != nil {
		return Report{}, fmt.Errorf("verify pack: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxPack+1))
	if err != nil {
		return Report{}, fmt.Errorf("verify pack %s: %w", id, err)
	}
	v := packVerifier{ctx: ctx, id: id, b: b, known: map[cas.Located]bool{}}
	objects, err := readFooter(f, id)
	switch {
	case err == nil:
		err = v.footer(objects)
	case errors.Is(err, cas.ErrCorrupt):
		v.report.Problems = append(v.report.Problems, err.Error())
		err = v.scan()
	}
	if err == nil {
		err = v.said(said)
	}
	return v.report, err
}

// packVerifier has a pack in memory.
type packVerifier struct {
	ctx    context.Context
	id     cas.PackID
	b      []byte
	plain  []byte
	known  map[cas.Located]bool // places that were looked at
	report Report
}

func (v *packVerifier) problem(err error) {
	v.report.Problems = append(v.report.Problems, fmt.Sprintf("pack %s: %v", v.id, err))
}

// prove reads an object at its place.
func (v *packVerifier) prove(o cas.Located) error {
	if int64(o.Location.Offset) > int64(len(v.b)) {
		return fmt.Errorf("%s: %w", o.Key, badRecord("cut short"))
	}
	r, err := parseRecord(v.b[o.Location.Offset:], true)
	if err == nil && r.located(v.id, int64(o.Location.Offset)) != o {
		err = fmt.Errorf("record and footer differ: %w", cas.ErrCorrupt)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", o.Key, err)
	}
	v.plain, err = r.decode(v.plain[:0]) // names the object
	return err
}

// look notes whether an object can be read at its place.
func (v *packVerifier) look(o cas.Located) error {
	if err := v.ctx.Err(); err != nil {
		return err
	}
	v.known[o] = true
	if err := v.prove(o); err != nil {
		v.problem(err)
		v.report.Damaged = append(v.report.Damaged, Damage{o, fmt.Errorf("%w (pack %s)", err, v.id)})
		return nil
	}
	v.report.Whole = append(v.report.Whole, o)
	return nil
}

// footer compares a footer with the records.
func (v *packVerifier) footer(objects []cas.Located) error {
	meter := progress.From(v.ctx)
	meter.Add(0, packHeader+trailer)
	off := packHeader
	for _, o := range objects {
		if int(o.Location.Offset) != off {
			v.problem(fmt.Errorf("%s: footer says offset %d, the record before ends at %d", o.Key, o.Location.Offset, off))
		}
		if !v.known[o] { // a footer can list one record a million times
			if err := v.look(o); err != nil {
				return err
			}
		}
		off = int(o.Location.Offset) + recordHeader + int(o.Location.Stored)
		meter.Add(0, int64(recordHeader+footerEntry)+int64(o.Location.Stored))
	}
	if want := len(v.b) - trailer - len(objects)*footerEntry; off != want {
		v.problem(fmt.Errorf("records end at %d, the footer begins at %d", off, want))
	}
	return nil
}

// scan looks for the records of a pack without a footer.
func (v *packVerifier) scan() error {
	for _, o := range scan(v.b, v.id) {
		if err := v.look(o); err != nil {
			return err
		}
	}
	progress.From(v.ctx).Add(0, int64(len(v.b)))
	return nil
}

// said tries the places that somebody else told of.
func (v *packVerifier) said(objects []cas.Located) error {
	for _, o := range objects {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		if !v.known[o] && v.prove(o) == nil {
			v.known[o] = true
			v.report.Whole = append(v.report.Whole, o)
		}
	}
	return nil
}
