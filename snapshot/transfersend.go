package snapshot

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/internal/progress"
)

// Objects are asked for in batches of askMost; a worker puts them when it has read putMost,
// or putBytes of them.
const (
	askMost  = 1024
	putMost  = 32
	putBytes = 256 << 10
)

// A sourceError is what a checkpoint suffers from in the store that sends.
type sourceError struct{ error }

func (e *sourceError) Unwrap() error { return e.error }

// asSource marks an error; nil stays nil.
func asSource(err error) error {
	if err == nil {
		return nil
	}
	return &sourceError{err}
}

// A sendError is one that a batch ended with, here or there.
type sendError struct{ error }

func (e *sendError) Unwrap() error { return e.error }

// A sender puts the objects that are missing where they go. Of two batches one after the
// other the second is begun when the first is put: what an object names is there before it,
// but for what is in the same batch. It is for one goroutine.
type sender struct {
	from    cas.Store
	have    func(context.Context, []cas.Key) ([]bool, error)
	w       cas.Writer
	meter   *progress.Meter
	batch   []needed
	running chan error // of the batch before; nil: there is none
	cancel  context.CancelFunc
	present atomic.Int64
}

func newSender(ctx context.Context, from cas.Store, have func(context.Context, []cas.Key) ([]bool, error), w cas.Writer) *sender {
	return &sender{from: from, have: have, w: w, meter: progress.From(ctx)}
}

// want has objects sent, by and by.
func (s *sender) want(ctx context.Context, objs ...needed) error {
	for len(objs) > 0 {
		n := min(len(objs), askMost-len(s.batch))
		s.batch, objs = append(s.batch, objs[:n]...), objs[n:]
		if len(s.batch) < askMost {
			break
		}
		if err := s.next(ctx); err != nil {
			return err
		}
	}
	return nil
}

// next begins a batch when the one before is put.
func (s *sender) next(ctx context.Context) error {
	if err := s.wait(); err != nil {
		return err
	}
	batch := s.batch
	s.batch = nil
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	s.running, s.cancel = done, cancel
	go func() { done <- s.send(ctx, batch) }()
	return nil
}

// wait returns when no batch is under way.
func (s *sender) wait() error {
	if s.running == nil {
		return nil
	}
	err := <-s.running
	s.cancel()
	s.running = nil
	if err != nil {
		return &sendError{err}
	}
	return nil
}

// drain returns when all is put.
func (s *sender) drain(ctx context.Context) error {
	if len(s.batch) > 0 {
		if err := s.next(ctx); err != nil {
			return err
		}
	}
	return s.wait()
}

// drop gives up what is not put yet.
func (s *sender) drop() {
	s.batch = nil
	if s.running != nil {
		s.cancel()
		_ = s.wait() // nobody needs it
	}
}

// send puts those objects of a batch that are missing.
func (s *sender) send(ctx context.Context, batch []needed) error {
	keys := make([]cas.Key, len(batch))
	for i, o := range batch {
		keys[i] = o.Key
	}
	have, err := s.have(ctx, keys)
	if err != nil {
		return err
	}
	missing, keys := batch[:0], keys[:0]
	for i, o := range batch {
		if !have[i] {
			missing, keys = append(missing, o), append(keys, o.Key)
		}
	}
	s.present.Add(int64(len(have) - len(missing)))
	if len(missing) == 0 {
		return nil
	}
	if e, ok := s.from.(cas.Expecter); ok {
		e.Expect(ctx, keys)
	}
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range min(runtime.GOMAXPROCS(0), (len(missing)+putMost-1)/putMost) {
		group.Go(func() error {
			return s.work(ctx, func() (needed, bool) {
				if i := next.Add(1) - 1; i < int64(len(missing)) {
					return missing[i], true
				}
				return needed{}, false
			})
		})
	}
	return group.Wait()
}

// work puts objects until there are no more.
func (s *sender) work(ctx context.Context, next func() (needed, bool)) error {
	var objs []cas.Object
	var buf []byte
	for {
		o, more := next()
		if more {
			start := len(buf)
			longer, err := s.from.Read(local.ByChecksum(ctx), o.Key, buf)
			if err != nil {
				return asSource(err)
			}
			buf = longer
			obj := cas.NewObject(o.NS, o.kind, buf[start:])
			if obj.Key != o.Key {
				return asSource(fmt.Errorf("%s: its bytes are those of %s: %w", o.Key, obj.Key.Hash, cas.ErrCorrupt))
			}
			objs = append(objs, obj)
		}
		if len(objs) >= putMost || len(buf) >= putBytes || !more {
			if err := s.w.Put(ctx, objs...); err != nil {
				return err
			}
			s.meter.Add(int64(len(objs)), int64(len(buf)))
			objs, buf = objs[:0], buf[:0]
		}
		if !more {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}
