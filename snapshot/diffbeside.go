package snapshot

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/tree"
)

// errNoRecord: a live directory has files only.
var errNoRecord = fmt.Errorf("a directory has no artifacts and no conversation to compare: %w", ErrRefused)

// An ArtifactChange is an artifact that only one of two checkpoints holds.
type ArtifactChange struct {
	Op       tree.Op // Added or Deleted
	Artifact Artifact
}

// Artifacts returns the artifacts that only one of the checkpoints holds, in order of
// their ids. One id always means the same content.
func (c *Comparison) Artifacts(ctx context.Context) ([]ArtifactChange, error) {
	if c.old.rec == nil || c.new.rec == nil {
		return nil, errNoRecord
	}
	a, b := c.old.rec.Artifacts, c.new.rec.Artifacts
	if a == b {
		return nil, nil
	}
	olds, err := readArtifacts(ctx, c.store.blobs, *c.old.rec)
	if err != nil {
		return nil, c.fails(err)
	}
	news, err := readArtifacts(ctx, c.store.blobs, *c.new.rec)
	if err != nil {
		return nil, c.fails(err)
	}
	var list []ArtifactChange
	for len(olds)+len(news) > 0 { // both are sorted by id
		switch {
		case len(news) == 0 || len(olds) > 0 && olds[0].ID < news[0].ID:
			list, olds = append(list, ArtifactChange{tree.Deleted, newArtifact(olds[0])}), olds[1:]
		case len(olds) == 0 || news[0].ID < olds[0].ID:
			list, news = append(list, ArtifactChange{tree.Added, newArtifact(news[0])}), news[1:]
		default:
			olds, news = olds[1:], news[1:]
		}
	}
	return list, nil
}

// A ConversationChange says how the conversations of two checkpoints differ.
type ConversationChange struct {
	Op tree.Op // Added, Deleted or Modified
	// Appended is how many messages follow in the second one after all of the first; 0:
	// they differ in something else.
	Appended int
}

// Conversation compares the conversations of two checkpoints; nil: they are the same, or
// there is none. What counts is the bytes; whether messages were appended follows from
// what they mean as JSON.
func (c *Comparison) Conversation(ctx context.Context) (*ConversationChange, error) {
	if c.old.rec == nil || c.new.rec == nil {
		return nil, errNoRecord
	}
	a, b := c.old.rec.Conversation, c.new.rec.Conversation
	switch {
	case a == b:
		return nil, nil
	case a.IsZero():
		return &ConversationChange{Op: tree.Added}, nil
	case b.IsZero():
		return &ConversationChange{Op: tree.Deleted}, nil
	}
	n, err := c.appended(ctx, a, b)
	if err != nil {
		return nil, fmt.Errorf("compare the conversations of %s and %s: %w", quoted(c.old.name), quoted(c.new.name), err)
	}
	return &ConversationChange{Op: tree.Modified, Appended: n}, nil
}

// appended counts the messages of b that follow after all of a; 0: b does not begin with
// these.
func (c *Comparison) appended(ctx context.Context, a, b index.Blob) (int, error) {
	olds, news := c.messages(ctx, a), c.messages(ctx, b)
	defer olds.close()
	defer news.close()
	for n := 0; ; {
		old, err := olds.next()
		if err != nil && err != io.EOF {
			return 0, err
		}
		more := err == nil
		new, err := news.next()
		switch {
		case err == io.EOF && more:
			return 0, nil
		case err == io.EOF:
			return n, nil
		case err != nil:
			return 0, err
		case more && !bytes.Equal(old, new):
			return 0, nil
		case !more:
			n++
		}
	}
}

// messages are the documents of a conversation. If the first one is a list, those in it
// are.
type messages struct {
	dec    *json.Decoder
	pipe   *io.PipeReader
	inList bool
	begun  bool
}

// messages begins to read a conversation.
func (c *Comparison) messages(ctx context.Context, b index.Blob) *messages {
	r, w := io.Pipe()
	go func() {
		w.CloseWithError(cas.CopyBlob(ctx, w, c.store.blobs, cas.Conversations, cas.Blob{Hash: b.Hash, Size: int64(b.Size)}))
	}()
	return &messages{pipe: r}
}

// close ends the reading.
func (m *messages) close() { _ = m.pipe.Close() }

// next returns the next message in its shortest spelling; after the last one io.EOF.
func (m *messages) next() ([]byte, error) {
	if !m.begun {
		m.begun = true
		in := bufio.NewReader(m.pipe)
		for {
			b, err := in.ReadByte()
			if err != nil {
				return nil, err
			}
			if bytes.IndexByte([]byte(" \t\r\n"), b) < 0 {
				m.inList = b == '['
				_ = in.UnreadByte() // what was read last
				break
			}
		}
		m.dec = json.NewDecoder(in)
		if m.inList {
			if _, err := m.dec.Token(); err != nil {
				return nil, err
			}
		}
	}
	if m.inList && !m.dec.More() {
		if _, err := m.dec.Token(); err != nil {
			return nil, unended(err)
		}
		m.inList = false
	}
	var doc json.RawMessage
	if err := m.dec.Decode(&doc); err != nil {
		if m.inList {
			err = unended(err)
		}
		return nil, err
	}
	var short bytes.Buffer
	err := json.Compact(&short, doc)
	return short.Bytes(), err
}

// unended is the error of a list without an end.
func unended(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
