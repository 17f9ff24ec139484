package workspace

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/fs"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

// overlayOptions: directories of the checkpoint can be renamed, as in any directory (npm
// and git do it); nothing in the upper layer is without its content; a file of the
// checkpoint is known by its path alone, so that it is the same after the server was
// started anew.
const overlayOptions = "redirect_dir=on,index=off,nfs_export=off,metacopy=off,xino=auto"

// makeLayer makes the directories of the upper layer. The upper one is the workspace's
// root, and so gets the metadata of the checkpoint's.
func makeLayer(ctx context.Context, store *snapshot.Store, w snapshot.InstantWorkspace, rec index.Record) error {
	what := func(err error) error { return fmt.Errorf("make the layer for changes: %w", err) }
	if err := os.Mkdir(w.LayerDir(), 0o700); err != nil && !(w.Outside && !w.LayerMade && errors.Is(err, iofs.ErrExist)) {
		if w.Outside {
			err = snapshot.WithHint(err, "--upper DIR names a directory on a file system that can be written to: ext4, XFS, Btrfs, tmpfs")
		}
		return what(err)
	}
	layer, err := openLayer(w)
	if err != nil {
		return err
	}
	defer layer.Close()
	for _, name := range []string{filepath.Base(w.Upper()), filepath.Base(w.Work())} {
		if err := unix.Mkdirat(int(layer.Fd()), name, 0o700); err != nil {
			return what(&os.PathError{Op: "mkdir", Path: filepath.Join(w.LayerDir(), name), Err: err})
		}
	}
	if err := probeLayer(layer, w); err != nil {
		return err
	}
	upper, err := openAt(layer, filepath.Base(w.Upper()))
	if err != nil {
		return what(err)
	}
	defer upper.Close()
	root := rec.Root
	err = errors.Join(
		unix.Fchown(int(upper.Fd()), int(root.UID), int(root.GID)),
		unix.Fchmod(int(upper.Fd()), root.Mode),
		unix.Fsetxattr(int(upper.Fd()), capture.LowerMark, []byte{'y'}, 0),
	)
	if err == nil && !root.XAttrs.IsZero() {
		set, xerr := store.Trees().XAttrs(ctx, root.XAttrs)
		err = xerr
		for _, x := range set {
			err = errors.Join(err, unix.Fsetxattr(int(upper.Fd()), x.Name, []byte(x.Value), 0))
		}
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: root.MtimeSec, Nsec: int64(root.MtimeNsec)}}
	if err == nil {
		err = unix.UtimesNanoAt(unix.AT_FDCWD, fdPath(upper), times, 0)
	}
	if err == nil {
		err = layer.Sync()
	}
	if err != nil {
		return what(err)
	}
	return nil
}

// openLayer opens the directory of the layer. The store may be another user's, who must
// not lead root elsewhere.
func openLayer(w snapshot.InstantWorkspace) (*os.File, error) {
	return openOwn(unix.AT_FDCWD, w.LayerDir())
}

// openAt opens a directory below another one.
func openAt(dir *os.File, name string) (*os.File, error) { return openOwn(int(dir.Fd()), name) }

