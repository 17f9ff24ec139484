package fs

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// A conn serves one mount over /dev/fuse. go-fuse parses the requests and puts
// the answers together; reading, waiting and parallelism are here, since they
// decide how fast a walk is: between two requests of one program lie a few
// microseconds, in which a thread that has gone to sleep in read(2) only begins
// to wake up.
//
// One worker at a time is the leader. It asks for the next request without
// waiting, over and over, for as long as spin; in between it does what
// [conn.idle] has to do. Only then it sleeps. What it gets, it answers itself:
// handing a request to another thread takes longer than most answers. Before a
// handler waits for a disk, or does something long, it calls [conn.slow], so that
// another worker takes the lead.
type conn struct {
	fd    int // of /dev/fuse, non-blocking
	fs    *FS
	proto *fuse.ProtocolServer
	log   *slog.Logger
	idle  func() bool // does a bit of work that nobody waits for; false: there is none

	led     atomic.Bool // somebody is the leader
	latency latency     // the leader's
	resting bool        // the leader's: nothing was asked for a while

	mu      sync.Mutex
	parked  []chan struct{} // of workers that have nothing to do
	workers int
	dead    bool // the mount is gone
	running sync.WaitGroup

	// open is held for reading by who writes a notification, so that the
	// descriptor is not closed meanwhile.
	open   sync.RWMutex
	closed bool
}

const (
	// spin is how long the leader looks for the next request before it sleeps.
	spin = 50 * time.Microsecond
	// maxWorkers bounds the requests that are answered at once.
	maxWorkers = 16
	// pressed is how many requests in a row that were there already show that one
	// worker is not enough.
	pressed = 4
	// messageSize is the longest request and the longest answer, in bytes.
	messageSize = maxRequest + 8192
)

// newConn takes over the descriptor of a new mount and answers the kernel's first
// request, which settles the protocol.
func newConn(fd int, fs *FS, proto *fuse.ProtocolServer) (*conn, error) {
	c := &conn{fd: fd, fs: fs, proto: proto, log: fs.log, idle: fs.idle, latency: newLatency(fs.log)}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(&os.SyscallError{Syscall: "fcntl", Err: err}, unix.Close(fd))
	}
	w := newWorker(c)
	n, errno := c.sleep(w.in)
	if errno == 0 {
		errno = w.answer(n)
	}
	if errno != 0 {
		return nil, errors.Join(fmt.Errorf("talk to the kernel: %w", errno), unix.Close(fd))
	}
	return c, nil
}

// serve answers requests until the mount is gone.
func (c *conn) serve() {
	c.mu.Lock()
	c.start()
	c.mu.Unlock()
	c.running.Wait()
	c.open.Lock()
	defer c.open.Unlock()
	c.closed = true
	c.rest()
	_ = unix.Close(c.fd)
}

// start adds a worker; mu is held.
func (c *conn) start() {
	c.workers++
	c.running.Go(newWorker(c).run)
}

// slow is called by a handler that may take long: somebody else takes the lead.
func (c *conn) slow() {
	if c.led.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.parked); n > 0 {
		close(c.parked[n-1])
		c.parked = c.parked[:n-1]
	} else if c.workers < maxWorkers && !c.dead {
		c.start()
	}
}

// park waits until the worker is needed; false: never again.
func (c *conn) park() bool {
	wake := make(chan struct{})
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		return false
	}
	c.parked = append(c.parked, wake)
	// Whoever led may have stopped meanwhile, and seen nobody to wake.
	if !c.led.Load() {
		c.parked = c.parked[:len(c.parked)-1]
		c.mu.Unlock()
		return true
	}
	c.mu.Unlock()
	<-wake
	return true
}

// end lets all workers go.
func (c *conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = true
	for _, wake := range c.parked {
		close(wake)
	}
	c.parked = nil
}

// A worker answers one request at a time.
type worker struct {
	*conn
	in, out []byte
	reply   reply
}

