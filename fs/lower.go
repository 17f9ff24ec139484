package fs

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

// Lowers serves the files of checkpoints as lower layers of instant workspaces. It has the
// packs open in which they lie and asks no index, so that it needs nobody: not the store's
// daemon, and not the packs' files.
//
// There are two mounts, each made when it is first needed: one that shows no extended
// attributes, which the kernel need not ask for then, and one that shows them and has ACLs
// in force. Each shows a directory for every checkpoint, called by the hash of its record.
type Lowers struct {
	dir  string // of the store
	at   string // of the mount without attributes; that of the other one has -x behind it
	log  *slog.Logger
	kept *local.Kept

	gone   chan struct{}
	going  sync.Once // closes it
	mu     sync.Mutex
	mounts map[bool]*lowerMount // by whether attributes show
	shown  map[LowerID]*lowerFiles
}

// LowerID names what is shown: a checkpoint, and whether with extended attributes.
type LowerID struct {
	Record cas.Hash
	XAttrs bool
}

// A Lower is where the files of a checkpoint are shown.
type Lower struct {
	Mountpoint string `json:"mountpoint"`
	Name       string `json:"name"`   // of the directory in it
	Device     string `json:"device"` // major:minor, in the mount table
}

// lowerFiles is a checkpoint that is shown.
type lowerFiles struct {
	packs []cas.PackID
	users int
}

type lowerMount struct {
	*Mount
	root   *lowerRoot
	device string
}

// NewLowers makes one for the store in dir that mounts at an absolute path, of which
// nothing need be there.
func NewLowers(dir, at string, log *slog.Logger) *Lowers {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Lowers{dir: dir, at: at, log: log, kept: local.NewKept(dir), gone: make(chan struct{}), mounts: map[bool]*lowerMount{}, shown: map[LowerID]*lowerFiles{}}
}

// Has reports whether a checkpoint is shown.
func (l *Lowers) Has(id LowerID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shown[id] != nil
}

// Add shows a checkpoint, all objects of which lie in packs; one that is shown needs none.
// As often as it was added it has to be released. It fails with [iofs.ErrNotExist] when a
// pack is gone: then its objects lie in others.
func (l *Lowers) Add(id LowerID, packs []cas.PackID) (Lower, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, err := l.mount(id.XAttrs)
	if err != nil {
		return Lower{}, err
	}
	if files := l.shown[id]; files != nil {
		files.users++
		return m.lower(id), nil
	}
	if err := l.kept.Add(packs...); err != nil {
		return Lower{}, err
	}
	if err := m.root.show(id.Record); err != nil {
		l.kept.Remove(packs...)
		return Lower{}, err
	}
	l.shown[id] = &lowerFiles{packs: packs, users: 1}
	l.log.Info("serving a checkpoint", "record", id.Record.String(), "packs", len(packs))
	return m.lower(id), nil
}

// Release says that one user less needs a checkpoint.
func (l *Lowers) Release(id LowerID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	files := l.shown[id]
	if files == nil {
		return
	}
	if files.users--; files.users > 0 {
		return
	}
	delete(l.shown, id)
	l.mounts[id.XAttrs].root.hide(id.Record)
	l.kept.Remove(files.packs...)
	l.log.Info("serving a checkpoint no more", "record", id.Record.String())
}

// Gone is closed when a mount has ended: somebody has taken it away, and nothing uses it.
func (l *Lowers) Gone() <-chan struct{} { return l.gone }

// Close takes the mounts away. Who still uses one gets errors.
func (l *Lowers) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, m := range l.mounts {
		err := unix.Unmount(m.mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if !errors.Is(err, unix.EINVAL) { // it is no mount any more
			errs = append(errs, err)
		}
		_ = os.Remove(m.mountpoint)
	}
	return errors.Join(append(errs, l.kept.Close())...)
}

// mount returns the mount with or without attributes; l.mu is held.
func (l *Lowers) mount(xattrs bool) (*lowerMount, error) {
	if m := l.mounts[xattrs]; m != nil {
		return m, nil
	}
	at := l.at
	if xattrs {
		at += "-x"
	}
	place, err := l.mountpoint(at)
	if err != nil {
		return nil, fmt.Errorf("mount a lower layer: %w", err)
	}
	defer place.Close()
	opt := Options{XAttrs: xattrs, Logger: l.log.With("mountpoint", at)}
	f := newFS(l.dir, l.kept, snapshot.NewTrees(l.kept), opt)
	f.acls = xattrs
	root := &lowerRoot{dir: dir{fs: f, id: fuse.FUSE_ROOT_ID}, sources: map[string]*source{}}
	root.take(virtualIno("lower layers"))
	f.enter(root)
	m := &lowerMount{Mount: &Mount{FS: f, mountpoint: at, target: fmt.Sprintf("/proc/self/fd/%d", place.Fd()), done: make(chan struct{})}, root: root}
	if err := m.start(opt); err != nil {
		return nil, err
	}
	entry, _, _ := ourMount(at)
	m.device = entry.Device
	l.mounts[xattrs] = m
	go func() {
		<-m.done
		l.going.Do(func() { close(l.gone) })
	}()
	l.log.Info("mounted", "mountpoint", at)
	return m, nil
}

