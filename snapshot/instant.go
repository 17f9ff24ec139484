package snapshot

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/disk"
	"github.com/snapfs/snapfs/restore"
	"github.com/snapfs/snapfs/tree"
)

// An instant workspace is a writable directory over a checkpoint: overlayfs keeps what
// changes in an upper directory, and shows the checkpoint below it. Each is registered in
// the store:
//
//	workspaces/<id>/workspace.json  what it is; while it is there, no byte of its checkpoint goes
//	workspaces/<id>/saved.json      what was saved of it last
//	workspaces/<id>/layer/          root's: upper/ and work/ of overlayfs, unless they lie elsewhere
//
// All of it is root's, as the store has to be.

// Names below a store.
const (
	WorkspacesDir = "workspaces"
	workspaceFile = "workspace.json"
	savedFile     = "saved.json"
	layerDir      = "layer"
	upperDir      = "upper"
	workDir       = "work"
)

// OverlayType is the file system type of instant workspaces in the mount table.
const OverlayType = "overlay"

// overlaySource is how an instant workspace's source in the mount table begins; its id
// follows.
const overlaySource = "snapfs:"

// maxWorkspaceFile is how long a registration is at most, in bytes.
const maxWorkspaceFile = 64 << 10

var (
	// ErrNoWorkspace: no instant workspace is registered for the directory.
	ErrNoWorkspace = errors.New("no instant workspace")
	// ErrWorkspaceState: the instant workspace is not mounted, or in use, or has changes
	// that were not saved.
	ErrWorkspaceState = errors.New("the state of the instant workspace does not allow it")
)

// An InstantWorkspace is what the store has registered of one.
type InstantWorkspace struct {
	ID         string    `json:"id"`
	Dir        string    `json:"dir"`                // where it is mounted, a real path
	DirBytes   string    `json:"dirBytes,omitempty"` // see [Path]
	Checkpoint string    `json:"checkpoint"`         // that it is made of
	Record     string    `json:"record"`             // hash of the checkpoint's record, hex
	Thread     string    `json:"thread"`             // that it is saved to
	Layer      string    `json:"layer"`              // directory with the upper layer and overlayfs' own
	LayerBytes string    `json:"layerBytes,omitempty"`
	Outside    bool      `json:"outside,omitempty"`   // Layer lies where the user wanted it
	LayerMade  bool      `json:"layerMade,omitempty"` // and was made for it
	XAttrs     bool      `json:"xattrs,omitempty"`    // the checkpoint has extended attributes
	Made       bool      `json:"made,omitempty"`      // Dir was made for it
	Created    time.Time `json:"created"`
	// Folder is the inode number of its folder in the store: that of a copy is another one.
	Folder uint64 `json:"folder"`
	// Boot and Namespace name the boot and the mount namespace in which it was mounted last.
	Boot      string `json:"boot"`
	Namespace uint64 `json:"namespace"`
}

// Mountpoint is where it is mounted.
func (w InstantWorkspace) Mountpoint() string { return Path{w.Dir, w.DirBytes}.Raw() }

// Upper is the directory with the changes.
func (w InstantWorkspace) Upper() string { return filepath.Join(w.LayerDir(), upperDir) }

// Work is overlayfs' own directory beside it.
func (w InstantWorkspace) Work() string { return filepath.Join(w.LayerDir(), workDir) }

// LayerDir is the directory that holds both.
func (w InstantWorkspace) LayerDir() string { return Path{w.Layer, w.LayerBytes}.Raw() }

// Source is what the mount table calls it.
func (w InstantWorkspace) Source() string { return overlaySource + w.ID }

// SetMountpoint and SetLayer note paths of any bytes.
func (w *InstantWorkspace) SetMountpoint(path string) {
	p := NewPath(path)
	w.Dir, w.DirBytes = p.Text, p.Bytes
}

// SetLayer notes where the upper layer lies.
func (w *InstantWorkspace) SetLayer(path string) {
	p := NewPath(path)
	w.Layer, w.LayerBytes = p.Text, p.Bytes
}

// savedWorkspace is what was saved of an instant workspace last.
type savedWorkspace struct {
	Base
	Thread string `json:"thread"`
}

// MountNamespace names the mount namespace of this process.
func MountNamespace() (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/mnt", &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: "/proc/self/ns/mnt", Err: err}
	}
	return st.Ino, nil
}

// Workspaces lists the instant workspaces that are registered, in the order of their ids.
// One whose registration cannot be read is an error: nobody knows what it needs.
func (s *Store) Workspaces() ([]InstantWorkspace, error) { return readWorkspaces(s.dir) }

