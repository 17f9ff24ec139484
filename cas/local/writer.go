package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/internal/disk"
)

// flushAt is how many bytes of records are gathered for one write(2);
// writebackEvery how many are written before the kernel is told to begin
// moving them to the disk, so that the fsync at the end has less to do.
const (
	flushAt        = 1 << 20
	writebackEvery = 8 << 20
	// keepAt is flushAt for packs that are kept; lookEvery how many bytes of one are
	// written before the free space is looked at again, since it does not go when the
	// disk is full.
	keepAt    = 64 << 10
	lookEvery = 4 << 20
)

// A writer appends records to packs of its own.
//
// Lock order: mu alone. Compression and lookups happen outside of it; appending
// copies into a buffer; closing a full pack goes on beside the next one.
type writer struct {
	store *Store
	ctx   context.Context // of the batch: a pack is handed over whatever became of the Put that filled it

	mu      sync.Mutex
	pack    *openPack
	claimed map[cas.Key]struct{} // put here and not in the index yet
	stats   cas.WriterStats
	closing errgroup.Group // packs being closed
	pending []cas.PackID   // handed to closing since the last Flush
	err     error          // sticks: a batch that lost bytes never flushes
	closed  bool
}

var errWriterClosed = errors.New("writer is closed")

// encoded is an object ready to be appended.
type encoded struct {
	rec record
	buf *[]byte // to be recycled; nil when the payload is the caller's bytes
}

// Put implements [cas.Writer].
func (w *writer) Put(ctx context.Context, objs ...cas.Object) error {
	fresh, err := w.claim(ctx, objs)
	if err != nil || len(fresh) == 0 {
		return err
	}
	for _, obj := range fresh {
		e, err := w.encode(obj)
		if err == nil {
			err = w.append(e.rec)
		}
		if e.buf != nil {
			w.store.bufs.Put(e.buf)
		}
		if err != nil {
			return w.fail(err)
		}
	}
	if w.store.opt.Keep {
		if err := w.spill(); err != nil {
			return w.fail(err)
		}
	}
	return nil
}

// spill writes what is gathered.
func (w *writer) spill() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pack == nil || len(w.pack.buf) == 0 {
		return nil
	}
	return w.pack.flush()
}

// fail makes the writer unusable: an object was claimed and is not in a pack.
func (w *writer) fail(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	return err
}

// claim returns those objects that neither the store has nor this writer has
// taken before, and takes them.
func (w *writer) claim(ctx context.Context, objs []cas.Object) ([]cas.Object, error) {
	for _, o := range objs {
		if len(o.Data) > cas.MaxObject {
			return nil, fmt.Errorf("%s: object of %d bytes: %w", o.Key, len(o.Data), cas.ErrTooLarge)
		}
		if !o.Key.NS.Valid() || (o.Kind != cas.Data && o.Kind != cas.List) {
			return nil, fmt.Errorf("%s: object of kind %d: %w", o.Key, o.Kind, cas.ErrCorrupt)
		}
	}
	fresh := make([]cas.Object, 0, len(objs))
	w.mu.Lock()
	if err := w.usable(); err != nil {
		w.mu.Unlock()
		return nil, err
	}
	for _, o := range objs {
		if _, taken := w.claimed[o.Key]; !taken {
			w.claimed[o.Key] = struct{}{}
			fresh = append(fresh, o)
		}
	}
	w.mu.Unlock()
	if len(fresh) == 0 {
		return nil, nil
	}
	keys := make([]cas.Key, len(fresh))
	for i, o := range fresh {
		keys[i] = o.Key
	}
	have, err := w.store.index.Have(ctx, keys)
	if err != nil {
		return nil, w.fail(err)
	}
	missing := fresh[:0]
	w.mu.Lock()
	for i, o := range fresh {
		if have[i] {
			delete(w.claimed, o.Key) // the index remembers it
		} else {
			missing = append(missing, o)
		}
	}
	w.mu.Unlock()
	return missing, nil
}

func (w *writer) usable() error {
	if w.closed {
		return errWriterClosed
	}
	return w.err
}

// encode compresses one object if that pays.
func (w *writer) encode(obj cas.Object) (encoded, error) {
	buf := w.store.bufs.Get().(*[]byte)
	enc, payload, err := encode(obj.Data, *buf, w.store.opt.Compression)
	if err != nil {
		return encoded{buf: buf}, err
	}
	if enc != cas.Raw {
		*buf = payload
	}
	rec := record{key: obj.Key, kind: obj.Kind, encoding: enc, plain: uint32(len(obj.Data)), payload: payload}
	return encoded{rec: rec, buf: buf}, nil
}

// append adds a record to the current pack, beginning a new one when it is
// full.
func (w *writer) append(r record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(); err != nil {
		return err
	}
	if w.pack != nil && !w.pack.fits(r) {
		w.finish()
	}
	if w.pack == nil {
		p, err := w.store.createPack(false)
		if err != nil {
			return err
		}
		w.pack = p
	}
	if w.store.opt.Keep && w.pack.written-w.pack.looked >= lookEvery {
		if err := CheckSpace(w.store.dir); err != nil {
			return err
		}
		w.pack.looked = w.pack.written
	}
	if err := w.pack.append(r); err != nil {
		return err
	}
	w.stats.Objects++
	w.stats.Plain += int64(r.plain)
	w.stats.Stored += int64(recordHeader + len(r.payload) + footerEntry)
	return nil
}

