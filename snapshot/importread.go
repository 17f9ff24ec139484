package snapshot

import (
	"archive/tar"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/tree"
)

// Small files are stored in groups: so many, or so many bytes together.
const (
	importFiles = 128
	importBytes = cas.ChunkedSize
)

// maxSparse is the longest sparse file without a limit of the caller's, in bytes: a few
// bytes in an archive can stand for any number of zeros.
const maxSparse = 1 << 40

// importBatch is small files on their way into the store.
type importBatch struct {
	buf   []byte
	files []importedFile
}

// importedFile is a file with its content in the batch.
type importedFile struct {
	imported
	off, end int
}

// readAll reads the archive to its end.
func (i *importer) readAll(r io.Reader) (err error) {
	i.packing, err = openArchive(r)
	defer i.packing.close()
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(i.ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	err = i.read(func(b *importBatch) error {
		group.Go(func() error { return i.storeBatch(b) })
		return ctx.Err()
	})
	if gerr := group.Wait(); gerr != nil { // which may be why the other one is there
		return gerr
	}
	return err
}

// read takes entry by entry. Full batches go to store.
func (i *importer) read(store func(*importBatch) error) error {
	last := ""
	for first := true; ; first = false {
		if err := i.ctx.Err(); err != nil {
			return err
		}
		hdr, err := i.packing.next()
		if err == io.EOF {
			break
		}
		if err != nil && last != "" && errors.Is(err, ErrBadArchive) {
			return WithHint(fmt.Errorf("behind entry %s: %w", quoted(last), err), "%s", Hint(err))
		}
		if err != nil {
			return err
		}
		last = hdr.Name
		if first && hdr.Typeflag == tar.TypeXGlobalHeader {
			if i.own, err = newOwnArchive(hdr); err != nil {
				return err
			}
		}
		if err := i.entry(hdr); err != nil {
			return err
		}
		if b := i.batch; b != nil && len(b.files) == importFiles {
			i.batch = nil
			if err := store(b); err != nil {
				return err
			}
		}
		for _, b := range i.full {
			if err := store(b); err != nil {
				return err
			}
		}
		i.full = i.full[:0]
	}
	if i.batch == nil {
		return nil
	}
	return store(i.batch)
}

// storeBatch stores small files.
func (i *importer) storeBatch(b *importBatch) error {
	objs := make([]cas.Object, len(b.files))
	for n, f := range b.files {
		objs[n] = cas.NewObject(cas.Files, cas.Data, b.buf[f.off:f.end])
	}
	if err := i.w.Put(i.ctx, objs...); err != nil {
		return err
	}
	for n := range b.files {
		f := &b.files[n]
		f.Hash = objs[n].Key.Hash
		if err := i.entries.add(&f.imported); err != nil {
			return err
		}
		i.meter.Add(1, int64(f.Size))
	}
	return nil
}

// cleanName is a name as a path below the root, "" for the root itself.
func cleanName(name string) (string, error) {
	if name == "" {
		return "", badEntry(name, "its name is empty")
	}
	if name[0] == '/' {
		return "", badEntry(name, "its name is absolute")
	}
	if strings.IndexByte(name, 0) >= 0 {
		return "", badEntry(name, "its name contains a NUL byte")
	}
	parts := make([]string, 0, 16)
	for part := range strings.SplitSeq(name, "/") {
		switch part {
		case "", ".":
		case "..":
			return "", badEntry(name, "its name leads out with ..")
		default:
			parts = append(parts, part)
		}
	}
	path := strings.Join(parts, "/")
	if path == "" {
		return "", nil
	}
	if err := tree.CheckPath(path); err != nil {
		return "", badEntry(shortened(name), "%v", err)
	}
	return path, nil
}

// shortened cuts what is too long to be shown.
func shortened(name string) string {
	if len(name) > 64 {
		return name[:64] + "..."
	}
	return name
}

// special are the kinds of entries that no checkpoint has.
var special = map[byte]string{tar.TypeChar: "character device", tar.TypeBlock: "block device", tar.TypeFifo: "fifo"}

// entry takes one entry.
func (i *importer) entry(hdr *tar.Header) error {
	const volume = 'V' // of GNU tar, a label
	switch hdr.Typeflag {
	case tar.TypeXGlobalHeader:
		return nil
	case volume:
		if hdr.Size > 0 {
			return badEntry(hdr.Name, "a volume label with a content")
		}
		return nil
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont:
		if strings.HasSuffix(hdr.Name, "/") && hdr.Size == 0 { // as old programs write directories
			hdr.Typeflag = tar.TypeDir
		} else {
			hdr.Typeflag = tar.TypeReg
		}
	}
	path, err := cleanName(hdr.Name)
	if err != nil {
		return err
	}
	if i.own != nil {
		var in bool
		if path, in, err = i.member(hdr, path); err != nil || !in {
			return err
		}
	}
	i.seq++
	e := imported{key: keyOf(path), seq: i.seq}
	if err := i.describeEntry(&e, hdr, path); err != nil {
		return err
	}
	if path == "" {
		if hdr.Typeflag != tar.TypeDir {
			return badEntry(hdr.Name, "the root is no directory")
		}
		i.root, i.rooted = e.Entry, true
		return nil
	}
	switch hdr.Typeflag {
	case tar.TypeReg:
		return i.file(hdr, &e)
	case tar.TypeLink:
		return i.hardLink(hdr, e)
	case tar.TypeSymlink:
		i.meter.Add(1, 0)
		return i.entries.add(&e)
	case tar.TypeDir:
		return i.entries.add(&e)
	}
	why, ok := special[hdr.Typeflag]
	if !ok || i.own != nil {
		return badEntry(hdr.Name, "a kind of entry that is not known: %q", hdr.Typeflag)
	}
	e.skipped, e.Kind = true, tree.File
	if err := i.omit(&i.special, path, why); err != nil {
		return err
	}
	return i.entries.add(&e)
}

// describeEntry takes an entry's metadata from its header.
func (i *importer) describeEntry(e *imported, hdr *tar.Header, path string) error {
	const droppedBits = 0o6000
	if hdr.Uid < 0 || hdr.Gid < 0 || int64(hdr.Uid) >= math.MaxUint32 || int64(hdr.Gid) >= math.MaxUint32 {
		return badEntry(hdr.Name, "its owner %d:%d is none", hdr.Uid, hdr.Gid)
	}
	e.UID, e.GID, e.Mode = uint32(hdr.Uid), uint32(hdr.Gid), uint32(hdr.Mode&tree.MaxMode)
	if len(i.owners) < maxOwners || i.owners[owner{e.UID, e.GID}] > 0 {
		i.owners[owner{e.UID, e.GID}]++
	}
	if hdr.Mode&droppedBits != 0 && hdr.Typeflag != tar.TypeLink && hdr.Typeflag != tar.TypeSymlink && special[hdr.Typeflag] == "" {
		if err := i.omit(&i.setuid, cmp.Or(path, "."), "setuid and setgid bits dropped"); err != nil {
			return err
		}
	}
	e.MtimeSec, e.MtimeNsec = hdr.ModTime.Unix(), uint32(hdr.ModTime.Nanosecond())
	switch hdr.Typeflag {
	case tar.TypeDir:
		e.Kind = tree.Dir
	case tar.TypeSymlink:
		e.Kind, e.Target, e.Size = tree.Symlink, hdr.Linkname, uint64(len(hdr.Linkname))
		if i.own == nil {
			e.Mode = 0o777 // as a save has it
		}
		if e.Target == "" || len(e.Target) > tree.MaxTarget || strings.IndexByte(e.Target, 0) >= 0 {
			return badEntry(hdr.Name, "a symlink with a target of %d bytes", len(e.Target))
		}
	default:
		e.Kind = tree.File
	}
	if i.own != nil {
		if err := e.ownRecords(hdr); err != nil {
			return err
		}
	}
	narrow(e, hdr)
	return i.xattrs(e, hdr, path)
}

// narrow takes rights away that only an ACL as text gives, which is not kept: the group's
// bits are its mask then, and become what the owning group has, never wider.
func narrow(e *imported, hdr *tar.Header) {
	_, kept := hdr.PAXRecords[paxXAttr+tree.ACLAccess]
	acl, ok := hdr.PAXRecords[paxACLs[tree.ACLAccess]]
	if !ok || kept || e.Kind == tree.Symlink {
		return
	}
	for _, entry := range strings.FieldsFunc(acl, func(r rune) bool { return r == ',' || r == '\n' }) {
		rights, ok := strings.CutPrefix(strings.TrimSpace(entry), "group::")
		if !ok {
			continue
		}
		group := uint32(0)
		for bit, letter := range []string{"x", "w", "r"} {
			if rights, _, _ := strings.Cut(rights, ":"); strings.Contains(rights, letter) {
				group |= 1 << bit
			}
		}
		e.Mode &= ^uint32(0o070) | group<<3
	}
}

// ownRecords takes what an archive of ours says of an entry beside what others say.
func (e *imported) ownRecords(hdr *tar.Header) error {
	e.owned = hdr.PAXRecords[paxOwned] == "1"
	if text, ok := hdr.PAXRecords[paxFlags]; ok {
		if e.Flags, ok = parseFlags(text); !ok || e.Kind != tree.File {
			return altered("%s: flags %s", quoted(hdr.Name), quoted(text))
		}
	}
	if text, ok := hdr.PAXRecords[paxMode]; ok {
		mode, err := strconv.ParseUint(text, 8, 32)
		if err != nil || mode > tree.MaxMode {
			return altered("%s: mode %s", quoted(hdr.Name), quoted(text))
		}
		e.Mode = uint32(mode)
	}
	if text, ok := hdr.PAXRecords[paxMtime]; ok {
		sec, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return altered("%s: time %s", quoted(hdr.Name), quoted(text))
		}
		e.MtimeSec, e.MtimeNsec = sec, 0
	}
	return nil
}

