package snapshot

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// Small files are packed in groups: so many entries, or so many bytes. A file that is
// longer than that is written piece by piece.
const (
	exportEntries = 128
	exportBytes   = 1 << 20
	exportAhead   = 8 // groups between the walk and the writer
)

func exportWorkers() int { return runtime.GOMAXPROCS(0) }

// exported is an entry of the tree on its way into the archive.
type exported struct {
	path string // below the workspace; "": its root
	tree.Entry
	link string // another path with the same content, which is written before; "": none
}

// content is a file's blob.
func (f exported) content() cas.Blob { return cas.Blob{Hash: f.Hash, Size: int64(f.Size)} }

// exportBatch is entries that follow one another in the archive.
type exportBatch struct {
	entries []exported
	bytes   int64 // of contents
	large   bool  // one file that is not packed
	done    chan struct{}
	packed  bytes.Buffer // once done is closed
	err     error
}

// exportWalk gathers entries in order.
type exportWalk struct {
	ctx   context.Context
	links *exportLinks
	queue chan<- *exportBatch // in order
	work  chan<- *exportBatch // to be packed
	batch *exportBatch
}

// add takes the next entry.
func (w *exportWalk) add(path string, e tree.Entry) error {
	e.Name, e.Target = "", strings.Clone(e.Target)
	f := exported{path: path, Entry: e}
	var err error
	if f.link, err = w.links.of(f); err != nil {
		return err
	}
	size := int64(0)
	if e.Kind == tree.File && f.link == "" {
		size = int64(e.Size)
	}
	if size > exportBytes {
		if err := w.flush(); err != nil {
			return err
		}
		w.batch = &exportBatch{entries: []exported{f}, bytes: size, large: true}
		return w.flush()
	}
	if w.batch != nil && w.batch.bytes+size > exportBytes {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if w.batch == nil {
		w.batch = &exportBatch{}
	}
	w.batch.entries, w.batch.bytes = append(w.batch.entries, f), w.batch.bytes+size
	if len(w.batch.entries) == exportEntries {
		return w.flush()
	}
	return nil
}

// flush hands over what was gathered.
func (w *exportWalk) flush() error {
	b := w.batch
	if b == nil {
		return nil
	}
	w.batch, b.done = nil, make(chan struct{})
	for _, to := range []chan<- *exportBatch{w.queue, w.work} {
		select {
		case to <- b:
		case <-w.ctx.Done():
			return w.ctx.Err()
		}
	}
	return nil
}

// pack makes the bytes of a batch.
func (e *exporter) pack(ctx context.Context, b *exportBatch) error {
	if b.large {
		return nil
	}
	b.packed.Grow(int(b.bytes) + len(b.entries)*4*512)
	tw := tar.NewWriter(&b.packed)
	var content []byte
	for _, f := range b.entries {
		hdr, err := e.header(ctx, f)
		if err == nil {
			err = tw.WriteHeader(hdr)
		}
		if err == nil && hdr.Size > 0 {
			content, err = e.blobs.Read(ctx, cas.Key{NS: cas.Files, Hash: f.Hash}, content[:0])
			if err == nil && int64(len(content)) != hdr.Size {
				err = fmt.Errorf("object of %d bytes where %d were expected: %w", len(content), hdr.Size, cas.ErrCorrupt)
			}
			if err == nil {
				_, err = tw.Write(content)
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", quoted(f.path), err)
		}
	}
	return tw.Flush()
}

// header describes an entry. It depends on the entry and the default owner alone.
func (e *exporter) header(ctx context.Context, f exported) (*tar.Header, error) {
	hdr := &tar.Header{Name: filesFolder + "/" + f.path, Mode: int64(f.Mode), Uid: int(e.rec.Root.UID), Gid: int(e.rec.Root.GID), Format: tar.FormatPAX, PAXRecords: map[string]string{}}
	switch {
	case f.Kind == tree.Dir:
		hdr.Typeflag = tar.TypeDir
		if f.path != "" {
			hdr.Name += "/"
		}
	case f.Kind == tree.Symlink:
		hdr.Typeflag, hdr.Linkname = tar.TypeSymlink, f.Target
	case f.link != "":
		hdr.Typeflag, hdr.Linkname = tar.TypeLink, filesFolder+"/"+f.link
	default:
		hdr.Typeflag, hdr.Size = tar.TypeReg, int64(f.Size)
	}
	if f.Owned {
		if hdr.Uid == int(f.UID) && hdr.Gid == int(f.GID) {
			hdr.PAXRecords[paxOwned] = "1"
		}
		hdr.Uid, hdr.Gid = int(f.UID), int(f.GID)
	}
	setTime(hdr, f.MtimeSec, int64(f.MtimeNsec))
	if !utf8.ValidString(hdr.Name) || !utf8.ValidString(hdr.Linkname) {
		hdr.PAXRecords[paxCharset] = "BINARY"
	}
	if f.Flags != 0 {
		hdr.PAXRecords[paxFlags] = flagNames(f.Flags)
	}
	if !f.XAttrs.IsZero() {
		set, err := e.trees.XAttrs(ctx, f.XAttrs)
		if err != nil {
			return nil, err
		}
		size := 0
		for _, x := range set {
			hdr.PAXRecords[paxXAttr+xattrName.Replace(x.Name)] = string(x.Value)
			size += len(x.Name) + len(x.Value)
			if text, err := tree.ACLText(x.Value); paxACLs[x.Name] != "" && err == nil {
				hdr.PAXRecords[paxACLs[x.Name]] = text
				size += len(text)
			}
			if x.Name == tree.ACLAccess {
				hideMask(hdr, f.Mode, x.Value)
			}
		}
		if size > maxExportedXAttrs {
			return nil, fmt.Errorf("extended attributes of %d bytes, an archive can have %d: %w", size, maxExportedXAttrs, cas.ErrTooLarge)
		}
	}
	return hdr, nil
}

// hideMask gives an entry with an ACL a mode for programs that do not restore that: with
// the rights of the owning group, and not the mask of all groups.
func hideMask(hdr *tar.Header, mode uint32, acl []byte) {
	if narrow := tree.NarrowMode(mode, acl); narrow != mode {
		hdr.Mode = int64(narrow)
		hdr.PAXRecords[paxMode] = strconv.FormatUint(uint64(mode), 8)
	}
}

// maxExportedXAttrs bounds an entry's attributes in an archive, in bytes: Go's own reader
// and others take no more than 1 MiB of PAX records.
const maxExportedXAttrs = 1<<20 - 64<<10

// setTime gives a header a time.
func setTime(hdr *tar.Header, sec, nsec int64) {
	hdr.ModTime = time.Unix(sec, nsec)
	if hdr.ModTime.IsZero() {
		hdr.PAXRecords[paxMtime] = strconv.FormatInt(sec, 10)
	}
}

// flagNames are the names of flags.
func flagNames(flags tree.Flags) string {
	var names []string
	for _, f := range archiveFlags {
		if flags&f.flag != 0 {
			names = append(names, f.name)
		}
	}
	return strings.Join(names, ",")
}

// parseFlags is the inverse of flagNames.
func parseFlags(text string) (flags tree.Flags, ok bool) {
	for _, f := range archiveFlags {
		for name := range strings.SplitSeq(text, ",") {
			if name == f.name {
				flags |= f.flag
			}
		}
	}
	return flags, flagNames(flags) == text
}

// archiveFlags are never written to.
var archiveFlags = []struct {
	flag tree.Flags
	name string
}{{tree.Redacted, "redacted"}, {tree.Torn, "torn"}}

// exportLinks knows which paths are names of one file. The first one of each group that
// the walk meets has the content.
type exportLinks struct {
	group map[string]int
	first []exported // by group; no path: none was met yet
}

// readLinks loads the hard links of a checkpoint.
func (e *exporter) readLinks(ctx context.Context) (*exportLinks, error) {
	groups, err := e.linkGroups(ctx, e.rec)
	if err != nil {
		return nil, err
	}
	l := &exportLinks{group: map[string]int{}, first: make([]exported, len(groups))}
	for i, group := range groups {
		for _, path := range group {
			l.group[path] = i
		}
	}
	return l, nil
}

// of returns the path that has the content of an entry; "": it has it itself.
func (l *exportLinks) of(f exported) (string, error) {
	i, ok := l.group[f.path]
	if !ok || f.path == "" {
		return "", nil
	}
	first := &l.first[i]
	switch {
	case f.Kind != tree.File:
		return "", fmt.Errorf("%s: a %s among the hard links: %w", quoted(f.path), f.Kind, cas.ErrCorrupt)
	case first.path == "":
		*first = f
		return "", nil
	case first.Entry != f.Entry:
		return "", fmt.Errorf("%s: differs from another hard link of the same file: %w", quoted(f.path), cas.ErrCorrupt)
	}
	return first.path, nil
}
