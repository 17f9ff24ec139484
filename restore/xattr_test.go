package restore

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/tree"
)

// xattr returns an attribute; nil when the file has none of that name.
func xattr(t *testing.T, path, name string) []byte {
	t.Helper()
	buf := make([]byte, 1<<16)
	n, err := unix.Lgetxattr(path, name, buf)
	if err == unix.ENODATA {
		return nil
	}
	require.NoError(t, err)
	return buf[:n]
}

// needACL skips where the file system has no ACLs.
func needACL(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Setxattr(dir, tree.ACLDefault, acl(2, 7, 7, 7), 0); err != nil {
		t.Skipf("no ACLs in %s: %v", dir, err)
	}
	require.NoError(t, unix.Removexattr(dir, tree.ACLDefault))
}

func TestXattrs(t *testing.T) {
	needACL(t, t.TempDir())
	m := newMemory()
	user := tree.XAttr{Name: "user.any", Value: []byte("a\x00\xff")}
	access := tree.XAttr{Name: tree.ACLAccess, Value: acl(2, 7, 4, 6)}
	def := tree.XAttr{Name: tree.ACLDefault, Value: acl(2, 5, 4, 7)}
	file, ro, sub := m.file(t, 0o660, "x"), m.file(t, 0o444, "y"), m.sub(t, 0o770, dir{"in": "z", "d": dir{}})
	file.XAttrs, ro.XAttrs, sub.XAttrs = m.xattrs(t, user, access), m.xattrs(t, user), m.xattrs(t, user, def)
	src := m.source(t, dir{"file": file, "ro": ro, "sub": sub, "plain": "p"})
	src.Stat.XAttrs, src.Stat.Mode = m.xattrs(t, user, def), 0o750
	for _, target := range []string{t.TempDir(), filepath.Join(t.TempDir(), "new")} {
		res, err := m.restore(t, src, target)
		require.NoError(t, err)
		require.Empty(t, res.Incomplete)
		for path, want := range map[string][]tree.XAttr{
			".": {user, def}, "file": {user, access}, "ro": {user}, "sub": {user, def}, "plain": nil, "sub/in": nil, "sub/d": nil,
		} {
			for _, name := range []string{user.Name, access.Name, def.Name} {
				var value []byte
				for _, x := range want {
					if x.Name == name {
						value = x.Value
					}
				}
				require.Equal(t, value, xattr(t, filepath.Join(target, path), name), "%s of %s", name, path)
			}
		}
		require.Equal(t, uint32(0o660), stat(t, filepath.Join(target, "file")).Mode&0o777)
		require.Equal(t, uint32(0o770), stat(t, filepath.Join(target, "sub")).Mode&0o777)
		require.Equal(t, uint32(0o750), stat(t, target).Mode&0o777)
	}
}

// TestACLThatCannotBeSet: the group bits of a file with an ACL are its mask. Where
// the ACL cannot be, they become the group's own entry, and it is said.
func TestACLThatCannotBeSet(t *testing.T) {
	needACL(t, t.TempDir())
	tests := map[string]struct {
		acl  []byte
		mode uint32 // saved
		want uint32
	}{
		"mask wider than group": {acl(9, 7, 4, 7), 0o670, 0o640},
		"group is nothing":      {acl(9, 7, 0, 7), 0o775, 0o705},
		"group wider than mask": {acl(9, 7, 7, 4), 0o644, 0o644},
		"no group":              {acl(9, 7, 7, 7)[:4], 0o670, 0o600},
		"cut":                   {acl(9, 7, 7, 7)[:6], 0o670, 0o600},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			hash := m.xattrs(t, tree.XAttr{Name: tree.ACLAccess, Value: test.acl}, tree.XAttr{Name: "user.x", Value: []byte("1")})
			const enter = 0o100
			file, sub := m.file(t, test.mode, "x"), m.sub(t, test.mode|enter, dir{})
			file.XAttrs, sub.XAttrs = hash, hash
			src := m.source(t, dir{"d": dir{"file": file, "sub": sub}})
			src.Stat.XAttrs, src.Stat.Mode = hash, test.mode|enter
			target := filepath.Join(t.TempDir(), "target")
			res, err := m.restore(t, src, target)
			require.NoError(t, err)
			var paths []string
			for _, p := range res.Incomplete {
				require.ErrorContains(t, p.Err, tree.ACLAccess)
				paths = append(paths, p.Path)
			}
			require.ElementsMatch(t, []string{".", "d/file", "d/sub"}, paths)
			for _, path := range []string{".", "d/file", "d/sub"} {
				want := test.want
				if path != "d/file" {
					want |= enter
				}
				require.Equal(t, want, stat(t, filepath.Join(target, path)).Mode&0o7777, path)
				require.NotNil(t, xattr(t, filepath.Join(target, path), "user.x"))
			}
		})
	}
}

// TestNothingIsInherited: a default ACL and a setgid bit around the target give
// nobody rights on what is restored.
func TestNothingIsInherited(t *testing.T) {
	top := t.TempDir()
	needACL(t, top)
	m := newMemory()
	src := m.source(t, dir{"f": m.file(t, 0o664, "x"), "d": dir{"in": "y"}})
	around := acl(2, 7, 7, 7)
	require.NoError(t, unix.Setxattr(top, tree.ACLDefault, around, 0))
	require.NoError(t, unix.Chmod(top, 0o2755))
	existing := filepath.Join(top, "existing")
	require.NoError(t, os.Mkdir(existing, 0o777))
	require.NoError(t, os.Chmod(existing, 0o777)) // the ACL lets its owner not in
	require.NotNil(t, xattr(t, existing, tree.ACLAccess))
	require.NotNil(t, xattr(t, existing, tree.ACLDefault))

	m.onRead = failContent(unix.EIO)
	_, err := m.restore(t, src, existing)
	require.ErrorIs(t, err, unix.EIO)
	require.Equal(t, around, xattr(t, existing, tree.ACLDefault), "a failure puts it back")
	require.NotNil(t, xattr(t, existing, tree.ACLAccess))
	m.onRead = nil

	for _, target := range []string{existing, filepath.Join(top, "new")} {
		_, err := m.restore(t, src, target)
		require.NoError(t, err)
		for path, mode := range map[string]uint32{".": 0o751, "f": 0o664, "d": 0o755, "d/in": 0o644} {
			require.Nil(t, xattr(t, filepath.Join(target, path), tree.ACLAccess), path)
			require.Nil(t, xattr(t, filepath.Join(target, path), tree.ACLDefault), path)
			require.Equal(t, mode, stat(t, filepath.Join(target, path)).Mode&0o7777, path)
		}
	}
}
