package cas

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	chunkers "github.com/PlakarKorp/go-cdc-chunkers"
	_ "github.com/PlakarKorp/go-cdc-chunkers/chunkers/fastcdc" // registers fastcdc-v1.0.0
	"golang.org/x/sync/errgroup"
)

// chunkAlgorithm is part of the format. The library's plain "fastcdc" ignores
// the wanted average size.
const chunkAlgorithm = "fastcdc-v1.0.0"

// A HoleSkipper is a reader that may know of zeros without reading them.
type HoleSkipper interface {
	// SkipHole skips zeros that come next: a multiple of [ZeroBlock] bytes, or all
	// up to the end. It returns how many; 0 says nothing of what comes.
	SkipHole() (int64, error)
}

// WriteBlob stores what r yields as one blob. Memory is bounded whatever the
// length; chunks are hashed and stored on all cores. The blob is durable after
// the writer's Flush. Where r is a [HoleSkipper], holes are not read.
func WriteBlob(ctx context.Context, w Writer, ns Namespace, r io.Reader) (Blob, error) {
	first := make([]byte, ChunkedSize+1)
	n, err := io.ReadFull(r, first)
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		obj := NewObject(ns, Data, first[:n])
		return Blob{Hash: obj.Key.Hash, Size: int64(n)}, w.Put(ctx, obj)
	}
	if err != nil {
		return Blob{}, err
	}
	return writeChunked(ctx, w, ns, &prefixed{first, r})
}

// prefixed is a reader of which the first bytes were read.
type prefixed struct {
	first []byte
	r     io.Reader
}

// Read implements [io.Reader].
func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.first) == 0 {
		return p.r.Read(b)
	}
	n := copy(b, p.first)
	p.first = p.first[n:]
	return n, nil
}

// SkipHole implements [HoleSkipper].
func (p *prefixed) SkipHole() (int64, error) {
	if holes, ok := p.r.(HoleSkipper); ok && len(p.first) == 0 {
		return holes.SkipHole()
	}
	return 0, nil
}

// writeChunked cuts r into chunks and runs of zeros and stores the list.
func writeChunked(ctx context.Context, w Writer, ns Namespace, r *prefixed) (Blob, error) {
	stretches := &stretchReader{blocks: r, buf: make([]byte, 16*ZeroBlock)}
	chunker, err := chunkers.NewChunker(chunkAlgorithm, stretches, &chunkers.ChunkerOpts{MinSize: MinChunk, NormalSize: AvgChunk, MaxSize: MaxChunk})
	if err != nil {
		return Blob{}, fmt.Errorf("make chunker: %w", err)
	}
	var list []*Chunk
	var size int64
	add := func(n int64) *Chunk {
		c := &Chunk{Off: size, Len: n}
		list, size = append(list, c), size+n
		return c
	}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0) + 1)
	buffers := sync.Pool{New: func() any { b := make([]byte, 0, MaxChunk); return &b }}
	// The workers hold chunks that nobody has waited for yet: never leave
	// without waiting.
	err = func() error {
		for gctx.Err() == nil {
			zeros, err := stretches.zeros()
			if err != nil {
				return err
			}
			if zeros > 0 {
				add(zeros)
			}
			if stretches.done() {
				return nil
			}
			chunker.Reset(stretches)
			for gctx.Err() == nil {
				data, err := chunker.Next()
				if err != nil && err != io.EOF {
					return err
				}
				if len(data) > 0 {
					c := add(int64(len(data)))
					buf := buffers.Get().(*[]byte)
					*buf = append((*buf)[:0], data...)
					group.Go(func() error {
						obj := NewObject(ns, Data, *buf)
						c.Hash = obj.Key.Hash
						err := w.Put(gctx, obj)
						buffers.Put(buf)
						return err
					})
				}
				if err == io.EOF {
					break
				}
			}
		}
		return gctx.Err()
	}()
	if werr := group.Wait(); werr != nil {
		return Blob{}, werr
	}
	if err != nil {
		return Blob{}, err
	}
	chunks := make([]Chunk, len(list))
	for i, c := range list {
		chunks[i] = *c
	}
	data, err := EncodeList(chunks)
	if err != nil {
		return Blob{}, err
	}
	obj := NewObject(ns, List, data)
	return Blob{Hash: obj.Key.Hash, Size: size}, w.Put(ctx, obj)
}

