package snapshot

import (
	"archive/tar"
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/tree"
)

// withRecord is an entry with a PAX record.
func withRecord(e tarEntry, key, value string) tarEntry {
	e.PAXRecords = map[string]string{key: value}
	return e
}

// TestImportUnsettable: attributes that nothing of their kind can have are left out, and a
// restore is complete without them.
func TestImportUnsettable(t *testing.T) {
	s := quickStore(t)
	const access, standard = "SCHILY.xattr." + tree.ACLAccess, "SCHILY.xattr." + tree.ACLDefault
	wide := tarFile("wide", "")
	wide.Mode = 0o674
	root := withRecord(tarDir("./"), access, "junk")
	both := withRecord(tarFile("both", ""), access, "\x02\x00\x00\x00")
	both.PAXRecords[standard], both.PAXRecords["SCHILY.xattr.user.a"] = "x", "kept"
	const acl = "\x02\x00\x00\x00\x01\x00\x06\x00\xff\xff\xff\xff\x04\x00\x05\x00\xff\xff\xff\xff\x20\x00\x04\x00\xff\xff\xff\xff"
	data := tarOf(t, root, withRecord(wide, access, "junk"), both, withRecord(tarLink(tar.TypeSymlink, "l", "x"), "SCHILY.xattr.user.a", "b"),
		withRecord(tarFile("f", ""), standard, acl), withRecord(tarDir("d"), standard, acl), withRecord(tarLink(tar.TypeFifo, "p", ""), access, "junk"))
	res, err := s.Import(t.Context(), bytes.NewReader(data), ImportOptions{Thread: "t"})
	require.NoError(t, err)
	require.Equal(t, []int{6, 1}, []int{res.Attributes, res.Special})
	cp, err := s.Show(t.Context(), res.Checkpoint.ID)
	require.NoError(t, err)
	require.Equal(t, []Omission{
		{NewPath("."), "attribute system.posix_acl_access: it is no ACL"},
		{NewPath("both"), "attribute system.posix_acl_access: it is no ACL"},
		{NewPath("both"), "attribute system.posix_acl_default: only a directory can have one"},
		{NewPath("f"), "attribute system.posix_acl_default: only a directory can have one"},
		{NewPath("l"), "attribute user.a: no symlink can have one"},
		{NewPath("p"), "fifo"},
		{NewPath("wide"), "attribute system.posix_acl_access: it is no ACL"},
	}, cp.Omissions)
	require.Contains(t, entriesAt(t, s, cp.ID)["wide"], "file 604 ")
	rec, err := s.Record(t.Context(), cp)
	require.NoError(t, err)
	require.Equal(t, uint64(2), rec.Totals.XAttrs, "those of both and d")
	got, err := s.Restore(t.Context(), cp.ID, RestoreOptions{Dir: filepath.Join(t.TempDir(), "out")})
	require.NoError(t, err)
	require.Empty(t, got.Incomplete)
}

// deepFiles are files below directories of their own that the archive does not have.
func deepFiles(files, dirs int) []tarEntry {
	var all []tarEntry
	for n := range files {
		all = append(all, tarFile(fmt.Sprintf("%05d/%sf", n, strings.Repeat("a/", dirs-1)), ""))
	}
	return all
}

// TestImportMissingDirectories: those that programs leave out are made, also of the
// longest name that there can be.
func TestImportMissingDirectories(t *testing.T) {
	s := quickStore(t)
	for dirs, files := range map[int]int{2044: 2, 64: 100, 10: 2000} {
		res, err := s.Import(t.Context(), bytes.NewReader(tarOf(t, deepFiles(files, dirs)...)), ImportOptions{Thread: "t"})
		require.NoError(t, err)
		require.Equal(t, uint64(dirs*files), res.Checkpoint.Dirs)
	}
}
