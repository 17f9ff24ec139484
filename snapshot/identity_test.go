package snapshot

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/internal/soak"
	"github.com/snapfs/snapfs/policy"
)

// A grower makes random trees of everything that a disk can hold.
type grower struct {
	rt      *rapid.T
	outside string   // a directory beside the tree
	files   []string // that another name can be given to
	owner   int      // of everything
}

// intn draws a number below n.
func (g *grower) intn(n int, what string) int { return rapid.IntRange(0, n-1).Draw(g.rt, what) }

// name draws a name that fits beside others: any bytes, very long, twins in the two
// forms of Unicode, and what looks like something else.
func (g *grower) names() []string {
	odd := rapid.SampledFrom([]string{
		"-rf", "\n", "a\nb", " ", "...", ".hidden", "~", "\u00e9", "e\u0301", "\u212b", "\xff\xfe", "\xed\xa0\x80", "\x01", "\\", "*", "$(id)", "\u202e", "CON",
		strings.Repeat("n", 255), strings.Repeat("\u00e9", 127) + "x", strings.Repeat("\xff", 255),
	})
	any := rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOfN(rapid.Byte(), 1, 255).Draw(t, "bytes")) })
	plain := rapid.StringMatching(`[a-e]{1,2}`)
	all := rapid.SliceOfNDistinct(rapid.OneOf(plain, plain, odd, any), 0, 7, rapid.ID[string]).Draw(g.rt, "names")
	return slices.DeleteFunc(all, func(s string) bool { return s == "." || s == ".." || strings.ContainsAny(s, "/\x00") })
}

// grow fills a directory.
func (g *grower) grow(dir string, depth int) {
	for _, name := range g.names() {
		path := filepath.Join(dir, name)
		switch kind := g.intn(16, "kind"); {
		case kind < 4 && depth > 0:
			check(os.Mkdir(path, 0o700))
			g.grow(path, depth-1)
		case kind == 4:
			target := rapid.SampledFrom([]string{name, ".", "..", "/", "/etc/passwd", "no/where", "../outside", "\xff", strings.Repeat("t/", 2047)}).Draw(g.rt, "target")
			check(os.Symlink(target, path))
		case kind == 5:
			check(unix.Mkfifo(path, 0o644))
			continue
		case kind == 6:
			check(unix.Mknod(path, unix.S_IFSOCK|0o755, 0))
			continue
		case kind < 9 && len(g.files) > 0:
			check(os.Link(rapid.SampledFrom(g.files).Draw(g.rt, "other name"), path))
			continue // its metadata are those of the other name
		default:
			g.file(path)
			if g.intn(8, "outside") == 0 {
				check(os.Link(path, filepath.Join(g.outside, fmt.Sprint(len(g.files)))))
			}
			g.files = append(g.files, path)
		}
		g.decorate(path)
	}
	g.decorate(dir)
}

// file makes a file: mostly short, else around the longest blob that is one object, or
// with holes.
func (g *grower) file(path string) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	check(err)
	defer f.Close()
	noise := rand.NewChaCha8([32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(g.rt, "content")))
	bytes := func(n int) []byte {
		b := make([]byte, n)
		_, _ = noise.Read(b) // never fails
		return b
	}
	switch g.intn(12, "size") {
	case 0:
	case 1:
		_, err = f.Write(make([]byte, 1+g.intn(2, "zeros")*70_000))
	case 2:
		_, err = f.Write(bytes(1<<20 + g.intn(3, "border") - 1))
	case 3:
		for range 1 + g.intn(3, "stretches") {
			at := int64(g.intn(5<<20, "at"))
			if g.intn(2, "aligned") == 0 {
				at &^= 1<<16 - 1
			}
			if _, err = f.WriteAt(bytes(1+g.intn(200_000, "stretch")), at); err != nil {
				break
			}
		}
		if err == nil {
			var info os.FileInfo
			info, err = f.Stat()
			if err == nil {
				err = f.Truncate(info.Size() + int64(g.intn(2, "hole at the end")*(1+g.intn(3<<20, "hole"))))
			}
		}
	default:
		_, err = f.Write(bytes(1 + g.intn(300, "length")))
	}
	check(err)
}