// A stretchReader splits a stream at its ZeroBlock-aligned blocks of zeros.
// Read yields one stretch of other bytes and then io.EOF; zeros takes the run
// of zeros that follows and moves on to the next stretch.
type stretchReader struct {
	blocks *prefixed
	buf    []byte // a multiple of ZeroBlock
	have   []byte // unread part of buf; its start is ZeroBlock-aligned in the stream unless inside is set
	inside bool   // the block at the start of have was found not to be zero and is partly read
	eof    bool
}

// zeroBlock is compared against and never written.
var zeroBlock [ZeroBlock]byte

// fill makes sure that have is not empty unless the stream ended. It refills
// only at a block's boundary, so a short last block is the stream's last.
func (s *stretchReader) fill() error {
	if len(s.have) > 0 || s.eof {
		return nil
	}
	n, err := io.ReadFull(s.blocks, s.buf)
	s.have = s.buf[:n]
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		s.eof = true
		return nil
	}
	return err
}

// block returns the rest of the current block.
func (s *stretchReader) block() []byte {
	// have always ends at the end of buf or of the stream; blocks are aligned in
	// buf, so the current block ends at the next multiple of ZeroBlock.
	start := cap(s.buf) - cap(s.have)
	return s.have[:min(len(s.have), ZeroBlock-start%ZeroBlock)]
}

// Read implements io.Reader for one stretch without blocks of zeros.
func (s *stretchReader) Read(p []byte) (int, error) {
	if err := s.fill(); err != nil {
		return 0, err
	}
	b := s.block()
	if len(b) == 0 || (!s.inside && bytes.Equal(b, zeroBlock[:len(b)])) {
		return 0, io.EOF
	}
	n := copy(p, b)
	s.inside = n < len(b)
	s.have = s.have[n:]
	return n, nil
}

// zeros skips a maximal run of blocks of zeros and returns its length in bytes.
func (s *stretchReader) zeros() (int64, error) {
	var run int64
	for {
		if len(s.have) == 0 && !s.eof {
			n, err := s.blocks.SkipHole()
			if err != nil {
				return 0, err
			}
			run += n
		}
		if err := s.fill(); err != nil {
			return 0, err
		}
		b := s.block()
		if len(b) == 0 || !bytes.Equal(b, zeroBlock[:len(b)]) {
			return run, nil
		}
		run += int64(len(b))
		s.have = s.have[len(b):]
	}
}

// done reports whether the stream has ended.
func (s *stretchReader) done() bool { return s.eof && len(s.have) == 0 }

// CopyBlob writes a blob's bytes to w.
func CopyBlob(ctx context.Context, w io.Writer, s Source, ns Namespace, b Blob) error {
	return EachChunk(ctx, s, ns, b, func(c Chunk, data []byte) error {
		if !c.Zeros() {
			_, err := w.Write(data)
			return err
		}
		for left := c.Len; left > 0; left -= ZeroBlock {
			if err := ctx.Err(); err != nil { // zeros may go on for exabytes
				return err
			}
			if _, err := w.Write(zeroBlock[:min(left, ZeroBlock)]); err != nil {
				return err
			}
		}
		return nil
	})
}

// ReadBlob returns the bytes of a blob that is known to be short: a longer one than
// most, in bytes, is [ErrCorrupt], whatever its list takes in the store.
func ReadBlob(ctx context.Context, s Source, ns Namespace, b Blob, most int64) ([]byte, error) {
	if b.Size < 0 || b.Size > most {
		return nil, fmt.Errorf("blob of %d bytes, at most %d can be: %w", uint64(b.Size), most, ErrCorrupt)
	}
	var buf bytes.Buffer
	if err := CopyBlob(ctx, &buf, s, ns, b); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// EachChunk calls fn for every stretch of a blob in order, with nil data for
// zeros. The data is valid until fn returns.
func EachChunk(ctx context.Context, s Source, ns Namespace, b Blob, fn func(c Chunk, data []byte) error) error {
	chunks, err := Chunks(ctx, s, ns, b)
	if err != nil {
		return err
	}
	var buf []byte
	for _, c := range chunks {
		if err := ctx.Err(); err != nil {
			return err
		}
		buf = buf[:0]
		if !c.Zeros() {
			if buf, err = s.Read(ctx, Key{NS: ns, Hash: c.Hash}, buf); err != nil {
				return err
			}
			if int64(len(buf)) != c.Len {
				return fmt.Errorf("object of %d bytes where %d were expected: %w", len(buf), c.Len, ErrCorrupt)
			}
			if err := fn(c, buf); err != nil {
				return err
			}
			continue
		}
		if err := fn(c, nil); err != nil {
			return err
		}
	}
	return nil
}