func readWorkspaces(dir string) ([]InstantWorkspace, error) {
	if dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(filepath.Join(dir, WorkspacesDir))
	if err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return nil, fmt.Errorf("instant workspaces: %w", err)
	}
	var all []InstantWorkspace
	for _, e := range entries {
		if !e.IsDir() || !isWorkspaceID(e.Name()) {
			continue
		}
		w, err := readWorkspace(dir, e.Name())
		if errors.Is(err, iofs.ErrNotExist) {
			continue // it is being made or removed
		}
		if err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	return all, nil
}

// idBytes is the length of an instant workspace's id, in bytes; it is written in hex.
const idBytes = 8

func isWorkspaceID(name string) bool {
	_, err := hex.DecodeString(name)
	return err == nil && len(name) == hex.EncodedLen(idBytes)
}

// NewWorkspaceID makes an id for an instant workspace.
func NewWorkspaceID() string {
	var random [idBytes]byte
	_, _ = rand.Read(random[:]) // never fails
	return hex.EncodeToString(random[:])
}

func readWorkspace(dir, id string) (w InstantWorkspace, err error) {
	folder := filepath.Join(dir, WorkspacesDir, id)
	path := filepath.Join(folder, workspaceFile)
	data, err := readAtMost(path, maxWorkspaceFile)
	if err == nil {
		err = json.Unmarshal(data, &w)
		if err == nil && (w.ID != id || w.Checkpoint == "" || w.Dir == "" || w.Layer == "") {
			err = errors.New("something is missing in it")
		}
		if err == nil {
			_, err = cas.ParseHash(w.Record)
		}
		if !w.Outside { // wherever the store is by now
			w.SetLayer(filepath.Join(folder, layerDir))
		}
		if err != nil {
			err = fmt.Errorf("%w: %w", err, cas.ErrCorrupt)
		}
	}
	if err != nil {
		err = fmt.Errorf("instant workspace %s: %w", id, err)
		if errors.Is(err, cas.ErrCorrupt) {
			err = WithHint(err, "nobody can tell which checkpoint it needs: put %s right, or if what is in it is not wanted any more, remove it", quoted(path))
		}
	}
	return w, err
}

// Copied reports whether a registration came with a copy of its store: the workspace is the
// other one's.
func (s *Store) Copied(w InstantWorkspace) bool {
	var st unix.Stat_t
	return unix.Stat(s.workspaceFolder(w.ID), &st) == nil && st.Ino != w.Folder
}

// MakeWorkspaceFolder makes the folder of a new instant workspace. Before that it takes away
// what was left by those whose making was killed.
func (s *Store) MakeWorkspaceFolder(id string) error {
	all := filepath.Join(s.dir, WorkspacesDir)
	for _, dir := range []string{all, s.workspaceFolder(id)} {
		if err := s.fsys.Mkdir(dir, 0o700); err != nil && !(dir == all && errors.Is(err, iofs.ErrExist)) {
			return fmt.Errorf("register an instant workspace: %w", err)
		}
	}
	entries, err := os.ReadDir(all)
	if err != nil {
		return fmt.Errorf("register an instant workspace: %w", err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !isWorkspaceID(e.Name()) || time.Since(info.ModTime()) < killedAge {
			continue
		}
		folder := s.workspaceFolder(e.Name())
		if _, err := os.Lstat(filepath.Join(folder, workspaceFile)); errors.Is(err, iofs.ErrNotExist) {
			if err := os.RemoveAll(folder); err != nil {
				s.log.Warn("cannot remove what was left of an instant workspace", "folder", folder, "error", err)
			}
		}
	}
	return nil
}

// killedAge is how old a folder without a registration is that nobody is making any more.
const killedAge = 10 * time.Minute

// MayHaveWorkspaces fails with [ErrForbidden] unless the store and its folder for instant
// workspaces are this process's user's: who could change registrations, or exchange the
// folder, would have root mount, read and delete what he likes.
func (s *Store) MayHaveWorkspaces() error {
	if s.dir == "" {
		return fmt.Errorf("instant workspace: the store lives in memory: %w", ErrUnsupported)
	}
	for _, dir := range []string{realPath(s.dir), filepath.Join(s.dir, WorkspacesDir)} {
		var st unix.Stat_t
		err := unix.Lstat(dir, &st)
		if errors.Is(err, iofs.ErrNotExist) {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "lstat", Path: dir, Err: err}
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
			err := fmt.Errorf("%s is not only root's, and instant workspaces need a store that is: %w", quoted(dir), ErrForbidden)
			return WithHint(err, "snapfs pull brings the checkpoint into a store of root's; snapfs restore copies the files")
		}
	}
	return nil
}

// workspaceFolder is the folder of an instant workspace in the store.
func (s *Store) workspaceFolder(id string) string { return filepath.Join(s.dir, WorkspacesDir, id) }