// xattrs stores the attributes that are content.
func (i *importer) xattrs(e *imported, hdr *tar.Header, path string) error {
	if hdr.Typeflag == tar.TypeLink || special[hdr.Typeflag] != "" {
		return nil
	}
	var set []tree.XAttr
	for _, key := range slices.Sorted(maps.Keys(hdr.PAXRecords)) {
		name, ok := strings.CutPrefix(key, paxXAttr)
		if !ok {
			continue
		}
		if name = xattrRaw.Replace(name); tree.CheckXAttrName(name) != nil {
			continue // security labels and the like, which a save does not take either
		}
		x := tree.XAttr{Name: name, Value: []byte(hdr.PAXRecords[key])}
		why := unsettable(e.Kind, x)
		if why == "" {
			set = append(set, x)
			continue
		}
		if i.own != nil {
			return altered("%s: attribute %s: %s", quoted(hdr.Name), quoted(name), why)
		}
		if name == tree.ACLAccess && e.Kind != tree.Symlink {
			e.Mode = tree.NarrowMode(e.Mode, x.Value)
		}
		if err := i.omit(&i.attributes, cmp.Or(path, "."), "attribute "+quoted(name)+": "+why); err != nil {
			return err
		}
	}
	if len(set) == 0 {
		return nil
	}
	obj, err := tree.EncodeXAttrs(set)
	if err != nil {
		return badEntry(hdr.Name, "%v", err)
	}
	e.XAttrs = obj.Key.Hash
	return i.w.Put(i.ctx, obj)
}

