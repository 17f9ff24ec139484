package snapshot

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/internal/textdiff"
	"github.com/snapfs/snapfs/tree"
)

// MaxText is how long a file may be, in bytes, to be compared line by line. A longer one
// counts as binary.
const MaxText = 16 << 20

// A LineStat says how much of an entry differs.
type LineStat struct {
	Inserted, Deleted int  // lines
	Binary            bool // not compared line by line, and neither counted
}

// Lines counts the lines that a change inserts and deletes. A symlink's target is a line,
// a directory has none.
func (c *Comparison) Lines(ctx context.Context, ch tree.Change) (LineStat, error) {
	if sameContent(ch) {
		return LineStat{}, nil
	}
	old, new, err := c.texts(ctx, ch)
	if errors.Is(err, errBinary) {
		return LineStat{Binary: true}, nil
	}
	if err != nil {
		return LineStat{}, err
	}
	var s LineStat
	switch {
	case ch.Op == tree.Modified:
		s.Inserted, s.Deleted = textdiff.Compare(old, new).Counts()
	default: // a whole file on one side, or another kind of entry
		s.Inserted, s.Deleted = textdiff.Lines(new), textdiff.Lines(old)
	}
	return s, nil
}

// sameContent reports whether the contents of a change are equal, if there are any.
func sameContent(ch tree.Change) bool { return ch.Op == tree.Metadata || ch.Op == tree.Renamed }

// texts returns the contents of both sides of a change. They are empty where there is
// none.
func (c *Comparison) texts(ctx context.Context, ch tree.Change) (old, new string, err error) {
	if c.live != nil && (redacted(ch.Old) || redacted(ch.New)) {
		return "", "", errBinary // it would show the secrets
	}
	if old, err = c.text(ctx, &c.old, ch.Path, ch.Old); err != nil {
		return "", "", err
	}
	new, err = c.text(ctx, &c.new, ch.Path, ch.New)
	return old, new, err
}

func redacted(e *tree.Entry) bool { return e != nil && e.Flags&tree.Redacted != 0 }

// errBinary: a content is no text, or too long.
var errBinary = errors.New("no text")

// text returns the content of an entry; nil and a directory have none. It fails with
// errBinary.
func (c *Comparison) text(ctx context.Context, v *version, at string, e *tree.Entry) (string, error) {
	switch {
	case e == nil || e.Kind == tree.Dir:
		return "", nil
	case e.Kind == tree.Symlink:
		return e.Target, nil
	case e.Size > MaxText:
		return "", errBinary
	}
	var b textBuilder
	if err := v.content(ctx, at, e, &b); err != nil {
		if errors.Is(err, errBinary) {
			return "", errBinary
		}
		return "", fmt.Errorf("read %s in %s: %w", quoted(at), quoted(v.name), err)
	}
	if textdiff.Binary(b.String()) {
		return "", errBinary
	}
	return b.String(), nil
}

// A textBuilder takes a content as long as it may be text.
type textBuilder struct{ strings.Builder }

// Write implements [io.Writer]. It fails with errBinary.
func (b *textBuilder) Write(p []byte) (int, error) {
	if b.Len()+len(p) > MaxText {
		return 0, errBinary
	}
	first := b.Len() < textdiff.Head
	n, err := b.Builder.Write(p)
	if first && textdiff.Binary(b.String()) {
		return 0, errBinary
	}
	return n, err
}

// below calls fn for everything in a directory that was renamed, with the old path and
// the new one.
func (c *Comparison) below(ctx context.Context, ch tree.Change, fn func(tree.Change) error) error {
	return tree.Walk(ctx, c.trees, ch.New.Hash, func(p string, e tree.Entry) error {
		old, new := e, e
		return fn(tree.Change{Op: tree.Renamed, Path: path.Join(ch.Path, p), From: path.Join(ch.From, p), Old: &old, New: &new})
	})
}

// blob is the content of a file.
func blob(e *tree.Entry) cas.Blob { return cas.Blob{Hash: e.Hash, Size: int64(e.Size)} }