func newWorker(c *conn) *worker {
	return &worker{conn: c, in: make([]byte, messageSize), out: make([]byte, messageSize)}
}

func (w *worker) run() {
	inARow := 0
	for {
		n, errno := w.read(w.in)
		if errno == 0 {
			if inARow++; inARow == pressed {
				inARow = 0
				w.slow()
			}
		} else if errno == unix.EAGAIN {
			inARow = 0
			if !w.led.CompareAndSwap(false, true) {
				if !w.park() {
					return
				}
				continue
			}
			n, errno = w.lead(w.in)
			w.led.Store(false)
		}
		switch errno {
		case 0:
			if errno := w.answer(n); errno != 0 && errno != unix.ENOENT { // an interrupted request is gone
				w.log.Warn("the kernel did not take an answer", "errno", errno.Error())
				w.refuse()
			}
		case unix.EINTR, unix.EAGAIN, unix.ENOENT: // ENOENT: it was interrupted before it was read
		case unix.ENODEV, unix.ECONNABORTED:
			w.end()
			return
		default:
			w.log.Error("cannot read requests", "errno", errno.Error())
			w.end()
			return
		}
	}
}

// lead waits for the next request: for a while awake, then asleep.
func (c *conn) lead(in []byte) (int, unix.Errno) {
	awake := runtime.GOMAXPROCS(0) > 1 // on a single processor it would be in the way
	until := time.Now().Add(spin)
	for {
		busy := awake && c.idle()
		n, errno := c.read(in)
		if errno != unix.EAGAIN {
			c.latency.soon()
			return n, errno
		}
		if busy {
			until = time.Now().Add(spin)
		} else if !awake || time.Now().After(until) {
			c.latency.pause()
			return c.sleep(in)
		}
	}
}

// sleep waits for the next request.
func (c *conn) sleep(in []byte) (int, unix.Errno) {
	for {
		limit := int(calm.Milliseconds())
		if c.resting {
			limit = -1
		}
		ready := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLIN}}
		n, err := unix.Poll(ready, limit)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return 0, err.(unix.Errno)
		}
		if err == nil && n == 0 {
			c.rest()
			continue
		}
		if n, errno := c.read(in); errno != unix.EAGAIN {
			c.resting = false
			return n, errno
		}
	}
}

// rest gives up what was only for requests that come one after the other.
func (c *conn) rest() {
	c.resting = true
	c.latency.later()
	c.fs.listings.clear(c.fs)
}

// read reads a request if there is one. The call never waits, so the scheduler
// need not know of it.
func (c *conn) read(in []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(c.fd), uintptr(unsafe.Pointer(unsafe.SliceData(in))), uintptr(len(in)))
	return int(n), errno
}

// The kernel's numbers of the requests that are answered here.
const (
	opcodeRead      = 15
	opcodeListing   = 44
	opcodeInterrupt = 36
)

// answer handles the request of n bytes in w.in.
func (w *worker) answer(n int) unix.Errno {
	if in := (*fuse.ReadIn)(unsafe.Pointer(unsafe.SliceData(w.in))); n >= int(unsafe.Sizeof(*in)) {
		switch in.Opcode {
		case opcodeRead:
			return w.answerRead(in)
		case opcodeListing:
			if in.Offset > 0 {
				break
			}
			if data, ok := w.fs.listings.take(in.NodeId, int(in.Size)); ok {
				w.fs.count(opReaddirplus)
				header := fuse.OutHeader{Length: uint32(unsafe.Sizeof(fuse.OutHeader{})) + uint32(len(data)), Unique: in.Unique}
				_, err := unix.Writev(w.fd, [][]byte{bytesOf(&header), data})
				return errnoOf(err)
			}
		}
	}
	if in := (*fuse.InHeader)(unsafe.Pointer(unsafe.SliceData(w.in))); in.Opcode == opcodeInterrupt {
		// The kernel does not send another one. Local reads are short, and a reader
		// whom a signal meets would get a random EIO.
		return w.send(bytesOf(&fuse.OutHeader{Length: uint32(unsafe.Sizeof(fuse.OutHeader{})), Unique: in.Unique, Status: -int32(unix.ENOSYS)}))
	}
	size, status := w.proto.HandleRequest([][]byte{w.in[:n]}, [][]byte{w.out})
	if status != fuse.OK {
		return unix.Errno(status)
	}
	if size == 0 {
		return 0 // some requests have no answer
	}
	return w.send(w.out[:size])
}

