package fs

import (
	"fmt"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/snapshot"
)

// artifactsDir has the artifacts of a checkpoint by name.
type artifactsDir struct {
	dir
	cp snapshot.Checkpoint

	mu     sync.Mutex
	loaded bool
	files  []namedArtifact
	named  map[string]int // of files
}

// namedArtifact is an artifact under the name that the mount gives it.
type namedArtifact struct {
	name string
	snapshot.Artifact
}

func (d *artifactsDir) valid() time.Duration  { return forever }
func (d *artifactsDir) absent() time.Duration { return forever }
func (d *artifactsDir) attr(out *fuse.Attr)   { d.dirAttr(out, d.cp.Created) }

// load reads the checkpoint's list once.
func (d *artifactsDir) load() (files []namedArtifact, named map[string]int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loaded || d.cp.Artifacts == 0 {
		return d.files, d.named, nil
	}
	list, err := d.fs.store.Artifacts(d.fs.ctx, d.cp.ID)
	if err != nil {
		return nil, nil, err
	}
	d.named = make(map[string]int, len(list))
	for i, name := range snapshot.ArtifactNames(list) {
		d.files = append(d.files, namedArtifact{name: name, Artifact: list[i]})
		d.named[name] = i
	}
	d.loaded = true
	return d.files, d.named, nil
}

// node returns the node of one artifact.
func (d *artifactsDir) node(a namedArtifact) (node, error) {
	hash, err := cas.ParseHash(a.Hash)
	if err != nil {
		return nil, fmt.Errorf("artifact %s: %w", a.ID, err)
	}
	return d.child(a.name, func(base dir) kept {
		n := &blobFile{dir: base, ns: cas.Artifacts, blob: cas.Blob{Hash: hash, Size: int64(a.Size)}, time: a.Created}
		n.take(d.inoOf(a))
		return n
	}), nil
}

func (d *artifactsDir) inoOf(a namedArtifact) uint64 {
	return virtualIno("artifact", d.cp.ID, a.ID)
}

func (d *artifactsDir) lookup(name string) (node, error) {
	files, named, err := d.load()
	if err != nil {
		return nil, err
	}
	if i, ok := named[name]; ok {
		return d.node(files[i])
	}
	return nil, nil
}

func (d *artifactsDir) list(off uint64, _ bool, add func(listed) bool) error {
	files, _, err := d.load()
	if err != nil {
		return err
	}
	for i, a := range files[min(off, uint64(len(files))):] {
		if !add(listed{name: a.name, off: off + uint64(i) + 1, mode: unix.S_IFREG, ino: d.inoOf(a),
			make: func() (node, error) { return d.node(a) }}) {
			break
		}
	}
	return nil
}

// blobFile is a file of a checkpoint that is not part of its tree.
type blobFile struct {
	dir
	ns   cas.Namespace
	blob cas.Blob
	time time.Time
}

func (b *blobFile) valid() time.Duration { return forever }
func (b *blobFile) attr(out *fuse.Attr) {
	out.Mode = unix.S_IFREG | 0o444
	out.Nlink = 1
	out.Size = uint64(b.blob.Size)
	out.Blocks = (out.Size + 511) / 512
	out.Owner = fuse.Owner{Uid: b.fs.uid, Gid: b.fs.gid}
	setTimes(out, b.time)
	out.Blksize = blockSize
}
