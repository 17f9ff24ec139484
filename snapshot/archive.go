package snapshot

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/tree"
)

// ErrBadArchive: an archive that cannot be imported. It is not whole, or damaged, or has
// what no checkpoint can.
var ErrBadArchive = errors.New("the archive is refused")

// An ArchiveFormat says how an archive is packed.
type ArchiveFormat string

// The formats of [Store.Export].
const (
	Tar     ArchiveFormat = "tar"
	TarZstd ArchiveFormat = "tar.zst"
)

// ParseArchiveFormat reads "tar" or "tar.zst".
func ParseArchiveFormat(s string) (ArchiveFormat, error) {
	switch f := ArchiveFormat(s); f {
	case Tar, TarZstd:
		return f, nil
	}
	return "", fmt.Errorf("%s: want tar or tar.zst", quoted(s))
}

// An archive of ours begins with a global header of this name, of which the comment is
// archiveMark, the version, and the hash of the record with a space between them. The name
// stands in a block with a checksum: where it is there, a damaged comment is told from one
// of somebody else's.
const (
	archiveHeader  = "snapfs_archive"
	archiveMark    = "snapfs archive "
	archiveVersion = "1"
	paxComment     = "comment"
)

// The names at the top of an archive of ours. What lies in recordFolder comes first.
const (
	recordFolder    = "record"
	checkpointName  = "checkpoint.json"
	filesFolder     = "files"
	artifactsFolder = "artifacts"

	recordName    = recordFolder + "/checkpoint.cbor"
	policyPart    = recordFolder + "/policy.txt"
	omissionsPart = recordFolder + "/omissions.cbor"
	secretsPart   = recordFolder + "/secrets.cbor"
	artifactsPart = recordFolder + "/artifacts.cbor"
)

// The PAX records of entries of ours that other programs do not know.
const (
	paxFlags   = "SNAPFS.flags"  // redacted, torn, or both with a comma between them
	paxOwned   = "SNAPFS.owned"  // 1: the entry names the default owner as its own
	paxMode    = "SNAPFS.mode"   // octal, of an entry whose group bits are the mask of an ACL
	paxMtime   = "SNAPFS.mtime"  // seconds of a time that the library takes for none
	paxCharset = "hdrcharset"    // BINARY: names are not UTF-8
	paxXAttr   = "SCHILY.xattr." // and the name of an attribute
)

// paxACLs are the records of POSIX ACLs as texts, which GNU tar and libarchive read.
var paxACLs = map[string]string{tree.ACLAccess: "SCHILY.acl.access", tree.ACLDefault: "SCHILY.acl.default"}

// xattrName spells an attribute's name as GNU tar does, which may not have the sign
// that ends the name of a PAX record.
var xattrName, xattrRaw = strings.NewReplacer("%", "%25", "=", "%3D"), strings.NewReplacer("%25", "%", "%3D", "=")

// recordParts are the lists and texts that a record names, as they lie in an archive.
var recordParts = []struct {
	name string
	most int64 // in bytes
	blob func(r *index.Record) *index.Blob
}{
	{policyPart, maxPolicy, func(r *index.Record) *index.Blob { return &r.Policy }},
	{omissionsPart, maxList, func(r *index.Record) *index.Blob { return &r.Omissions }},
	{secretsPart, maxList, func(r *index.Record) *index.Blob { return &r.Secrets }},
	{artifactsPart, maxList, func(r *index.Record) *index.Blob { return &r.Artifacts }},
}

// casBlob is the blob that a record names.
func casBlob(b index.Blob) cas.Blob { return cas.Blob{Hash: b.Hash, Size: int64(b.Size)} }

// checkRoom fails with [cas.ErrNoSpace] when the store's disk is nearly full.
func (s *Store) checkRoom(ctx context.Context) error {
	if s.dir == "" {
		return ctx.Err()
	}
	return errors.Join(ctx.Err(), local.CheckSpace(s.dir))
}
