package journal

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/index"
)

// A life is a thread, a checkpoint or an artifact, from the entry that made it to the
// one that deleted it. An id may have several, one after the other.
type life struct {
	gone  bool   // it was deleted early enough to be forgotten
	stand string // what stands in for its id then
	named uint64 // a checkpoint: the entry that gave it its last name, or took it away
	has   []held // a thread: what belongs to it
}

// held is what belonged to a thread when it was made.
type held struct {
	key
	life *life
}

// standPrefix begins the ids that stand in for others.
const standPrefix = "deleted-"

// id is what is written for the id of a life.
func (f *life) id(id string) string {
	if f == nil || !f.gone || isStand(id) {
		return id
	}
	if f.stand == "" {
		b := make([]byte, standRandom, standRandom+crc32.Size)
		_, _ = rand.Read(b) // never fails
		f.stand = standPrefix + hex.EncodeToString(binary.BigEndian.AppendUint32(b, standSum(b)))
	}
	return f.stand
}

// standRandom is how many random bytes a stand-in has; a checksum follows.
const standRandom = 8

func standSum(b []byte) uint32 { return crc32.ChecksumIEEE(b) }

// isStand reports whether an id is a stand-in already, and no id of a user's.
func isStand(id string) bool {
	text, is := strings.CutPrefix(id, standPrefix)
	b, err := hex.DecodeString(text)
	return is && err == nil && len(b) == standRandom+crc32.Size && standSum(b[:standRandom]) == binary.BigEndian.Uint32(b[standRandom:])
}

// A key names something that lives.
type key struct {
	kind   byte // 't', 'c' or 'a'
	org    string
	thread string // an artifact's
	id     string
}

// A ledger follows a log's entries twice: first to learn what becomes of everything,
// then to tell how each entry reads without what is gone.
type ledger struct {
	upTo  uint64
	alive map[key]*life
	born  []*life // in the order of the log
	next  int     // of born, the second time; -1: it is the first
	// leases are the fences of those that hold still.
	leases map[uint64]bool
}

func newLedger(upTo uint64) *ledger { return &ledger{upTo: upTo, alive: map[key]*life{}, next: -1} }

// again begins the second time.
func (l *ledger) again() { l.alive, l.next = map[key]*life{}, 0 }

func threadKey(org, id string) key     { return key{org: org, id: id, kind: 't'} }
func checkpointKey(org, id string) key { return key{org: org, id: id, kind: 'c'} }
func artifactKey(org, thread, id string) key {
	return key{org: org, thread: thread, id: id, kind: 'a'}
}

// live returns what has a key, which lives from now on if it did not.
func (l *ledger) live(k key, thread *life) (f *life, fresh bool) {
	if f := l.alive[k]; f != nil {
		return f, false
	}
	if l.next < 0 {
		f = &life{}
		l.born = append(l.born, f)
	} else {
		f = l.born[l.next]
		f.has = nil
		l.next++
	}
	l.alive[k] = f
	if thread != nil {
		thread.has = append(thread.has, held{k, f})
	}
	return f, true
}

// die ends a life by an entry.
func (l *ledger) die(k key, seq uint64) *life {
	f := l.alive[k]
	if f == nil {
		return nil
	}
	f.gone = seq <= l.upTo
	delete(l.alive, k)
	for _, below := range f.has {
		if l.alive[below.key] == below.life {
			l.die(below.key, seq)
		}
	}
	return f
}

// involved is what an entry is about.
type involved struct {
	thread, checkpoint, head *life
	artifacts                []*life
	checkpoints              []*life // of several; nil: it is not there
	again                    bool    // it publishes what is there
}

// follow takes in one entry.
func (l *ledger) follow(e Entry) (in involved) {
	if ev, _, ok := Published(e.Event); ok {
		fresh := false
		in.head = l.alive[checkpointKey(ev.Org, ev.ExpectedHead)]
		in.thread, _ = l.live(threadKey(ev.Org, ev.Thread), nil)
		in.checkpoint, fresh = l.live(checkpointKey(ev.Org, ev.Checkpoint), in.thread)
		if in.again = !fresh; fresh {
			in.checkpoint.name(e.Seq, l.next < 0)
		}
		for _, a := range ev.Artifacts {
			f, _ := l.live(artifactKey(ev.Org, ev.Thread, a.ID), in.thread)
			in.artifacts = append(in.artifacts, f)
		}
		return in
	}
	switch ev := e.Event.(type) {
	case Rename:
		if in.checkpoint = l.alive[checkpointKey(ev.Org, ev.Checkpoint)]; in.checkpoint != nil {
			in.checkpoint.name(e.Seq, l.next < 0)
		}
	case Delete:
		in.checkpoint = l.die(checkpointKey(ev.Org, ev.Checkpoint), e.Seq)
	case DeleteThread:
		in.thread = l.die(threadKey(ev.Org, ev.Thread), e.Seq)
	case Deleting:
		in.thread = l.alive[threadKey(ev.Org, ev.Thread)]
		for _, id := range ev.Checkpoints {
			in.checkpoints = append(in.checkpoints, l.alive[checkpointKey(ev.Org, id)])
		}
	case DeleteSome:
		for _, id := range ev.Checkpoints {
			in.checkpoints = append(in.checkpoints, l.die(checkpointKey(ev.Org, id), e.Seq))
		}
	case AddArtifact:
		in.thread, _ = l.live(threadKey(ev.Org, ev.Thread), nil)
		f, _ := l.live(artifactKey(ev.Org, ev.Thread, ev.Artifact.ID), in.thread)
		in.artifacts = []*life{f}
	case RemoveArtifact:
		in.thread = l.alive[threadKey(ev.Org, ev.Thread)]
		in.artifacts = []*life{l.die(artifactKey(ev.Org, ev.Thread, ev.Artifact), e.Seq)}
	}
	return in
}