// posixACL is an ACL as the kernel has it (linux/posix_acl_xattr.h), for a user and a
// group beside the three classes.
func (g *grower) posixACL() []byte {
	const nobody = 1<<32 - 1
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag uint16
		id  uint32
	}{{0x01, nobody}, {0x02, 1234}, {0x04, nobody}, {0x08, 4321}, {0x10, nobody}, {0x20, nobody}} {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, uint16(g.intn(8, "rights")))
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

// decorate gives an entry metadata.
func (g *grower) decorate(path string) {
	var st unix.Stat_t
	check(unix.Lstat(path, &st))
	if g.owner != 0 {
		check(os.Lchown(path, g.owner, g.owner))
	}
	attribute := func(name string, value []byte) {
		if err := unix.Lsetxattr(path, name, value, 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
			panic(err)
		}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		for range g.intn(6, "attributes") / 3 {
			attribute("user."+rapid.StringMatching(`[a-c\x80-\xff]{1,3}`).Draw(g.rt, "attribute"), rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(g.rt, "value"))
		}
		mode := uint32(g.intn(0o2000, "mode"))
		if g.intn(8, "setuid") == 0 {
			mode |= uint32(1+g.intn(3, "bits")) << 10
		}
		check(unix.Chmod(path, mode))
		if g.intn(6, "ACL") == 0 {
			attribute("system.posix_acl_access", g.posixACL())
		}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR && g.intn(6, "default ACL") == 0 {
			attribute("system.posix_acl_default", g.posixACL())
		}
	}
	ts := unix.Timespec{Sec: rapid.SampledFrom([]int64{-1, 0, -1 << 31, 1<<31 - 1, 1 << 31, 1 << 33, 1e9, 1.7e9}).Draw(g.rt, "seconds"), Nsec: rapid.Int64Range(0, 999_999_999).Draw(g.rt, "ns")}
	check(unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW))
}

// A sketch is one entry of a directory as the system's own calls show it. It shares no
// code with what saves and restores.
type sketch struct {
	mode   uint32
	mtime  unix.Timespec
	size   int64
	text   string // SHA-256 of the content, or a link's target
	attrs  string
	linked string // all names of the file below the directory
}

// portrait sketches a directory and all below it, by path; it is "".
func portrait(t require.TestingT, dir string) map[string]sketch {
	all := map[string]sketch{}
	inodes := map[uint64][]string{}
	var visit func(path string)
	visit = func(path string) {
		full := dir + "/" + path
		var st unix.Stat_t
		require.NoError(t, unix.Lstat(strings.TrimSuffix(full, "/"), &st))
		s := sketch{mode: st.Mode, mtime: st.Mtim}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			list, err := os.ReadDir(full)
			require.NoError(t, err)
			for _, e := range list {
				visit(strings.TrimPrefix(path+"/"+e.Name(), "/"))
			}
		case unix.S_IFLNK:
			target, err := os.Readlink(full)
			require.NoError(t, err)
			s.text = target
		case unix.S_IFREG:
			data, err := os.ReadFile(full)
			require.NoError(t, err)
			s.size, s.text = st.Size, fmt.Sprintf("%x", sha256.Sum256(data))
			inodes[st.Ino] = append(inodes[st.Ino], path)
		}
		list := make([]byte, 1<<16)
		n, err := unix.Llistxattr(strings.TrimSuffix(full, "/"), list)
		if err != nil {
			require.ErrorIs(t, err, unix.ENOTSUP)
			n = 0
		}
		var attrs []string
		for name := range strings.SplitSeq(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00") {
			if name == "" || strings.HasPrefix(name, "security.") {
				continue
			}
			value := make([]byte, 1<<16)
			n, err := unix.Lgetxattr(strings.TrimSuffix(full, "/"), name, value)
			require.NoError(t, err)
			attrs = append(attrs, fmt.Sprintf("%q=%x", name, value[:n]))
		}
		slices.Sort(attrs)
		s.attrs = strings.Join(attrs, " ")
		all[path] = s
	}
	visit("")
	for _, paths := range inodes {
		slices.Sort(paths)
		for _, path := range paths {
			s := all[path]
			s.linked = fmt.Sprintf("%q", paths)
			all[path] = s
		}
	}
	return all
}

