package fs

import (
	"fmt"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

// checkpointDir is one checkpoint: its files, and what else was saved.
type checkpointDir struct {
	dir
	cp snapshot.Checkpoint

	mu     sync.Mutex
	source *source // nil until something below was asked for
}

func (d *checkpointDir) valid() time.Duration  { return forever }
func (d *checkpointDir) absent() time.Duration { return forever }
func (d *checkpointDir) attr(out *fuse.Attr)   { d.dirAttr(out, d.cp.Created) }

// A source is what all directories below one checkpoint share.
type source struct {
	fs     *FS
	rec    index.Record
	record string              // hash of the record
	groups map[place]linkGroup // by the place of each member
}

// linkGroup is a file with several names.
type linkGroup struct {
	at    place // of the group as a whole: it has the checkpoint in it
	names uint32
}

// load reads the checkpoint's record and its hard links once.
func (d *checkpointDir) load() (*source, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.source != nil {
		return d.source, nil
	}
	rec, err := d.fs.store.Record(d.fs.ctx, d.cp)
	if err != nil {
		return nil, err
	}
	if d.source, err = d.fs.newSource(rec, d.cp.Record); err != nil {
		return nil, err
	}
	return d.source, nil
}

// newSource reads the hard links of a checkpoint, of whose record hash is the name.
func (f *FS) newSource(rec index.Record, hash string) (*source, error) {
	s := &source{fs: f, rec: rec, record: hash}
	if !rec.Links.IsZero() {
		blob := cas.Blob{Hash: rec.Links.Hash, Size: int64(rec.Links.Size)}
		data, err := cas.ReadBlob(f.ctx, f.blobs, cas.Trees, blob, tree.MaxLinkList)
		if err != nil {
			return nil, fmt.Errorf("hard links: %w", err)
		}
		groups, err := tree.DecodeLinks(data)
		if err != nil {
			return nil, fmt.Errorf("hard links: %w: %w", err, cas.ErrCorrupt)
		}
		s.groups = map[place]linkGroup{}
		for _, group := range groups {
			g := linkGroup{at: placeOf(group[0]).below(s.record), names: uint32(len(group))}
			for _, path := range group {
				s.groups[placeOf(path)] = g
			}
		}
	}
	return s, nil
}

// checkpointEntries are the names in a checkpoint's directory.
var checkpointEntries = []struct {
	name string
	mode uint32
	make func(d *checkpointDir) (node, error)
}{
	{artifactsName, unix.S_IFDIR, (*checkpointDir).artifacts},
	{checkpointName, unix.S_IFREG, (*checkpointDir).describe},
	{conversationName, unix.S_IFREG, (*checkpointDir).conversation},
	{filesName, unix.S_IFDIR, (*checkpointDir).files},
}

// files returns the node of the workspace's root.
func (d *checkpointDir) files() (node, error) {
	s, err := d.load()
	if err != nil {
		return nil, err
	}
	root := snapshot.RootEntry(s.rec)
	m := s.meta(root)
	return d.fs.dirNode(d.id, filesName, s, 0, &m), nil
}

// artifacts returns the node of the directory of artifacts.
func (d *checkpointDir) artifacts() (node, error) {
	return d.child(artifactsName, func(base dir) kept {
		n := &artifactsDir{dir: base, cp: d.cp}
		n.take(virtualIno(artifactsName, d.cp.ID))
		return n
	}), nil
}

// describe returns the node of the file with what is known of the checkpoint.
func (d *checkpointDir) describe() (node, error) {
	data, err := d.fs.store.Describe(d.fs.ctx, d.cp)
	if err != nil {
		return nil, err
	}
	return d.child(checkpointName, func(base dir) kept {
		n := &bytesFile{dir: base, data: data, time: d.cp.Created}
		n.take(virtualIno(checkpointName, d.cp.ID))
		return n
	}), nil
}

// conversation returns the node of the saved messages, or nil when there are none.
func (d *checkpointDir) conversation() (node, error) {
	if !d.cp.Conversation {
		return nil, nil
	}
	s, err := d.load()
	if err != nil {
		return nil, err
	}
	blob := cas.Blob{Hash: s.rec.Conversation.Hash, Size: int64(s.rec.Conversation.Size)}
	return d.child(conversationName, func(base dir) kept {
		n := &blobFile{dir: base, ns: cas.Conversations, blob: blob, time: d.cp.Created}
		n.take(virtualIno(conversationName, d.cp.ID))
		return n
	}), nil
}

func (d *checkpointDir) lookup(name string) (node, error) {
	for _, e := range checkpointEntries {
		if e.name == name {
			return e.make(d)
		}
	}
	return nil, nil
}

func (d *checkpointDir) list(off uint64, _ bool, add func(listed) bool) error {
	for i, e := range checkpointEntries {
		if uint64(i) < off || (e.name == conversationName && !d.cp.Conversation) {
			continue
		}
		if !add(listed{name: e.name, off: uint64(i) + 1, mode: e.mode, ino: virtualIno(e.name, d.cp.ID),
			make: func() (node, error) { return e.make(d) }}) {
			break
		}
	}
	return nil
}