// name notes the entry that names a checkpoint, the first time.
func (f *life) name(seq uint64, first bool) {
	if first {
		f.named = seq
	}
}

// without returns an entry's event without what is gone. What an index leaves out when
// it is made anew, because it changes what is not there, becomes a [Lost].
func (l *ledger) without(e Entry) Event {
	in := l.follow(e)
	switch ev := e.Event.(type) {
	case Publish:
		return in.publish(ev, e.Seq)
	case Receive:
		if ev.Publish = in.publish(ev.Publish, e.Seq); in.checkpoint.gone {
			ev.Store, ev.Seq = "", 0
		}
		return ev
	case Rename:
		if in.checkpoint == nil || in.checkpoint.gone || in.checkpoint.named != e.Seq {
			return Lost{}
		}
	case Delete:
		if in.checkpoint == nil {
			return Lost{}
		}
		ev.Checkpoint = in.checkpoint.id(ev.Checkpoint)
		return ev
	case DeleteThread:
		if in.thread == nil {
			return Lost{}
		}
		ev.Thread = in.thread.id(ev.Thread)
		return ev
	case Deleting:
		if ev.Thread != "" && in.thread == nil {
			return Lost{}
		}
		ev.Thread = in.thread.id(ev.Thread)
		ev.Checkpoints = in.ids(ev.Checkpoints)
		if ev.Thread == "" && ev.Checkpoints == nil {
			return Lost{}
		}
		return ev
	case DeleteSome:
		if ev.Checkpoints = in.ids(ev.Checkpoints); ev.Checkpoints == nil {
			return Lost{}
		}
		return ev
	case AddArtifact:
		ev.Thread = in.thread.id(ev.Thread)
		ev.Artifact = in.artifacts[0].without(ev.Artifact)
		return ev
	case RemoveArtifact:
		if in.thread == nil || in.artifacts[0] == nil {
			return Lost{}
		}
		ev.Thread = in.thread.id(ev.Thread)
		ev.Artifact = in.artifacts[0].id(ev.Artifact)
		return ev
	case AcquireLease:
		if e.Seq <= l.upTo && !l.leases[e.Seq] {
			return Lost{} // nothing comes of a lease that is over
		}
	case ReleaseLease:
		if e.Seq <= l.upTo {
			return Lost{} // as its lease is
		}
	}
	return e.Event
}

// ids are those of several checkpoints that are there, or what stands in for them.
func (in involved) ids(ids []string) (all []string) {
	for i, f := range in.checkpoints {
		if f != nil {
			all = append(all, f.id(ids[i]))
		}
	}
	return all
}

// publish is what entry number seq publishes without what is gone.
func (in involved) publish(ev Publish, seq uint64) Publish {
	ev.Thread = in.thread.id(ev.Thread)
	ev.Checkpoint = in.checkpoint.id(ev.Checkpoint)
	if in.head == nil && ev.ExpectedHead != "" && !isStand(ev.ExpectedHead) {
		ev.ExpectedHead = "" // nobody knows it, and nothing depends on it
	}
	ev.ExpectedHead = in.head.id(ev.ExpectedHead)
	if in.checkpoint.gone || in.again || in.checkpoint.named != seq {
		ev.Name = ""
	}
	if in.checkpoint.gone {
		ev.Record = [32]byte{}
	}
	if len(ev.Artifacts) > 0 {
		ev.Artifacts = slices.Clone(ev.Artifacts)
	}
	for i, f := range in.artifacts {
		ev.Artifacts[i] = f.without(ev.Artifacts[i])
	}
	return ev
}

// without is an artifact without what is not to be known of it.
func (f *life) without(a index.Artifact) index.Artifact {
	if f == nil || !f.gone {
		return a
	}
	return index.Artifact{ID: f.id(a.ID), Name: "deleted", Created: a.Created}
}
