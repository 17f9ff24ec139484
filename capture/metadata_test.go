package capture

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/tree"
)

func TestModes(t *testing.T) {
	ws := t.TempDir()
	files := []uint32{0, 0o444, 0o600, 0o644, 0o755, 0o777, 0o1644, 0o001}
	dirs := []uint32{0o700, 0o755, 0o1777, 0o555, 0o2755, 0o500}
	if os.Geteuid() == 0 {
		dirs = append(dirs, 0, 0o111)
	} else {
		files = files[1 : len(files)-1]
	}
	for _, m := range files {
		path := filepath.Join(ws, fmt.Sprintf("f%04o", m))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.NoError(t, unix.Chmod(path, m))
	}
	for _, m := range dirs {
		path := filepath.Join(ws, fmt.Sprintf("d%04o", m))
		write(t, path, map[string]string{"child": "x"})
		require.NoError(t, unix.Chmod(path, m))
		t.Cleanup(func() { _ = os.Chmod(path, 0o700) })
	}
	m := newMemory()
	got, err := captureAll(t, ws, m)
	require.NoError(t, err)
	all := m.entries(t, got)
	for _, mode := range files {
		require.Equal(t, mode, all[fmt.Sprintf("f%04o", mode)].Mode)
	}
	for _, mode := range dirs {
		name := fmt.Sprintf("d%04o", mode)
		require.Equal(t, mode&0o1777, all[name].Mode)
		require.Contains(t, all, name+"/child")
	}
}

// TestSetuid: the bits are dropped and counted, once an entry, on files,
// directories and the workspace itself.
func TestSetuid(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{"su": "", "sg": "", "both": "", "none": "", "d/in": "", "big": strings.Repeat("x", 2<<20)})
	for name, mode := range map[string]uint32{"su": 0o4755, "sg": 0o2755, "both": 0o6711, "big": 0o4700, "d": 0o2775, ".": 0o2755} {
		require.NoError(t, unix.Chmod(filepath.Join(ws, name), mode))
	}
	m := newMemory()
	got, err := captureAll(t, ws, m)
	require.NoError(t, err)
	require.Equal(t, 6, got.Setuid)
	var paths []string
	for _, o := range got.Left {
		require.Contains(t, o.Why, "setuid")
		paths = append(paths, o.Path)
	}
	require.Equal(t, []string{".", "big", "both", "d", "sg", "su"}, paths)
	require.Equal(t, uint32(0o755), got.Stat.Mode)
	all := m.entries(t, got)
	require.Equal(t, uint32(0o755), all["su"].Mode)
	require.Equal(t, uint32(0o711), all["both"].Mode)
	require.Equal(t, uint32(0o775), all["d"].Mode)
}

func TestTimes(t *testing.T) {
	ws := t.TempDir()
	times := map[string]time.Time{
		"epoch":  time.Unix(0, 0),
		"before": time.Date(1969, 12, 31, 23, 59, 59, 123456789, time.UTC),
		"long":   time.Date(1901, 12, 14, 0, 0, 0, 1, time.UTC),
		"after":  time.Date(2040, 2, 29, 1, 2, 3, 999999999, time.UTC),
		"late":   time.Date(2400, 1, 1, 0, 0, 0, 7, time.UTC),
		"dir/":   time.Date(2038, 1, 19, 3, 14, 8, 1, time.UTC),
		".":      time.Date(1960, 1, 1, 0, 0, 0, 5, time.UTC),
	}
	for name := range times {
		if name != "." {
			write(t, ws, map[string]string{name: ""})
		}
	}
	want := map[string]time.Time{} // a file system may not have all of them
	for name, tm := range times {
		path := filepath.Join(ws, name)
		require.NoError(t, os.Chtimes(path, time.Time{}, tm))
		info, err := os.Stat(path)
		require.NoError(t, err)
		want[strings.TrimSuffix(name, "/")] = info.ModTime()
	}
	require.True(t, want["before"].Equal(times["before"]), "the file system has no times before 1970 or no ns")
	m := newMemory()
	got, err := captureAll(t, ws, m)
	require.NoError(t, err)
	all := m.entries(t, got)
	all["."] = got.Stat
	for name, tm := range want {
		e := all[name]
		require.Truef(t, tm.Equal(time.Unix(e.MtimeSec, int64(e.MtimeNsec))), "%s: %d.%09d", name, e.MtimeSec, e.MtimeNsec)
	}
}