// openOwn opens a directory that must be no link.
func openOwn(at int, path string) (*os.File, error) {
	fd, err := unix.Openat(at, path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// ownedByRoot refuses a layer that somebody else could exchange.
func ownedByRoot(layer *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(layer.Fd()), &st); err != nil {
		return &os.PathError{Op: "stat", Path: layer.Name(), Err: err}
	}
	if st.Uid != 0 {
		return fmt.Errorf("the layer for changes %s does not belong to root: %w", tree.Quote(layer.Name()), snapshot.ErrForbidden)
	}
	return nil
}

// overlayMagic is overlayfs' number in statfs(2), from linux/magic.h.
const overlayMagic = 0x794c7630

// probeLayer looks whether overlayfs can write to the file system of the layer, which it
// says in the kernel's log only.
func probeLayer(layer *os.File, w snapshot.InstantWorkspace) error {
	if err := ownedByRoot(layer); err != nil {
		return err
	}
	refused := func(format string, args ...any) error {
		err := fmt.Errorf("%s cannot be overlayfs' upper layer: %s: %w", tree.Quote(w.LayerDir()), fmt.Sprintf(format, args...), snapshot.ErrUnsupported)
		return snapshot.WithHint(err, "--upper DIR puts the layer on another file system (ext4, XFS, Btrfs, tmpfs); snapfs restore copies the files instead")
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(layer.Fd()), &st); err != nil {
		return &os.PathError{Op: "statfs", Path: w.LayerDir(), Err: err}
	}
	switch {
	case int64(st.Type) == overlayMagic:
		return refused("it lies on overlayfs itself, as most of a container's file system does")
	case st.Flags&unix.ST_RDONLY != 0:
		return refused("it lies on a read-only file system")
	}
	if err := unix.Fsetxattr(int(layer.Fd()), capture.LowerMark, []byte{'y'}, 0); err != nil {
		if errors.Is(err, unix.EPERM) {
			return notAllowed(err)
		}
		return refused("its file system keeps no trusted attributes (%v)", err)
	}
	if err := unix.Fremovexattr(int(layer.Fd()), capture.LowerMark); err != nil {
		return err
	}
	const whiteout = "whiteout"
	if err := unix.Mknodat(int(layer.Fd()), whiteout, unix.S_IFCHR, 0); err != nil {
		return refused("no whiteout can be made there (%v)", err)
	}
	return unix.Unlinkat(int(layer.Fd()), whiteout, 0)
}

// notAllowed explains that this root is none of the machine's.
func notAllowed(err error) error {
	return snapshot.WithHint(fmt.Errorf("this process may not mount: %w: %w", err, snapshot.ErrForbidden), "run it with CAP_SYS_ADMIN in the machine's own user namespace; snapfs restore copies the files instead")
}

// mountOverlay mounts a workspace. What its directory's own file system forbids (programs,
// devices), it forbids too.
func mountOverlay(w snapshot.InstantWorkspace, lower fs.Lower) error {
	layer, err := openLayer(w)
	if errors.Is(err, iofs.ErrNotExist) {
		err = fmt.Errorf("what was changed in the workspace is gone: %w", err)
		return snapshot.WithHint(err, "put %s back, or give the workspace up: snapfs workspace remove --force %s", tree.Quote(w.LayerDir()), tree.QuoteShell(w.Mountpoint()))
	}
	if err != nil {
		return err
	}
	defer layer.Close()
	if err := ownedByRoot(layer); err != nil {
		return err
	}
	var open []*os.File
	defer func() {
		for _, f := range open {
			f.Close()
		}
	}()
	names := map[string]string{} // option: path
	for _, part := range []struct{ option, path string }{{"upperdir", w.Upper()}, {"workdir", w.Work()}} {
		f, err := openAt(layer, filepath.Base(part.path))
		if err != nil {
			return fmt.Errorf("what was changed in the workspace is gone, or was exchanged: %w", err)
		}
		open = append(open, f)
		names[part.option] = part.path
		if !plain(part.path) || !safe(w.LayerDir()) {
			names[part.option] = fdPath(f)
		}
	}
	below, err := openLower(lower)
	if err != nil {
		return err
	}
	open = append(open, below)
	names["lowerdir"] = lower.Mountpoint
	if !plain(lower.Mountpoint) || !safe(lower.Mountpoint) {
		names["lowerdir"] = fdPath(below)
	}
	names["lowerdir"] += "/" + lower.Name
	var here unix.Statfs_t
	if err := unix.Statfs(w.Mountpoint(), &here); err != nil {
		return &os.PathError{Op: "statfs", Path: w.Mountpoint(), Err: err}
	}
	flags := uintptr(0)
	for st, ms := range map[int64]uintptr{unix.ST_NOSUID: unix.MS_NOSUID, unix.ST_NODEV: unix.MS_NODEV, unix.ST_NOEXEC: unix.MS_NOEXEC} {
		if here.Flags&st != 0 {
			flags |= ms
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,%s", names["lowerdir"], names["upperdir"], names["workdir"], overlayOptions)
	if err := unix.Mount(w.Source(), w.Mountpoint(), snapshot.OverlayType, flags, options); err != nil {
		switch err := fmt.Errorf("mount overlayfs at %s: %w", tree.Quote(w.Mountpoint()), err); {
		case errors.Is(err, unix.EPERM):
			return notAllowed(err)
		case errors.Is(err, unix.ENODEV):
			return snapshot.WithHint(fmt.Errorf("%w: %w", err, snapshot.ErrUnsupported), "load the kernel's overlay module (modprobe overlay); snapfs restore copies the files instead")
		default:
			return snapshot.WithHint(err, "the kernel's log (dmesg) may say why; --upper DIR puts the layer on another file system, snapfs restore copies the files instead")
		}
	}
	if err := unix.Statfs(w.Mountpoint(), &here); err == nil && here.Flags&unix.ST_RDONLY != 0 {
		err := fmt.Errorf("overlayfs cannot write to %s: %w", tree.Quote(w.LayerDir()), snapshot.ErrUnsupported)
		return errors.Join(snapshot.WithHint(err, "--upper DIR puts the layer on another file system"), unix.Unmount(w.Mountpoint(), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
	}
	return nil
}

// openLower opens the mount of lower layers, without asking its server.
func openLower(lower fs.Lower) (*os.File, error) {
	fd, err := unix.Open(lower.Mountpoint, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: lower.Mountpoint, Err: err}
	}
	f := os.NewFile(uintptr(fd), lower.Mountpoint)
	table, err := snapshot.MountTable()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	for _, e := range table {
		if e.Mountpoint == lower.Mountpoint && e.Type == snapshot.MountType && e.Device == lower.Device {
			return f, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("no mount of the server of lower layers is at %s: %w", tree.Quote(lower.Mountpoint), snapshot.ErrNotMounted), f.Close())
}

// plain reports whether a path can stand in the options of a mount as it is.
func plain(path string) bool { return len(path) < 1024 && !strings.ContainsAny(path, `,:\`) }

// safe reports whether nobody but root can exchange a directory on the way to path.
func safe(path string) bool {
	for {
		path = filepath.Dir(path)
		var st unix.Stat_t
		if unix.Lstat(path, &st) != nil || st.Uid != 0 || st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0 {
			return false
		}
		if path == "/" {
			return true
		}
	}
}

// fdPath is a path to an open file that means the same whatever becomes of its names.
func fdPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// removeLayer removes what lies in a workspace's layer.
func removeLayer(w snapshot.InstantWorkspace) error {
	layer, err := openLayer(w)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer layer.Close()
	for _, name := range []string{filepath.Base(w.Upper()), filepath.Base(w.Work())} {
		if err := os.RemoveAll(filepath.Join(fdPath(layer), name)); err != nil {
			return err
		}
	}
	if !w.Outside || w.LayerMade {
		return os.Remove(w.LayerDir())
	}
	return nil
}
