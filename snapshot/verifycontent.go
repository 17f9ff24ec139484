package snapshot

import (
	"context"
	"fmt"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// content is what a file, an artifact or a part of a record holds.
type content struct {
	ns cas.Namespace
	cas.Blob
}

// wanted is an object that a content needs.
type wanted struct {
	of    int   // content
	off   int64 // in it
	plain int64 // length in bytes
}

// look looks for the objects of contents, once for each content.
func (v *verifier) look(ctx context.Context, contents ...content) error {
	var fresh []content
	asked := map[content]bool{}
	for _, c := range contents {
		_, sound := v.sound[c]
		_, broken := v.broken[c]
		if !sound && !broken && !asked[c] {
			asked[c] = true
			fresh = append(fresh, c)
		}
	}
	var keys []cas.Key
	var wants []wanted
	flush := func() error {
		err := v.find(ctx, fresh, keys, wants)
		keys, wants = keys[:0], wants[:0]
		return err
	}
	for i, c := range fresh {
		chunks, err := cas.Chunks(ctx, v.s.blobs, c.ns, c.Blob)
		if err != nil {
			if ctx.Err() != nil || !isFinding(err) {
				return err
			}
			v.broken[c] = err
			continue
		}
		for _, chunk := range chunks {
			if chunk.Zeros() {
				continue
			}
			keys = append(keys, cas.Key{NS: c.ns, Hash: chunk.Hash})
			wants = append(wants, wanted{of: i, off: chunk.Off, plain: chunk.Len})
			if len(keys) == lookedFor {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	for _, c := range fresh {
		if v.broken[c] == nil {
			v.sound[c] = struct{}{}
			v.meter.Add(1, 0)
		}
	}
	return nil
}

// lookedFor is how many objects are looked for at once: the lists of chunks of a few
// files can name a hundred million times the same.
const lookedFor = 1 << 16

// find looks for objects, and notes which contents are broken by what is wrong with
// them.
func (v *verifier) find(ctx context.Context, contents []content, keys []cas.Key, wants []wanted) error {
	if len(keys) == 0 {
		return nil
	}
	at, faults, err := v.places.find(ctx, keys)
	if err != nil {
		return err
	}
	for i, w := range wants {
		fault := faults[i]
		if fault == nil && v.s.dir != "" && (int64(at[i].Plain) != w.plain || at[i].Kind != cas.Data) {
			fault = fmt.Errorf("%s: object of %d bytes where %d were expected: %w", keys[i], at[i].Plain, w.plain, cas.ErrCorrupt)
		}
		c := contents[w.of]
		if _, told := v.broken[c]; fault == nil || told {
			continue
		}
		if c.Chunked() {
			fault = fmt.Errorf("chunk at %d: %w", w.off, fault)
		}
		v.broken[c] = fault
	}
	return nil
}

func fileContent(e tree.Entry) content {
	return content{cas.Files, cas.Blob{Hash: e.Hash, Size: int64(e.Size)}}
}

// Sound implements [tree.Contents].
func (v *verifier) Sound(ctx context.Context, entries []tree.Entry) (bool, error) {
	contents := make([]content, 0, len(entries))
	for _, e := range entries {
		if e.Kind == tree.File {
			contents = append(contents, fileContent(e))
		}
	}
	if err := v.look(ctx, contents...); err != nil {
		return false, err
	}
	for _, c := range contents {
		if _, ok := v.sound[c]; !ok {
			return false, nil
		}
	}
	return true, nil
}

// Fault implements [tree.Contents].
func (v *verifier) Fault(e tree.Entry) error { return v.broken[fileContent(e)] }