// finish closes the current pack and hands it over, beside whatever follows.
// mu is held.
func (w *writer) finish() {
	p := w.pack
	w.pack = nil
	w.pending = append(w.pending, p.id)
	w.closing.Go(func() error {
		defer p.f.Close() // and with it the lock, only after the hand-over
		if err := p.finish(); err != nil {
			return err
		}
		if err := w.store.index.AddPack(w.ctx, p.id); err != nil {
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, o := range p.objects {
			delete(w.claimed, o.Key)
		}
		return nil
	})
}

// Flush implements [cas.Writer].
func (w *writer) Flush(context.Context) error {
	w.mu.Lock()
	if err := w.usable(); err != nil {
		w.mu.Unlock()
		return err
	}
	if w.pack != nil {
		w.finish()
	}
	w.mu.Unlock()
	if err := w.closing.Wait(); err != nil {
		return w.fail(err)
	}
	w.mu.Lock()
	w.pending = nil
	w.mu.Unlock()
	return nil
}

// Stats implements [cas.Writer].
func (w *writer) Stats() cas.WriterStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stats
}

// Close implements [cas.Writer].
func (w *writer) Close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	w.closed = true
	left := w.pending
	if w.pack != nil {
		if w.store.opt.Keep && w.err == nil {
			_ = w.pack.flush() // what is not there is put again
		}
		w.pack.f.Close()
		left = append(left, w.pack.id)
	}
	w.mu.Unlock()
	_ = w.closing.Wait() // its error was Flush's to report
	if w.store.opt.Keep {
		return nil
	}
	for _, id := range left {
		// A pack that was handed over is no longer in tmp/.
		if err := w.store.fsys.Remove(tmpPath(w.store.dir, id)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove unfinished pack: %w", err)
		}
	}
	return nil
}

// openPack is a pack being written in tmp/.
type openPack struct {
	id      cas.PackID
	f       disk.File // locked
	buf     []byte    // records not written yet
	written int64
	synced  int64 // up to here the kernel was told to write back
	looked  int64 // when so much was written, there was room
	flushAt int   // bytes gathered for one write
	objects []cas.Located
}

// createPack begins a pack. The lock says that its writer lives. Only what frees
// space may use the reserve.
func (s *Store) createPack(useReserve bool) (*openPack, error) {
	if !useReserve {
		if err := CheckSpace(s.dir); err != nil {
			return nil, err
		}
	}
	p := &openPack{flushAt: flushAt}
	path := tmpPath
	if s.opt.Keep && !useReserve {
		p.flushAt, path = keepAt, keptPath
	}
	p.buf = appendPackHeader(make([]byte, 0, p.flushAt+recordHeader))
	f, err := createTemp(s.fsys, s.dir, func() string {
		_, _ = rand.Read(p.id[:]) // never fails
		return path(s.dir, p.id)
	})
	if err != nil {
		return nil, fmt.Errorf("create pack: %w", err)
	}
	p.f = f
	return p, nil
}

// fits reports whether the pack, footer included, stays within its limit with r.
func (p *openPack) fits(r record) bool {
	records := p.written + int64(len(p.buf)) + recordHeader + int64(len(r.payload))
	return records+int64(len(p.objects)+1)*footerEntry+trailer <= maxPack
}

// append adds a record.
func (p *openPack) append(r record) error {
	p.objects = append(p.objects, r.located(p.id, p.written+int64(len(p.buf))))
	p.buf = r.append(p.buf)
	if len(p.buf) < p.flushAt {
		return nil
	}
	return p.flush()
}

// located describes a record at an offset of a pack.
func (r record) located(id cas.PackID, off int64) cas.Located {
	return cas.Located{Key: r.key, Location: cas.Location{
		Pack: id, Offset: uint32(off), Stored: uint32(len(r.payload)), Plain: r.plain, Kind: r.kind, Encoding: r.encoding,
	}}
}

// flush writes what is gathered.
func (p *openPack) flush() error {
	n, err := p.f.Write(p.buf)
	p.written += int64(n)
	if err != nil {
		return fmt.Errorf("write pack: %w", cas.NoSpace(err))
	}
	p.buf = p.buf[:0]
	if p.written-p.synced >= writebackEvery {
		// A hint: its failure loses nothing.
		_ = unix.SyncFileRange(int(p.f.Fd()), p.synced, p.written-p.synced, unix.SYNC_FILE_RANGE_WRITE)
		p.synced = p.written
	}
	return nil
}

// finish writes the footer and makes the pack's bytes durable.
func (p *openPack) finish() error {
	p.buf = appendFooter(p.buf, p.objects)
	if err := p.flush(); err != nil {
		return err
	}
	p.buf = nil // a slow disk may have many packs to sync
	if err := p.f.Sync(); err != nil {
		return fmt.Errorf("sync pack: %w", cas.NoSpace(err))
	}
	return nil
}
