package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
)

// TransferOptions of [Transfer]. The zero value sends everything.
type TransferOptions struct {
	// Ref means, in the store that sends, the checkpoint to be sent, with those of its
	// thread before it; empty: all checkpoints of all threads, and the artifacts of threads
	// that no checkpoint holds.
	Ref   string
	Lease string        // token of the caller's lease of the thread in the store that receives
	Wait  time.Duration // how long to wait for a thread that is busy there
	// Arrived is told of each checkpoint when it is there; nil: nobody is. Its error ends
	// the transfer.
	Arrived func(Checkpoint) error
	// Problem is told, where everything is sent, of what could not be, and others are; nil:
	// the first one ends the transfer.
	Problem func(error)
	// Warn is told of what is not as it was.
	Warn func(string)
}

// TransferResult counts what a transfer did.
type TransferResult struct {
	Checkpoints int   `json:"checkpoints"` // that arrived
	Known       int   `json:"known"`       // that were there
	Artifacts   int   `json:"artifacts"`   // that threads got
	Objects     int64 `json:"objects"`     // sent
	Bytes       int64 `json:"bytes"`       // their length
	Stored      int64 `json:"stored"`      // what they take there: the bytes that were sent
	Present     int64 `json:"present"`     // objects that were there
	Salvaged    int64 `json:"salvaged"`    // bytes that transfers before had sent, and not ended
	Problems    int   `json:"problems"`    // told to [TransferOptions.Problem]
}

// Transfer sends checkpoints from one store to another, with all that they are: records
// as they are (ids, parents, origins, creators, times), names, and the artifacts of their
// threads. Only objects that are missing there are sent; each is hashed before it is put.
// A checkpoint is there as a whole or not at all.
//
// Of a thread that is there already, what is newer than the newest that is there is sent:
// what was deleted there before stays deleted. It fails with [ErrDiverged] when the thread
// went on there by itself, with [index.ErrDuplicateID] when an id means something else
// there, and as a save does when the thread is busy or leased.
//
// Cut off in any way, by [os.Process.Kill] too, and done again, it goes on with what has
// arrived. Objects that were damaged or lost ([cas.ErrCorrupt], [cas.ErrNotFound]) keep
// their checkpoint from being sent.
func Transfer(ctx context.Context, from, to *Store, opt TransferOptions) (res TransferResult, err error) {
	t := &transfer{from: from, to: to, opt: opt}
	defer func() {
		t.count()
		res, err = t.res, transferHint(errors.Join(err, t.close()))
	}()
	if t.store, err = from.id(); err != nil {
		return t.res, err
	}
	if err := t.refuse(); err != nil {
		return t.res, err
	}
	threads, err := t.threads(ctx)
	if err != nil {
		return t.res, err
	}
	for _, th := range threads {
		if err := t.tell(ctx, t.thread(ctx, th)); err != nil {
			return t.res, err
		}
	}
	if t.w != nil {
		return t.res, t.w.Flush(ctx) // what belongs to a checkpoint that could not be sent
	}
	return t.res, nil
}

// transferHint says how it goes on.
func transferHint(err error) error {
	switch {
	case errors.Is(err, ErrSessionOver):
		return WithHint(err, "do it again: it goes on with what has arrived")
	case errors.Is(err, cas.ErrNoSpace):
		return WithHint(err, "make room, and do it again: it goes on with what has arrived")
	}
	return err
}

// transfer is one on its way.
type transfer struct {
	from, to *Store
	store    string // id of from
	opt      TransferOptions
	res      TransferResult

	// session is open from the first object that is asked for to the end: what the store
	// that receives has said to have stays there. Those of threads only publish.
	session Session
	blobs   *local.Store // nil where to is in memory
	w       cas.Writer
	send    *sender
	reach   reach
	group   []arrival // put, and not published
	flushed int64     // bytes that were stored when the last group was
}

// id is the store's own.
func (s *Store) id() (string, error) {
	if h, ok := s.holder.(*localHolder); ok {
		return h.info.ID, nil
	}
	return StoreID(s.dir)
}

// StoreID reads the id of the store in dir. It fails with [ErrNoStore], [ErrNotAStore]
// and [ErrNewerStore].
func StoreID(dir string) (string, error) {
	info, err := readStoreInfo(dir)
	return info.ID, err
}

// refuse fails where the stores are one.
func (t *transfer) refuse() error {
	if t.from == t.to || t.from.dir != "" && SameStore(t.from.dir, t.to.dir) {
		return WithHint(fmt.Errorf("the store %s is on both sides: %w", quoted(t.from.dir), ErrRefused), "name another store")
	}
	return nil
}

// SameStore reports whether two directories are one. What cannot be looked at is none.
func SameStore(a, b string) bool {
	ia, err := os.Stat(a)
	if err != nil {
		return false
	}
	ib, err := os.Stat(b)
	return err == nil && os.SameFile(ia, ib)
}

