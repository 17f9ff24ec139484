package snapshot

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/snapfs/snapfs/internal/textdiff"
	"github.com/snapfs/snapfs/tree"
)

// Patch writes a change as a part of a patch with git's headers: GNU patch makes of the
// first version with it what is in the second, as far as that is files and symlinks.
// Modes have all permission bits, of which git keeps one. What is no text is only named.
// Directories and times are in no patch, nor is a change of kind from or to a directory
// one that GNU patch makes.
func (c *Comparison) Patch(ctx context.Context, w io.Writer, ch tree.Change) error {
	switch ch.Op {
	case tree.Type:
		if err := c.patchOne(ctx, w, tree.Change{Op: tree.Deleted, Path: ch.Path, Old: ch.Old}); err != nil {
			return err
		}
		return c.patchOne(ctx, w, tree.Change{Op: tree.Added, Path: ch.Path, New: ch.New})
	case tree.Renamed:
		if ch.New.Kind == tree.Dir {
			return c.below(ctx, ch, func(ch tree.Change) error { return c.patchRenamed(ctx, w, ch) })
		}
		return c.patchRenamed(ctx, w, ch)
	}
	return c.patchOne(ctx, w, ch)
}

// patchRenamed writes what was renamed. Of a symlink GNU patch does not take that.
func (c *Comparison) patchRenamed(ctx context.Context, w io.Writer, ch tree.Change) error {
	switch ch.New.Kind {
	case tree.Dir:
		return nil
	case tree.Symlink:
		if err := c.patchOne(ctx, w, tree.Change{Op: tree.Deleted, Path: ch.From, Old: ch.Old}); err != nil {
			return err
		}
		return c.patchOne(ctx, w, tree.Change{Op: tree.Added, Path: ch.Path, New: ch.New})
	}
	return c.patchOne(ctx, w, ch)
}

// patchOne writes the part of one file or symlink, on one side or on both.
func (c *Comparison) patchOne(ctx context.Context, w io.Writer, ch tree.Change) error {
	e := ch.New
	if e == nil {
		e = ch.Old
	}
	if e.Kind == tree.Dir {
		return nil
	}
	var d *textdiff.Diff
	if !sameContent(ch) {
		old, new, err := c.texts(ctx, ch)
		if errors.Is(err, errBinary) {
			if err := patchBinary(w, ch); err != nil || ch.Op != tree.Modified {
				return err
			}
			ch.Op = tree.Metadata // the mode can still be told
		} else if err != nil {
			return err
		} else {
			d = textdiff.Compare(old, new)
		}
	}
	head := patchHead(ch, d)
	if head == "" {
		return nil
	}
	if _, err := io.WriteString(w, head); err != nil || d == nil {
		return err
	}
	return d.Hunks(w)
}

// patchBinary names a content that is not compared. It has no header, by which GNU patch
// would make an empty file; and an empty line before it, without which git apply takes it
// for a part of a header right before, and refuses the whole patch.
func patchBinary(w io.Writer, ch tree.Change) error {
	old, new := patchNames(ch)
	_, err := fmt.Fprintf(w, "\nBinary files %s and %s differ\n", old, new)
	return err
}

// patchNames are the names in front of hunks.
func patchNames(ch tree.Change) (old, new string) {
	old, new = patchName("a/"+ch.Path), patchName("b/"+ch.Path)
	if ch.Old == nil {
		old = "/dev/null"
	}
	if ch.New == nil {
		new = "/dev/null"
	}
	return old, new
}

// patchHead is what stands before the hunks of a difference, if there are any; "": there
// is nothing to tell.
func patchHead(ch tree.Change, d *textdiff.Diff) string {
	from := ch.Path
	if ch.From != "" {
		from = ch.From
	}
	var b bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("diff --git %s %s", patchName("a/"+from), patchName("b/"+ch.Path))
	first := b.Len()
	hunks := d != nil && len(d.Edits) > 0
	switch {
	case ch.Old == nil:
		line("new file mode %s", patchMode(ch.New))
	case ch.New == nil:
		line("deleted file mode %s", patchMode(ch.Old))
	case patchMode(ch.Old) != patchMode(ch.New):
		line("old mode %s", patchMode(ch.Old))
		line("new mode %s", patchMode(ch.New))
	}
	if ch.From != "" {
		line("similarity index 100%%")
		line("rename from %s", patchName(from))
		line("rename to %s", patchName(ch.Path))
	}
	switch {
	case ch.Old != nil && ch.New != nil && ch.New.Kind == tree.Symlink && hunks:
		line("index %s..%s %s", patchIndex(ch.Old), patchIndex(ch.New), patchMode(ch.New)) // else it would be a file
	case (ch.Old == nil || ch.New == nil) && !hunks:
		line("index %s..%s", patchIndex(ch.Old), patchIndex(ch.New)) // GNU patch takes the end of an empty file by this
	}
	if b.Len() == first && !hunks {
		return ""
	}
	if hunks {
		old, new := patchNames(ch)
		line("--- %s", old)
		line("+++ %s", new)
	}
	return b.String()
}

// patchMode is a mode as git writes it, but with all permission bits.
func patchMode(e *tree.Entry) string {
	if e.Kind == tree.Symlink {
		return "120000"
	}
	return fmt.Sprintf("100%03o", e.Mode&0o777)
}

// patchIndex is git's name of a symlink's target or an empty file, by which GNU patch
// knows one; zeros: there is none.
func patchIndex(e *tree.Entry) string {
	var sum [sha1.Size]byte
	if e != nil {
		sum = sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(e.Target), e.Target))
	}
	return hex.EncodeToString(sum[:5])
}

// patchName quotes a path as git does, with core.quotePath on, and also where it has a
// space: GNU patch would take that for the end of it.
func patchName(path string) string {
	plain := func(r rune) bool { return r > ' ' && r < 0x7f && r != '"' && r != '\\' }
	if !strings.ContainsFunc(path, func(r rune) bool { return !plain(r) }) {
		return path
	}
	short := map[byte]byte{'\a': 'a', '\b': 'b', '\t': 't', '\n': 'n', '\v': 'v', '\f': 'f', '\r': 'r', '"': '"', '\\': '\\'}
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(path) {
		switch letter, ok := short[c]; {
		case ok:
			b.WriteByte('\\')
			b.WriteByte(letter)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