// unsettable says why no entry of a kind can have an attribute; "": it can.
func unsettable(kind tree.Kind, x tree.XAttr) string {
	acl := x.Name == tree.ACLAccess || x.Name == tree.ACLDefault
	switch {
	case kind == tree.Symlink:
		return "no symlink can have one"
	case x.Name == tree.ACLDefault && kind != tree.Dir:
		return "only a directory can have one"
	case acl:
		if _, err := tree.ACLText(x.Value); err != nil {
			return "it is no ACL"
		}
	}
	return ""
}

// grow counts an entry's content.
func (i *importer) grow(hdr *tar.Header) error {
	limit := i.opt.MaxSize
	if limit > 0 && hdr.Size > limit-i.size {
		err := fmt.Errorf("entry %s: its contents have more than the limit of %d bytes: %w", quoted(hdr.Name), limit, cas.ErrTooLarge)
		return WithHint(err, "--max-size raises the limit")
	}
	i.size += hdr.Size
	if i.size < 0 {
		return fmt.Errorf("entry %s: %w", quoted(hdr.Name), cas.ErrTooLarge)
	}
	return nil
}

// contentError is what an error of reading an entry's content says.
func (i *importer) contentError(name string, err error) error {
	if err = i.packing.fault(err); errors.Is(err, ErrBadArchive) {
		return WithHint(fmt.Errorf("entry %s: %w", quoted(name), err), "%s", Hint(err))
	}
	return err
}

