package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/secrets"
)

// MaxConversation is the longest conversation in bytes.
const MaxConversation = 256 << 20

// A Conversation is messages that can be saved: one JSON array, which is kept byte by
// byte. [ReadConversation] makes one.
type Conversation struct {
	src   io.ReadSeeker
	start int64         // where it begins in src
	size  int64         // in bytes
	stat  iofs.FileInfo // of src before it was read; nil: it is no file
	from  io.Reader     // what was given; nil: it is not to be closed
}

// ReadConversation reads messages, and fails with [index.ErrInvalid] if they are not a JSON
// array, with [cas.ErrTooLarge] if there are more than [MaxConversation] bytes. What can
// be read again, as a regular file can, a save reads a second time, and it must be as it
// was then; what cannot, as a pipe, is kept in memory meanwhile. If r is an [io.Closer],
// it is the conversation's to close.
func ReadConversation(r io.Reader) (*Conversation, error) {
	c := &Conversation{from: r}
	if err := c.read(r); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// conversationOf returns the conversation that is given to a save, and what is to be done
// when the save is over; nil: there is none.
func conversationOf(r io.Reader) (c *Conversation, done func(), err error) {
	if c, ok := r.(*Conversation); ok || r == nil {
		return c, func() {}, nil
	}
	c = &Conversation{}
	done = func() { _ = c.Close() }
	if err := c.read(r); err != nil {
		done()
		return nil, nil, err
	}
	return c, done, nil
}

// Read implements [io.Reader], so that a conversation can be one of [SaveOptions].
func (c *Conversation) Read(b []byte) (int, error) { return c.src.Read(b) }

// Close closes what the messages were read from, and forgets them.
func (c *Conversation) Close() error {
	var errs []error
	if kept, ok := c.src.(*segments); ok {
		errs = append(errs, kept.Close())
	}
	if file, ok := c.from.(io.Closer); ok {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}

// read looks the messages through for the first time.
func (c *Conversation) read(r io.Reader) error {
	if err := c.open(r); err != nil {
		return fmt.Errorf("conversation: %w", err)
	}
	in := io.Reader(c.src)
	if c.src == nil {
		kept := &segments{}
		c.src, in = kept, io.TeeReader(r, kept)
	}
	var err error
	if c.size, err = checkMessages(in, MaxConversation); err != nil {
		return fmt.Errorf("conversation: %w", err)
	}
	return nil
}

// open looks whether the messages can be read again.
func (c *Conversation) open(r io.Reader) error {
	src, ok := r.(io.ReadSeeker)
	if !ok {
		return nil
	}
	var stat iofs.FileInfo
	if file, ok := r.(statter); ok {
		var err error
		if stat, err = file.Stat(); err != nil {
			return err
		}
		if !stat.Mode().IsRegular() {
			return nil // a terminal can seek, and yields something else then
		}
	}
	start, err := src.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil
	}
	if stat != nil && stat.Size()-start > MaxConversation {
		return tooLong(stat.Size() - start)
	}
	c.src, c.start, c.stat = src, start, stat
	return nil
}

type statter interface{ Stat() (iofs.FileInfo, error) }

// checkMessages reads messages of at most so many bytes to their end and returns how many
// they have.
func checkMessages(r io.Reader, most int64) (int64, error) {
	check := &secrets.JSONCheck{Array: true}
	n, err := io.CopyBuffer(check, onlyReader{io.LimitReader(r, most+1)}, make([]byte, 128<<10))
	if err == nil && n <= most {
		err = check.End()
	}
	var syntax *secrets.JSONError
	switch {
	case errors.As(err, &syntax):
		err = fmt.Errorf("not a JSON array of messages: %w: %w", err, index.ErrInvalid)
		if syntax.Document {
			return n, WithHint(err, "jq -s . FILE makes an array of documents that stand one after the other")
		}
		return n, WithHint(err, "want [MESSAGE, MESSAGE, ...] in UTF-8, without a byte order mark; [] has none")
	case err == nil && n > most:
		err = tooLong(n)
	}
	return n, err
}

func tooLong(n int64) error {
	err := fmt.Errorf("%d bytes or more, at most %d can be kept: %w", n, MaxConversation, cas.ErrTooLarge)
	return WithHint(err, "keep it as an artifact, or leave out what need not be kept")
}

// onlyReader hides what else a reader can do.
type onlyReader struct{ io.Reader }

// again returns a reader of the messages from their beginning on.
func (c *Conversation) again() (io.Reader, error) {
	if _, err := c.src.Seek(c.start, io.SeekStart); err != nil {
		return nil, err
	}
	return io.LimitReader(c.src, MaxConversation+1), nil
}

// same fails if the messages are not those that were looked through, or may not be: n
// bytes of them were read again.
func (c *Conversation) same(n int64, check *secrets.JSONCheck) error {
	same := n == c.size && check.End() == nil
	if c.stat != nil {
		now, err := c.src.(statter).Stat()
		if err != nil {
			return err
		}
		same = same && now.Size() == c.stat.Size() && now.ModTime().Equal(c.stat.ModTime())
	}
	if !same {
		return fmt.Errorf("it changed while it was read: %w", ErrRefused)
	}
	return nil
}

// A checkedReader checks what is read from it. It ends where that is no JSON any more.
type checkedReader struct {
	r     io.Reader
	check secrets.JSONCheck
	n     int64
}

// Read implements [io.Reader].
func (c *checkedReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	if _, bad := c.check.Write(b[:n]); bad != nil {
		return 0, fmt.Errorf("it changed while it was read: %w", ErrRefused)
	}
	return n, err
}

// Conversation writes the messages that were saved with a checkpoint, as they
// were. It fails with [ErrNoConversation] when there are none.
func (s *Store) Conversation(ctx context.Context, ref string, out io.Writer) error {
	cp, rec, err := s.record(ctx, ref)
	if err != nil {
		return err
	}
	if rec.Conversation.IsZero() {
		return fmt.Errorf("checkpoint %s: %w", quoted(cp.ID), ErrNoConversation)
	}
	if err := s.copyPart(ctx, out, cas.Conversations, rec.Conversation, MaxConversation); err != nil {
		return fmt.Errorf("conversation of checkpoint %s: %w", quoted(cp.ID), err)
	}
	return nil
}

// copyPart writes the bytes of a blob that can have so many at most: a longer one is
// [cas.ErrCorrupt].
func (s *Store) copyPart(ctx context.Context, out io.Writer, ns cas.Namespace, b index.Blob, most int64) error {
	if b.Size > uint64(most) {
		return fmt.Errorf("blob of %d bytes, at most %d can be: %w", b.Size, most, cas.ErrCorrupt)
	}
	return cas.CopyBlob(ctx, out, s.blobs, ns, cas.Blob{Hash: b.Hash, Size: int64(b.Size)})
}