// mountpoint makes and opens the directory of a mount, and takes away what a server that
// was killed has left there. In another user's store the directory must be root's own: who
// could exchange it would have root mount elsewhere.
func (l *Lowers) mountpoint(at string) (*os.File, error) {
	for {
		if _, _, found := ourMount(at); !found {
			break
		}
		l.log.Warn("taking away the mount of a server that is gone", "mountpoint", at)
		if err := unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return nil, &os.PathError{Op: "umount", Path: at, Err: err}
		}
	}
	if err := os.Mkdir(at, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	fd, err := unix.Open(at, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: at, Err: err}
	}
	dir := os.NewFile(uintptr(fd), at)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Uid != uint32(os.Geteuid()) {
		return nil, errors.Join(err, fmt.Errorf("%s is somebody else's: %w", tree.Quote(at), snapshot.ErrForbidden), dir.Close())
	}
	return dir, nil
}

func (m *lowerMount) lower(id LowerID) Lower {
	return Lower{Mountpoint: m.mountpoint, Name: id.Record.String(), Device: m.device}
}

// runDir is where lower layers are mounted: outside of the store, so that nobody who walks
// through that (du, rm -r, a backup) comes into them.
const runDir = "/run/snapfs"

// LowerMountpoint is where the lower layers of a store are mounted in a mount namespace:
// below /run, or in the store where that cannot be.
func LowerMountpoint(dir string, namespace uint64) string {
	var st, run unix.Stat_t
	err := unix.Stat(dir, &st)
	if err == nil {
		if err = os.Mkdir(runDir, 0o700); errors.Is(err, os.ErrExist) {
			err = nil
		}
	}
	if err == nil {
		err = unix.Lstat(runDir, &run)
	}
	if err != nil || run.Mode&unix.S_IFMT != unix.S_IFDIR || run.Uid != uint32(os.Geteuid()) || run.Mode&0o022 != 0 || unix.Access(runDir, unix.W_OK) != nil {
		return filepath.Join(dir, snapshot.WorkspacesDir, fmt.Sprintf("lower-%d", namespace))
	}
	return filepath.Join(runDir, fmt.Sprintf("%x-%x-%d", st.Dev, st.Ino, namespace))
}

// lowerRoot is the root of a mount of lower layers. What it shows below a name never
// changes, so the kernel may remember a name for ever; not that there is none.
type lowerRoot struct {
	dir
	mu      sync.Mutex
	sources map[string]*source // by the hash of the record, hex
}

// show reads what the directories of a checkpoint share.
func (d *lowerRoot) show(record cas.Hash) error {
	data, err := d.fs.blobs.Read(d.fs.ctx, cas.Key{NS: cas.Records, Hash: record}, nil)
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	rec, err := index.DecodeRecord(data)
	if err != nil {
		return fmt.Errorf("record: %w: %w", err, cas.ErrCorrupt)
	}
	s, err := d.fs.newSource(rec, record.String())
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sources[record.String()] = s
	return nil
}

func (d *lowerRoot) hide(record cas.Hash) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.sources, record.String())
}

func (d *lowerRoot) valid() time.Duration  { return forever }
func (d *lowerRoot) absent() time.Duration { return 0 }
func (d *lowerRoot) attr(out *fuse.Attr) {
	d.dirAttr(out, d.fs.started)
	out.Mode = unix.S_IFDIR | 0o500
}

func (d *lowerRoot) lookup(name string) (node, error) {
	d.mu.Lock()
	s := d.sources[name]
	d.mu.Unlock()
	if s == nil {
		return nil, nil
	}
	return d.files(name, s), nil
}

func (d *lowerRoot) files(name string, s *source) node {
	m := s.meta(snapshot.RootEntry(s.rec))
	return d.fs.dirNode(d.id, name, s, 0, &m)
}

func (d *lowerRoot) list(off uint64, _ bool, add func(listed) bool) error {
	d.mu.Lock()
	sources := maps.Clone(d.sources)
	d.mu.Unlock()
	for i, name := range slices.Sorted(maps.Keys(sources)) {
		if uint64(i) < off {
			continue
		}
		s := sources[name]
		m := s.meta(snapshot.RootEntry(s.rec))
		if !add(listed{name: name, off: uint64(i) + 1, mode: unix.S_IFDIR, ino: m.ino(0), make: func() (node, error) { return d.files(name, s), nil }}) {
			break
		}
	}
	return nil
}