// AddWorkspace registers an instant workspace of a checkpoint, of which rec is the record. From then on no byte of the
// checkpoint goes, until [Store.DropWorkspace]: not even when the checkpoint is deleted.
// The ID, and where it is mounted and has its layer, come from w.
func (s *Store) AddWorkspace(ctx context.Context, cp Checkpoint, rec index.Record, w InstantWorkspace) (InstantWorkspace, error) {
	// While the session lives, a collection takes nothing of what is there now; afterwards
	// it finds the registration.
	session, err := s.holder.Begin(ctx, BeginRequest{Thread: cp.Thread, PID: os.Getpid(), Beside: true})
	if err != nil {
		return w, err
	}
	defer session.Close()
	if !s.there(ctx, Base{Checkpoint: cp.ID, Record: cp.Record}) {
		return w, fmt.Errorf("checkpoint %s: %w", quoted(cp.ID), index.ErrCheckpointNotFound)
	}
	w.Checkpoint, w.Record, w.XAttrs = cp.ID, cp.Record, rec.Totals.XAttrs > 0 || !rec.Root.XAttrs.IsZero()
	if w.Thread == "" {
		w.Thread = cp.Thread
	}
	w.Created = s.now().UTC()
	var st unix.Stat_t
	if err := unix.Stat(s.workspaceFolder(w.ID), &st); err != nil {
		return w, fmt.Errorf("register an instant workspace: %w", err)
	}
	w.Folder = st.Ino
	return w, s.PutWorkspace(w)
}

// PutWorkspace writes a registration into its folder, durably.
func (s *Store) PutWorkspace(w InstantWorkspace) error {
	folder := s.workspaceFolder(w.ID)
	data, err := json.MarshalIndent(w, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(folder, workspaceFile)
	_, before := os.Lstat(path)
	err = writeFile(s.fsys, s.dir, path, append(data, '\n'))
	if err == nil && before != nil { // the names above it, after all that is in them
		err = errors.Join(s.fsys.SyncDir(filepath.Dir(folder)), s.fsys.SyncDir(s.dir))
	}
	if err != nil {
		return fmt.Errorf("register an instant workspace: %w", err)
	}
	return nil
}

// DropWorkspace takes a registration away. What lies in its layer must be gone.
func (s *Store) DropWorkspace(id string) error {
	folder := s.workspaceFolder(id)
	for _, path := range []string{filepath.Join(folder, savedFile), filepath.Join(folder, layerDir), filepath.Join(folder, workspaceFile), folder} {
		if err := s.fsys.Remove(path); err != nil && !errors.Is(err, iofs.ErrNotExist) {
			return fmt.Errorf("take away the registration of an instant workspace: %w", err)
		}
	}
	if err := s.fsys.SyncDir(filepath.Dir(folder)); err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return err
	}
	return nil
}

// NewWorkspace looks whether a directory can become an instant workspace: it must be
// missing or empty, as for a restore. It returns its real path.
func (s *Store) NewWorkspace(dir string) (real string, missing bool, err error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", false, fmt.Errorf("workspace %s: %w", quoted(dir), err)
	}
	real = realPath(abs)
	if w, _, err := s.WorkspaceAt(real); err == nil {
		err := fmt.Errorf("%s is an instant workspace of checkpoint %s already: %w", quoted(dir), quoted(w.Checkpoint), ErrWorkspaceState)
		return "", false, WithHint(err, "snapfs workspace show %s tells its state; snapfs workspace remove %s gives it up", tree.QuoteShell(dir), tree.QuoteShell(dir))
	} else if !errors.Is(err, ErrNoWorkspace) {
		return "", false, err
	}
	why, err := hazard(s.dir, real)
	if err != nil {
		return "", false, err
	}
	if why != "" {
		return "", false, fmt.Errorf("workspace %s %s: %w", quoted(dir), why, ErrRefused)
	}
	if missing, err = restore.CheckEmpty(real); err != nil {
		return "", false, fmt.Errorf("workspace: %w", err)
	}
	if _, err := os.Lstat(filepath.Dir(real)); err != nil {
		return "", false, fmt.Errorf("workspace: %w", err)
	}
	return real, missing, nil
}

// LockWorkspace keeps others from creating, removing or repairing an instant workspace
// until release is called. It fails with [ErrBusy].
func (s *Store) LockWorkspace(id string) (release func(), err error) {
	dir, err := os.Open(s.workspaceFolder(id))
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, fmt.Errorf("instant workspace %s: %w", id, ErrNoWorkspace)
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = dir.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("another process is at work on the instant workspace: %w", ErrBusy)
		}
		return nil, err
	}
	return func() { _ = dir.Close() }, nil
}

// OwnLayer is where the layer of an instant workspace lies unless somebody wants it
// elsewhere.
func (s *Store) OwnLayer(id string) string { return filepath.Join(s.workspaceFolder(id), layerDir) }

