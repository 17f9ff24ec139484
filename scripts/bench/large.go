package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// kinds are the contents of long files.
var kinds = []string{"incompressible", "compressible"}

const mega = 1 << 20

func (b *bench) largeDir() string { return filepath.Join(b.dir, "large") }

func largeName(kind string, size int64) string { return fmt.Sprintf("%d MiB, %s", size>>20, kind) }

// largeFile is the long file of a kind and its size. It is alone in its directory.
func (b *bench) largeFile(kind string) (path string, size int64, err error) {
	path = filepath.Join(b.largeDir(), kind, "file")
	info, err := os.Stat(path)
	if err == nil {
		return path, info.Size(), nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", 0, err
	}
	size = pick[int64](b.quick, 64<<20, 1<<30)
	content := noise(1)
	if kind == "compressible" {
		if content, err = newSource(b.goroot); err != nil {
			return "", 0, err
		}
	}
	return path, size, write(path, io.LimitReader(content, size))
}

// larges measures saves of long files, and what small changes to them add.
func (b *bench) larges() error {
	for _, kind := range kinds {
		path, n, err := b.largeFile(kind)
		if err != nil {
			return err
		}
		name := largeName(kind, n)
		archive := filepath.Join(b.dir, "archive.tar")
		took, err := race(
			func() (time.Duration, error) { return b.tar(filepath.Dir(path), archive) },
			func() (time.Duration, error) { return b.first(b.dir, filepath.Dir(path)) },
		)
		if err != nil {
			return err
		}
		reach := map[string]string{"incompressible": "1 GB/s", "compressible": "0.45 GB/s"}[kind]
		b.add(row{tree: name, what: "save, first, beside tar + fsync", reach: reach, native: speed(n, took[0]), seen: speed(n, took[1]), ratio: ratio(took[1], took[0])})
		if err := os.Remove(archive); err != nil {
			return err
		}
		if err := b.edits(name, path, n); err != nil {
			return err
		}
	}
	return nil
}

// edits measures what a copy of a file adds to a store that has the file.
func (b *bench) edits(name, path string, n int64) error {
	s, err := b.store(b.dir)
	if err != nil {
		return err
	}
	if _, err := s.save("base", filepath.Dir(path)); err != nil {
		return err
	}
	work := filepath.Join(b.dir, "edits")
	copied := filepath.Join(work, "file")
	if err := os.Mkdir(work, 0o755); err != nil {
		return err
	}
	for i, edit := range []struct {
		what          string
		at, replacing int64
	}{
		{"1 MiB changed in place", n/4 + 12_345, mega},
		{"1 MiB inserted in the middle", n/2 + 12_345, 0},
		{"1 MiB appended", n, 0},
	} {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		err = write(copied, io.MultiReader(
			io.NewSectionReader(f, 0, edit.at),
			io.LimitReader(noise(byte(2+i)), mega),
			io.NewSectionReader(f, edit.at+edit.replacing, n),
		))
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		added, err := s.saveNew("edits", work)
		if err != nil {
			return err
		}
		b.add(row{tree: name, what: edit.what + ": new in the store", reach: "8 MB", native: size(mega), seen: size(added), ratio: fmt.Sprintf("%.2f", float64(added)/mega)})
	}
	return errors.Join(os.RemoveAll(work), s.remove())
}

// write makes a file of what r has.
func write(path string, r io.Reader) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, r, make([]byte, mega))
	return errors.Join(err, f.Close())
}

// overwrite puts data into a file that is there.
func overwrite(path string, at int64, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, at)
	return errors.Join(err, f.Close())
}

// noise cannot be compressed. A seed always gives the same.
func noise(seed byte) io.Reader { return rand.NewChaCha8([32]byte{seed}) }

// source is Go's own source text without end. It begins again and again; from the
// second time on its lines are numbered, so that nothing of it repeats.
type source struct {
	text   []byte
	rest   []byte // of the text
	again  int64  // how many times it began anew
	number int64  // of the line
	line   []byte // what is to be read next
	buf    []byte
}

func newSource(goroot string) (*source, error) {
	const enough = 32 * mega
	var text []byte
	err := filepath.WalkDir(filepath.Join(goroot, "src"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || filepath.Ext(path) != ".go" {
			return err
		}
		data, err := os.ReadFile(path)
		if text = append(text, data...); err == nil && len(text) >= enough {
			return fs.SkipAll
		}
		return err
	})
	if err == nil && len(text) == 0 {
		err = fmt.Errorf("no source text in %s", goroot)
	}
	return &source{text: text, line: text}, err
}

// Read never ends.
func (s *source) Read(p []byte) (n int, _ error) {
	for n < len(p) {
		if len(s.line) == 0 {
			s.next()
		}
		c := copy(p[n:], s.line)
		s.line = s.line[c:]
		n += c
	}
	return n, nil
}

func (s *source) next() {
	if len(s.rest) == 0 {
		s.rest, s.number = s.text, 0
		s.again++
	}
	end := bytes.IndexByte(s.rest, '\n') + 1
	if end == 0 {
		end = len(s.rest)
	}
	s.number++
	s.buf = append(strconv.AppendInt(s.buf[:0], s.again, 10), ':')
	s.buf = append(strconv.AppendInt(s.buf, s.number, 10), ' ')
	s.buf = append(s.buf, s.rest[:end]...)
	s.line, s.rest = s.buf, s.rest[end:]
}