// send writes an answer. The call does not wait, so the scheduler need not know.
func (w *worker) send(b []byte) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(w.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return errno
}

// refuse answers a request with EIO, if it was not answered at all.
func (w *worker) refuse() {
	in := (*fuse.InHeader)(unsafe.Pointer(unsafe.SliceData(w.in)))
	_ = w.send(bytesOf(&fuse.OutHeader{Length: uint32(unsafe.Sizeof(fuse.OutHeader{})), Unique: in.Unique, Status: -int32(unix.EIO)}))
}

// maxParts is how many parts the kernel takes in one call (IOV_MAX).
const maxParts = 1024

// answerRead sends what was read from where it is.
func (w *worker) answerRead(in *fuse.ReadIn) unix.Errno {
	header := fuse.OutHeader{Unique: in.Unique}
	w.reply.add(bytesOf(&header))
	defer w.reply.done(w.fs)
	if status := w.fs.read(in, w.out[:min(in.Size, maxRequest)], &w.reply); status != fuse.OK {
		header.Status, w.reply.parts = -int32(status), w.reply.parts[:1]
	}
	for _, p := range w.reply.parts {
		header.Length += uint32(len(p))
	}
	parts := w.reply.parts
	if len(parts) > maxParts { // of chunks, so the buffer is free
		joined := w.out[:0]
		for _, p := range parts {
			joined = append(joined, p...)
		}
		parts = [][]byte{joined}
	}
	_, err := unix.Writev(w.fd, parts)
	return errnoOf(err)
}

// errnoOf returns the errno of a system call's error.
func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	errors.As(err, &errno)
	return errno
}

// notify sends the kernel a message that it did not ask for: a code, a fixed
// part, and what follows that.
func notify[T any](c *conn, code int32, fixed *T, payload []byte) fuse.Status {
	header := fuse.OutHeader{Status: -code}
	header.Length = uint32(unsafe.Sizeof(header)+unsafe.Sizeof(*fixed)) + uint32(len(payload))
	c.open.RLock()
	defer c.open.RUnlock()
	if c.closed {
		return fuse.ENODEV
	}
	_, err := unix.Writev(c.fd, [][]byte{bytesOf(&header), bytesOf(fixed), payload})
	return fuse.ToStatus(err)
}

// bytesOf returns the memory of a structure of the kernel's.
func bytesOf[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

// dropEntry makes the kernel forget a name in a directory.
func (c *conn) dropEntry(dir uint64, name string) fuse.Status {
	return notify(c, fuse.NOTIFY_INVAL_ENTRY, &fuse.NotifyInvalEntryOut{Parent: dir, NameLen: uint32(len(name))}, append([]byte(name), 0))
}

// dropInode makes the kernel forget a node's attributes and its pages or listing.
func (c *conn) dropInode(id uint64) fuse.Status {
	return notify(c, fuse.NOTIFY_INVAL_INODE, &fuse.NotifyInvalInodeOut{Ino: id}, nil)
}

// storeContent gives the kernel the whole content of a file, for its page cache.
func (c *conn) storeContent(id uint64, data []byte) fuse.Status {
	return notify(c, fuse.NOTIFY_STORE_CACHE, &fuse.NotifyStoreOut{Nodeid: id, Size: uint32(len(data))}, data)
}
