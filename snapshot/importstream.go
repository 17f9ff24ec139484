package snapshot

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/snapfs/snapfs/cas/local"
)

const tarBlock = 512

// packing is an archive's bytes, unpacked, and the tar that they are.
type packing struct {
	tar    *tar.Reader
	source *sourceReader // as it was given
	plain  *plainReader
	close  func()
}

// sourceReader remembers that its own source failed, which is no fault of the archive.
type sourceReader struct {
	r   io.Reader
	err error
}

// Read implements [io.Reader].
func (s *sourceReader) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// plainReader counts what was read, and the zero bytes at the end of it.
type plainReader struct {
	r           io.Reader
	read, zeros int64
}

// Read implements [io.Reader].
func (p *plainReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.read += int64(n)
	if rest := len(bytes.TrimRight(b[:n], "\x00")); rest == 0 {
		p.zeros += int64(n)
	} else {
		p.zeros = int64(n - rest)
	}
	return n, err
}

// packers are formats that are told by how they begin. Those without unpack are not read.
var packers = []struct {
	magic, name, program string
	unpack               func(io.Reader) (io.ReadCloser, error)
}{
	{"\x28\xb5\x2f\xfd", "zstd", "", local.NewStreamReader},
	{"\x1f\x8b", "gzip", "", func(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) }},
	{"\xfd7zXZ\x00", "xz", "xz -dc", nil},
	{"BZh", "bzip2", "bzip2 -dc", nil},
	{"\x04\x22\x4d\x18", "lz4", "lz4 -dc", nil},
	{"LZIP", "lzip", "lzip -dc", nil},
	{"\x1f\x9d", "compress", "gzip -dc", nil},
	{"PK\x03\x04", "zip", "", nil},
	{"7z\xbc\xaf\x27\x1c", "7z", "", nil},
	{"070701", "cpio", "", nil},
}

// skippable frames may stand before others in a stream of zstd: 0x184D2A50 to 5F.
func skippable(head []byte) bool {
	return len(head) >= 4 && head[0]&0xf0 == 0x50 && string(head[1:4]) == "\x2a\x4d\x18"
}

// openArchive tells what an archive is packed with, and unpacks it.
func openArchive(r io.Reader) (packing, error) {
	p := packing{source: &sourceReader{r: r}, close: func() {}}
	in := bufio.NewReaderSize(p.source, 256<<10)
	head, err := peek(in)
	if err != nil {
		return p, err
	}
	unpacked := in
	if !tarHead(head) {
		for _, k := range packers {
			if !strings.HasPrefix(string(head), k.magic) && !(k.name == "zstd" && skippable(head)) {
				continue
			}
			if k.unpack == nil {
				return p, notRead(k.name, k.program)
			}
			content, err := k.unpack(in)
			if err != nil {
				return p, p.fault(err)
			}
			p.close = func() { content.Close() }
			unpacked = bufio.NewReaderSize(content, 256<<10)
			if head, err = peek(unpacked); err != nil {
				return p, p.fault(err)
			}
			break
		}
	}
	if len(head) == 0 {
		return p, WithHint(fmt.Errorf("there is nothing in it: %w", ErrBadArchive), "an archive without files has at least its end")
	}
	if !tarHead(head) {
		return p, WithHint(fmt.Errorf("it is no tar archive, packed with zstd, gzip or nothing: %w", ErrBadArchive), "snapfs export and tar make one")
	}
	p.plain = &plainReader{r: unpacked}
	p.tar = tar.NewReader(p.plain)
	return p, nil
}

// peek returns the first block, or less at the end.
func peek(r *bufio.Reader) ([]byte, error) {
	head, err := r.Peek(tarBlock)
	if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return head, err
}

// tarHead reports whether an archive that begins like this is a tar: a header with its
// checksum, or the end of an empty one.
func tarHead(b []byte) bool {
	if len(b) < tarBlock {
		return false
	}
	const sumAt, sumLen = 148, 8
	var unsigned, signed, want int64
	for i, c := range b {
		if i >= sumAt && i < sumAt+sumLen {
			c = ' '
		}
		unsigned, signed = unsigned+int64(c), signed+int64(int8(c))
	}
	if unsigned == int64(' ')*sumLen && bytes.Equal(b[sumAt:sumAt+sumLen], make([]byte, sumLen)) {
		return true
	}
	digits := strings.Trim(string(b[sumAt:sumAt+sumLen]), " \x00")
	if _, err := fmt.Sscanf(digits, "%o", &want); err != nil {
		return false
	}
	return want == unsigned || want == signed
}

// notRead refuses what is no tar, or is packed with something else.
func notRead(name, program string) error {
	err := fmt.Errorf("it is packed with %s: %w", name, ErrBadArchive)
	if program == "" {
		return WithHint(err, "unpack it, and snapfs save what comes out")
	}
	return WithHint(err, "%s FILE | snapfs import --thread THREAD -", program)
}

// fault is what a reader's error says about the archive, unless its source failed.
func (p *packing) fault(err error) error {
	switch {
	case err == nil || errors.Is(err, ErrBadArchive):
		return err
	case p.source.err != nil:
		return p.source.err
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return cutOff()
	case errors.Is(err, tar.ErrFieldTooLong):
		err = fmt.Errorf("a header has more than a megabyte of records: %w", ErrBadArchive)
	default:
		err = fmt.Errorf("it is damaged: %v: %w", err, ErrBadArchive)
	}
	return WithHint(err, "make the archive again, or get it again")
}

// cutOff says that an archive has no end.
func cutOff() error {
	return WithHint(fmt.Errorf("it ends too early: %w", ErrBadArchive), "make the archive again, or get it again: whoever wrote it did not come to an end")
}

// next returns the next entry; [io.EOF] at the end of a whole archive. The content of the
// one before has been read.
func (p *packing) next() (*tar.Header, error) {
	p.plain.read, p.plain.zeros = 0, 0
	hdr, err := p.tar.Next()
	if err == nil || errors.Is(err, tar.ErrInsecurePath) && hdr != nil { // names are looked at by who asked
		return hdr, nil
	}
	if err == io.EOF && p.source.err == nil {
		return nil, p.end()
	}
	return nil, p.fault(err)
}

// end looks whether the archive has an end, and nothing behind it.
func (p *packing) end() error {
	// The library also ends after one block of zeros, or none, and behind headers that
	// belong to an entry which does not come. What fills up the last entry is less than a
	// block.
	if p.plain.zeros < 2*tarBlock || p.plain.read >= 3*tarBlock {
		return cutOff()
	}
	_, err := io.Copy(io.Discard, zerosOnly{p.plain})
	if err != nil {
		return p.fault(err)
	}
	return io.EOF
}

// zerosOnly fails where something else than zeros comes.
type zerosOnly struct{ plain *plainReader }

// Read implements [io.Reader].
func (z zerosOnly) Read(b []byte) (int, error) {
	n, err := z.plain.Read(b)
	if len(bytes.TrimRight(b[:n], "\x00")) > 0 {
		return 0, WithHint(fmt.Errorf("something follows its end: %w", ErrBadArchive), "import archives that were joined one by one")
	}
	return n, err
}