// TestOwners: the workspace's owner is everybody's, unless an entry says
// otherwise.
func TestOwners(t *testing.T) {
	needRoot(t)
	ws := t.TempDir()
	write(t, ws, map[string]string{"mine": "", "d/mine": "", "other": "", "group": ""})
	for name, ids := range map[string][2]int{".": {1000, 1000}, "mine": {1000, 1000}, "d": {1000, 1000}, "d/mine": {1000, 1000}, "other": {7, 8}, "group": {1000, 8}} {
		require.NoError(t, os.Lchown(filepath.Join(ws, name), ids[0], ids[1]))
	}
	m := newMemory()
	got, err := captureAll(t, ws, m)
	require.NoError(t, err)
	require.Equal(t, []uint32{1000, 1000}, []uint32{got.Stat.UID, got.Stat.GID})
	all := m.entries(t, got)
	for _, name := range []string{"mine", "d", "d/mine"} {
		require.False(t, all[name].Owned, name)
	}
	require.Equal(t, []any{true, uint32(7), uint32(8)}, []any{all["other"].Owned, all["other"].UID, all["other"].GID})
	require.Equal(t, []any{true, uint32(1000), uint32(8)}, []any{all["group"].Owned, all["group"].UID, all["group"].GID})
}

// acl makes a POSIX ACL as the kernel has it: owner rw, the user 1234 rwx, the
// group r, a mask, nothing for others.
func acl(mask uint16) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{0x01, 6, 1<<32 - 1}, {0x02, 7, 1234}, {0x04, 4, 1<<32 - 1}, {0x10, mask, 1<<32 - 1}, {0x20, 0, 1<<32 - 1}} {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

// setXattr sets an attribute or skips where the file system has none.
func setXattr(t *testing.T, path, name string, value []byte) {
	t.Helper()
	if err := unix.Lsetxattr(path, name, value, 0); err != nil {
		t.Skipf("%s on %s: %v", name, path, err)
	}
}

func TestXattrs(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{"plain": "", "attr": "x", "same": "y", "acl": "z", "big": "b", "d/x": ""})
	long := []byte(strings.Repeat("v", 1000)) // longer than the first try reads
	for _, name := range []string{"attr", "same", "."} {
		setXattr(t, filepath.Join(ws, name), "user.b", []byte{0, 1, 255})
		setXattr(t, filepath.Join(ws, name), "user.a", nil)
	}
	setXattr(t, filepath.Join(ws, "big"), "user."+strings.Repeat("n", 200), long)
	setXattr(t, filepath.Join(ws, "big"), "user."+strings.Repeat("m", 200), long)
	setXattr(t, filepath.Join(ws, "acl"), tree.ACLAccess, acl(7))
	setXattr(t, filepath.Join(ws, "d"), tree.ACLDefault, acl(4))
	if os.Geteuid() == 0 { // not content
		setXattr(t, filepath.Join(ws, "plain"), "trusted.x", []byte("y"))
		setXattr(t, filepath.Join(ws, "plain"), "security.x", []byte("y"))
	}
	m := newMemory()
	got, err := captureAll(t, ws, m)
	require.NoError(t, err)
	all := m.entries(t, got)
	r := tree.NewReader(m, 0)
	set := func(e tree.Entry) []tree.XAttr {
		t.Helper()
		s, err := r.XAttrs(t.Context(), e.XAttrs)
		require.NoError(t, err)
		return s
	}
	require.True(t, all["plain"].XAttrs.IsZero())
	require.Equal(t, []tree.XAttr{{Name: "user.a", Value: []byte{}}, {Name: "user.b", Value: []byte{0, 1, 255}}}, set(all["attr"]))
	require.Equal(t, all["attr"].XAttrs, all["same"].XAttrs)
	require.Equal(t, all["attr"].XAttrs, got.Stat.XAttrs)
	require.Len(t, set(all["big"]), 2)
	require.Equal(t, long, set(all["big"])[1].Value)
	require.Equal(t, []tree.XAttr{{Name: tree.ACLAccess, Value: acl(7)}}, set(all["acl"]))
	require.Equal(t, uint32(0o670), all["acl"].Mode, "the group bits of a file with an ACL are its mask")
	require.Equal(t, []tree.XAttr{{Name: tree.ACLDefault, Value: acl(4)}}, set(all["d"]))
}
