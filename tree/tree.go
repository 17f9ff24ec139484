// Package tree stores directories by their content.
//
// A directory is a sorted list of entries (see [Entry]); a file's entry names a
// blob, a directory's entry names the next directory, so one hash stands for a
// whole workspace and two equal directories are one object. A small directory
// is one object of level 0, which holds the entries themselves. A directory of
// more than 256 entries is cut into segments, each an object of level 0, and an
// object of level 1 lists them, with each one's first name, totals and hash;
// when that list is longer than 256 items it is cut in the same way and an
// object of level 2 lists its parts, and so on until one object is left: the
// root, whose hash is the directory's. Where to cut depends on the names alone
// (a hash of the name decides, within bounds), so a changed entry changes one
// segment and the lists above it and nothing else, and whoever looks up a name
// reads one object of each level. The encoding is canonical: a directory has
// exactly one form, and the decoder refuses every other one. docs/FORMAT.md has
// the byte tables.
//
// [Builder] makes a directory's objects, [Reader] reads them through a store
// and keeps them decoded, [Walk] visits everything below a directory, [Diff]
// compares two and skips what they share, [Verify] and [Checker] check what the objects
// claim about each other, and [Refs] tells what one object names, for those who
// copy or collect. Two smaller objects live beside the directories: sets of
// extended attributes ([EncodeXAttrs]) and lists of hard links ([EncodeLinks]).
//
// Nothing that is decoded is trusted. A name can not leave its directory, a
// symlink has nothing below it, and no count makes the decoder allocate more
// than the bytes at hand can stand for.
package tree

import (
	"errors"
	"fmt"
	iofs "io/fs"

	"github.com/snapfs/snapfs/cas"
)

var (
	// ErrInvalid: a name, an entry or an encoding that the rules do not allow.
	// Met while reading a store, it comes together with [cas.ErrCorrupt].
	ErrInvalid = errors.New("invalid")
	// ErrNotFound: the directory has no entry of that name. An object that is
	// missing from the store is [cas.ErrNotFound] instead.
	ErrNotFound = errors.New("no such entry")

	// SkipDir may be returned by the function given to [Walk]; it is the
	// SkipDir of io/fs.
	SkipDir = iofs.SkipDir
	// SkipAll may be returned by the function given to [Walk]; it is the
	// SkipAll of io/fs.
	SkipAll = iofs.SkipAll
)

// invalid says what is wrong with a thing; the error wraps [ErrInvalid].
func invalid(what, format string, args ...any) error {
	return fmt.Errorf("%s is %w: %s", what, ErrInvalid, fmt.Sprintf(format, args...))
}

// corrupt wraps what was found wrong in a stored object.
func corrupt(what string, h cas.Hash, err error) error {
	return fmt.Errorf("%s %s: %w: %w", what, h, cas.ErrCorrupt, err)
}