// WorkspaceAt finds the instant workspace of a directory, which is a real path, in this
// mount namespace. It fails with [ErrNoWorkspace]. mounted tells whether it is.
func (s *Store) WorkspaceAt(dir string) (w InstantWorkspace, mounted bool, err error) {
	none := fmt.Errorf("%s: %w", quoted(dir), ErrNoWorkspace)
	all, err := s.Workspaces()
	if err != nil || len(all) == 0 {
		return w, false, cmp.Or(err, none)
	}
	table, err := MountTable()
	if err != nil {
		return w, false, err
	}
	top := topMount(table, dir)
	for _, w := range all {
		if top != nil && w.Source() == top.Source && !s.Copied(w) {
			return w, true, nil
		}
	}
	for _, w := range all {
		if w.Mountpoint() == dir && !s.Copied(w) && !s.Elsewhere(w) {
			return w, false, nil
		}
	}
	return w, false, none
}

// topMount returns the instant workspace that is mounted at a directory, or nil.
func topMount(table []MountEntry, dir string) (top *MountEntry) {
	for i, e := range table {
		if e.Mountpoint == dir {
			top = &table[i]
		}
	}
	if top != nil && top.Type == OverlayType && top.Root == "/" && strings.HasPrefix(top.Source, overlaySource) {
		return top
	}
	return nil
}

// Elsewhere reports whether an instant workspace lives in another mount namespace: there
// its directory is another one than the one of that name here. A namespace in which no
// process is but the server of lower layers is over.
func (s *Store) Elsewhere(w InstantWorkspace) bool {
	here, err := MountNamespace()
	if err != nil || w.Namespace == here || w.Boot != disk.BootID() {
		return false
	}
	inhabited, known := inhabited(w.Namespace)
	return inhabited || !known && served(s.dir, w.Namespace)
}

// inhabited reports whether a process lives in a mount namespace, but for servers of lower
// layers. Who may not look at the processes of others does not know.
func inhabited(namespace uint64) (found, known bool) {
	entries, err := os.ReadDir("/proc")
	if err != nil || os.Geteuid() != 0 {
		return false, false
	}
	for _, e := range entries {
		var st unix.Stat_t
		proc := filepath.Join("/proc", e.Name())
		if unix.Stat(filepath.Join(proc, "ns/mnt"), &st) != nil || st.Ino != namespace {
			continue
		}
		line, err := os.ReadFile(filepath.Join(proc, "cmdline"))
		if err == nil && !strings.Contains(string(line), "\x00workspace\x00serve\x00") {
			return true, true
		}
	}
	return false, true
}

// ServerLock is the file that the server of lower layers holds locked as long as it lives,
// for a mount namespace of a store.
func ServerLock(dir string, namespace uint64) string {
	return filepath.Join(dir, WorkspacesDir, fmt.Sprintf("%d.lock", namespace))
}

// served reports whether a mount namespace has a server of lower layers of the store in dir.
func served(dir string, namespace uint64) bool {
	f, err := os.OpenFile(ServerLock(dir, namespace), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// instant finds out whether a workspace that is to be saved, or restored into, is an
// instant one; nil: it is not. One that is not mounted is refused: what is seen there is
// not what it has.
func (s *Store) instant(real string) (*InstantWorkspace, error) {
	if s.dir == "" {
		return nil, nil
	}
	w, mounted, err := s.WorkspaceAt(real)
	if errors.Is(err, ErrNoWorkspace) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !mounted {
		err := fmt.Errorf("%s is an instant workspace of checkpoint %s that is not mounted: %w", quoted(real), quoted(w.Checkpoint), ErrWorkspaceState)
		return nil, WithHint(err, "snapfs workspace repair %s mounts it with all that was changed in it; snapfs workspace remove %s gives it up", tree.QuoteShell(real), tree.QuoteShell(real))
	}
	return &w, nil
}

// noteSaved remembers what was saved of an instant workspace. Without it a removal asks
// for more than it needs to: a failure is logged and the save stays a success.
func (s *Store) noteSaved(w *InstantWorkspace, cp Checkpoint) {
	data, err := json.Marshal(savedWorkspace{Base{cp.ID, cp.Record}, cp.Thread})
	path := filepath.Join(s.workspaceFolder(w.ID), savedFile)
	if err == nil {
		err = cacheFile(s.fsys, s.dir, path, data)
	}
	if err != nil {
		s.log.Warn("cannot note what was saved of an instant workspace", "workspace", w.Mountpoint(), "error", err)
	}
}

// lastSaved returns what was saved of an instant workspace last; the zero value: nothing
// is known of that.
func (s *Store) lastSaved(w InstantWorkspace) (saved savedWorkspace) {
	data, err := readAtMost(filepath.Join(s.workspaceFolder(w.ID), savedFile), maxWorkspaceFile)
	if err != nil || json.Unmarshal(data, &saved) != nil {
		return savedWorkspace{}
	}
	return saved
}