// file takes a file's content.
func (i *importer) file(hdr *tar.Header, e *imported) error {
	if i.opt.MaxSize == 0 && hdr.Size > maxSparse && sparse(hdr) {
		return WithHint(fmt.Errorf("entry %s: a sparse file of %d bytes: %w", quoted(hdr.Name), hdr.Size, cas.ErrTooLarge), "--max-size %d takes it", hdr.Size)
	}
	e.Size = uint64(hdr.Size)
	if hdr.Size > importBytes {
		blob, err := i.blob(hdr, cas.Files, i.packing.tar)
		if err != nil {
			return err
		}
		e.Hash = blob.Hash
		i.meter.Add(1, 0)
		return i.entries.add(e)
	}
	if err := i.grow(hdr); err != nil {
		return err
	}
	if i.batch != nil && len(i.batch.buf)+int(hdr.Size) > importBytes {
		i.full = append(i.full, i.batch)
		i.batch = nil
	}
	if i.batch == nil {
		i.batch = &importBatch{}
	}
	b := i.batch
	off := len(b.buf)
	// What a header claims is not believed before it has come.
	for end := off + int(hdr.Size); len(b.buf) < end; {
		step := min(end-len(b.buf), 64<<10)
		b.buf = append(b.buf, make([]byte, step)...)
		if _, err := io.ReadFull(i.packing.tar, b.buf[len(b.buf)-step:]); err != nil {
			return i.contentError(hdr.Name, err)
		}
	}
	b.files = append(b.files, importedFile{*e, off, len(b.buf)})
	return nil
}

// sparse reports whether an entry has less in the archive than it stands for.
func sparse(hdr *tar.Header) bool {
	_, pax := hdr.PAXRecords["GNU.sparse.realsize"]
	_, old := hdr.PAXRecords["GNU.sparse.size"]
	return pax || old || hdr.Format == tar.FormatGNU
}

// blob stores a content piece by piece.
func (i *importer) blob(hdr *tar.Header, ns cas.Namespace, r io.Reader) (cas.Blob, error) {
	if err := i.grow(hdr); err != nil {
		return cas.Blob{}, err
	}
	in := &contentReader{r: r, importer: i}
	blob, err := cas.WriteBlob(i.ctx, i.w, ns, in)
	if in.err != nil {
		return blob, i.contentError(hdr.Name, in.err)
	}
	if err == nil && blob.Size != hdr.Size {
		err = i.contentError(hdr.Name, io.ErrUnexpectedEOF)
	}
	return blob, err
}

// contentReader shows what is read on the meter, and remembers how it failed.
type contentReader struct {
	r        io.Reader
	importer *importer
	err      error
}

// Read implements [io.Reader].
func (c *contentReader) Read(b []byte) (int, error) {
	if err := c.importer.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(b)
	c.importer.meter.Add(0, int64(n))
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}

// hardLink takes a further name of a file.
func (i *importer) hardLink(hdr *tar.Header, e imported) error {
	target, err := cleanName(hdr.Linkname)
	if i.own != nil && err == nil {
		var in bool
		target, in = strings.CutPrefix(target, filesFolder+"/")
		if !in {
			err = badEntry(hdr.Name, "a hard link of %s", quoted(hdr.Linkname))
		}
	}
	if err != nil || target == "" {
		return badEntry(hdr.Name, "a hard link of %s, which is no file in the archive", quoted(shortened(hdr.Linkname)))
	}
	i.meter.Add(1, 0)
	return i.links.add(imported{key: e.key, seq: e.seq}, keyOf(target))
}