// open begins to receive objects, and takes over what a transfer before had sent.
func (t *transfer) open(ctx context.Context, thread string) (err error) {
	if t.session != nil {
		return nil
	}
	if t.session, err = t.to.holder.Begin(ctx, BeginRequest{Thread: thread, PID: os.Getpid(), Beside: true}); err != nil {
		return err
	}
	have := t.session.Have
	if t.to.dir == "" {
		t.w, err = t.to.blobs.NewWriter(ctx)
		have = t.to.blobs.Has
	} else {
		t.blobs = local.New(t.to.dir, inSession{t.to.holder, t.session}, local.Options{Keep: true, FS: t.to.fsys})
		var salvaged local.Salvaged
		salvaged, err = t.blobs.Salvage(ctx)
		t.res.Salvaged = salvaged.Bytes
		if err == nil {
			t.w, err = t.blobs.NewWriter(ctx)
		}
	}
	if err != nil {
		return err
	}
	t.send = newSender(ctx, t.from.blobs, have, t.w)
	t.reach = reach{source: t.from.blobs, seen: map[cas.Key]struct{}{}, found: func(ctx context.Context, _ bool, objs ...needed) error {
		return t.send.want(ctx, objs...)
	}}
	return nil
}

// close ends the session. What has arrived stays.
func (t *transfer) close() error {
	if t.session == nil {
		return nil
	}
	if t.send != nil {
		t.send.drop()
	}
	var errs []error
	if t.w != nil {
		errs = append(errs, t.w.Close())
	}
	if t.blobs != nil {
		errs = append(errs, t.blobs.Close())
	}
	return errors.Join(append(errs, t.session.Close())...)
}

// count notes what was sent so far.
func (t *transfer) count() {
	if t.w == nil || t.send == nil {
		return
	}
	t.send.drop()
	stats := t.w.Stats()
	t.res.Objects, t.res.Bytes, t.res.Stored = stats.Objects, stats.Plain, stats.Stored
	t.res.Present = t.send.present.Load()
}

// tell tells of a problem that leaves others to be sent; any other error it returns.
func (t *transfer) tell(ctx context.Context, err error) error {
	if err == nil || t.opt.Problem == nil || t.opt.Ref != "" || ctx.Err() != nil || !isProblem(err) {
		return err
	}
	t.res.Problems++
	t.opt.Problem(err)
	return nil
}

// isProblem reports whether an error is of one thread or checkpoint.
func isProblem(err error) bool {
	var source *sourceError
	if errors.As(err, &source) {
		return true
	}
	return slices.ContainsFunc([]error{
		ErrDiverged, ErrBusy, index.ErrDuplicateID, index.ErrDuplicateName, index.ErrStaleHead, index.ErrWriterConflict, index.ErrWriterLost,
		index.ErrCheckpointNotFound, index.ErrThreadNotFound, index.ErrInvalid, cas.ErrTooLarge,
	}, func(known error) bool { return errors.Is(err, known) })
}

func (t *transfer) warn(format string, args ...any) {
	if t.opt.Warn != nil {
		t.opt.Warn(fmt.Sprintf(format, args...))
	}
}

// A sending is a thread as it is where it comes from.
type sending struct {
	thread string
	all    []listed // the oldest first
	upTo   uint64   // no later one is sent
}

// listed is what is known of a checkpoint before it is sent.
type listed struct {
	id, parent, name, record string
	seq                      uint64
	ready                    bool
}

// threads lists what is to be sent, the thread with the oldest checkpoint first: an origin
// comes before its forks.
func (t *transfer) threads(ctx context.Context) ([]sending, error) {
	if t.opt.Ref != "" {
		cp, err := t.from.Resolve(ctx, t.opt.Ref)
		if err != nil {
			return nil, err
		}
		if cp.Status != string(index.Ready) {
			return nil, fmt.Errorf("checkpoint %s: %s: %w", quoted(cp.ID), cp.StatusMessage, cas.ErrCorrupt)
		}
		all, err := t.listed(ctx, cp.Thread)
		return []sending{{cp.Thread, all, cp.Sequence}}, err
	}
	list, err := t.from.Threads(ctx, Page{})
	if err != nil {
		return nil, err
	}
	var threads []sending
	for _, th := range list {
		all, err := t.listed(ctx, th.ID)
		if errors.Is(err, index.ErrThreadNotFound) {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		threads = append(threads, sending{th.ID, all, ^uint64(0)})
	}
	oldest := func(th sending) uint64 {
		if len(th.all) == 0 {
			return ^uint64(0)
		}
		return th.all[0].seq
	}
	slices.SortFunc(threads, func(a, b sending) int {
		return cmp.Or(cmp.Compare(oldest(a), oldest(b)), strings.Compare(a.thread, b.thread))
	})
	return threads, nil
}

// listed lists a thread's checkpoints, the oldest first.
func (t *transfer) listed(ctx context.Context, thread string) ([]listed, error) {
	cps, err := t.from.Checkpoints(ctx, thread, Page{})
	if err != nil {
		return nil, err
	}
	all := make([]listed, 0, len(cps))
	for _, cp := range slices.Backward(cps) {
		all = append(all, listed{cp.ID, cp.Parent, cp.Name, cp.Record, cp.Sequence, cp.Status == string(index.Ready)})
	}
	return all, nil
}