// explained compares what was restored with what was saved: they are equal, but for
// what the checkpoint says that it left out, and that is just what differs.
func explained(t require.TestingT, want, got map[string]sketch, left []Omission) {
	why := map[string]string{}
	for _, o := range left {
		path := strings.TrimPrefix(o.Raw(), ".")
		if path != "" { // it is not the root
			path = o.Raw()
		}
		require.NotContains(t, why, path)
		why[path] = o.Why
	}
	for path, w := range want {
		g, there := got[path]
		switch kind := w.mode & unix.S_IFMT; {
		case kind == unix.S_IFIFO || kind == unix.S_IFSOCK:
			require.False(t, there, "%q", path)
			require.Contains(t, why, path)
		case w.mode&0o6000 != 0:
			require.Contains(t, why, path)
			w.mode &^= 0o6000
			require.Equal(t, w, g, "%q", path)
		default:
			require.NotContains(t, why, path)
			require.True(t, there, "%q is missing", path)
			require.Equal(t, w, g, "%q", path)
		}
		delete(why, path)
	}
	require.Empty(t, why, "left out, and not there")
	for path := range maps.Keys(got) {
		require.Contains(t, want, path)
	}
}

// TestIdentity: a random tree of all that a disk can hold comes back as it was, but for
// what the checkpoint says that it left out: for root and for an ordinary user. The
// second save is the first one's tree. SNAPFS_LARGE=1 tries thousands.
func TestIdentity(t *testing.T) {
	needRoot(t)
	soak.Checks(t, 30, 3000)
	top := userDir(t)
	t.Cleanup(func() { removable(top) })
	dir := filepath.Join(top, "store")
	require.NoError(t, Create(dir)) // the user's: what root puts into it stays readable
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, ordinary, ordinary))
	}))
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		here := filepath.Join(top, fmt.Sprint(n))
		ws, mine, theirs := filepath.Join(here, "ws"), filepath.Join(here, "mine"), filepath.Join(here, "theirs", "dir")
		defer func() { require.NoError(rt, os.RemoveAll(here)) }()
		for _, d := range []string{ws, filepath.Join(here, "outside"), filepath.Dir(theirs)} {
			check(os.MkdirAll(d, 0o755))
		}
		check(os.Chown(filepath.Dir(theirs), ordinary, ordinary))
		g := &grower{rt: rt, outside: filepath.Join(here, "outside"), owner: rapid.SampledFrom([]int{0, ordinary, 54321}).Draw(rt, "owner")}
		g.grow(ws, 3)
		want := portrait(rt, ws)

		s, err := Open(t.Context(), dir, Options{})
		require.NoError(rt, err)
		defer s.Close()
		everything := policy.FilesOptions{NoDefaults: true}
		first, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "T", Files: everything})
		require.NoError(rt, err)
		require.Equal(rt, want, portrait(rt, ws), "the workspace is as it was")
		cp, err := s.Show(t.Context(), first.Checkpoint.ID)
		require.NoError(rt, err)
		res, err := s.Restore(t.Context(), cp.ID, RestoreOptions{Dir: mine})
		require.NoError(rt, err)
		require.Empty(rt, res.Incomplete)
		explained(rt, want, portrait(rt, mine), cp.Omissions)
		second, err := s.Save(t.Context(), SaveOptions{Workspace: mine, Thread: "U", Files: everything})
		require.NoError(rt, err)
		require.Equal(rt, cp.Tree, second.Checkpoint.Tree)
		require.Zero(rt, second.Checkpoint.NewBytes)
		require.NoError(rt, s.Close())

		child := asUser(t, "restore", dir, cp.ID, theirs)
		require.Empty(rt, child.Err)
		explained(rt, want, portrait(rt, theirs), cp.Omissions)
		var st unix.Stat_t
		require.NoError(rt, unix.Lstat(theirs, &st))
		require.EqualValues(rt, ordinary, st.Uid)
	})
	s, err := Open(t.Context(), dir, Options{})
	require.NoError(t, err)
	defer s.Close()
	require.Empty(t, faults(t, s))
}
