package local

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/internal/progress"
)

// VerifyPack reads every byte of a pack and returns what is wrong with it, one
// finding a line: records that are damaged or do not hash to their names, and a
// footer that does not agree with the records. damaged are the objects that
// cannot be read there.
func VerifyPack(ctx context.Context, dir string, id cas.PackID) (problems []string, damaged []cas.Located, err error) {
	f, err := os.Open(packPath(dir, id))
	if err != nil {
		return nil, nil, fmt.Errorf("verify pack: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxPack+1))
	if err != nil {
		return nil, nil, fmt.Errorf("verify pack %s: %w", id, err)
	}
	objects, err := readFooter(f, id)
	if err != nil {
		return []string{err.Error()}, nil, nil
	}
	meter := progress.From(ctx)
	meter.Add(0, packHeader+trailer)
	report := func(err error) { problems = append(problems, fmt.Sprintf("pack %s: %v", id, err)) }
	off := packHeader
	var plain []byte
	for _, o := range objects {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		if int(o.Location.Offset) != off {
			report(fmt.Errorf("%s: footer says offset %d, the record before ends at %d", o.Key, o.Location.Offset, off))
		}
		off = int(o.Location.Offset)
		r, err := parseRecord(b[off:], true)
		if err == nil && r.located(id, int64(off)) != o {
			err = fmt.Errorf("%s: record and footer differ: %w", o.Key, cas.ErrCorrupt)
		}
		if err == nil {
			plain, err = r.decode(plain[:0])
		}
		if err != nil {
			report(fmt.Errorf("%s: %w", o.Key, err))
			damaged = append(damaged, o)
		}
		off += recordHeader + int(o.Location.Stored)
		meter.Add(0, int64(recordHeader+footerEntry)+int64(o.Location.Stored))
	}
	if want := len(b) - trailer - len(objects)*footerEntry; off != want {
		report(fmt.Errorf("records end at %d, the footer begins at %d", off, want))
	}
	return problems, damaged, nil
}
