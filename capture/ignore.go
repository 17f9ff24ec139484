package capture

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// The names of ignore files, in byte order.
const (
	gitIgnoreName = ".gitignore"
	ignoreName    = ".snapfsignore"
)

// maxIgnoreFile is how long an ignore file may be, in bytes: as long as a blob of one
// record, so that it has the same name there.
const maxIgnoreFile = cas.ChunkedSize

// maxWarnings is how many are told of each ignore file, and of all.
const maxWarnings = 100

// warning is something that the user should know, about an entry.
type warning struct{ path, text string }

// warn notes what does not keep the capture from being whole.
func (c *walker) warn(path string, texts ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, text := range texts {
		c.warnings = append(c.warnings, warning{path, text})
	}
}

// warned returns all warnings in order of paths.
func (c *walker) warned() []string {
	slices.SortStableFunc(c.warnings, func(a, b warning) int { return strings.Compare(a.path, b.path) })
	var all []string
	for i, w := range c.warnings {
		if i == maxWarnings {
			return append(all, fmt.Sprintf("and %d more warnings", len(c.warnings)-i))
		}
		all = append(all, c.opt.Screen.Declared.Mask(w.text))
	}
	return all
}

// ignoreNames are the ignore files that are honoured.
func (c *walker) ignoreNames() []string {
	if c.opt.Settings.GitIgnore {
		return []string{gitIgnoreName, ignoreName}
	}
	return []string{ignoreName}
}

// findName returns what the listing of a directory has under a name.
func findName(names []dirName, name string) (dirName, bool) {
	at, found := slices.BinarySearchFunc(names, name, func(n dirName, name string) int { return strings.Compare(n.name, name) })
	if !found {
		return dirName{}, false
	}
	return names[at], true
}

// narrow brings the ignore files of a directory into force there. One that cannot be
// read is an error, and nothing of the directory gets into the tree: it may say that
// something is a secret.
func (w *worker) narrow(d *directory, names []dirName, saved map[string]tree.Entry) error {
	for _, name := range w.ignored {
		entry, found := findName(names, name)
		if !found {
			continue
		}
		path := d.path + name
		var content []byte
		var is bool
		var err error
		if entry.saved {
			content, is, err = w.savedIgnore(saved[name])
		} else {
			content, is, err = d.fd.readIgnore(entry)
		}
		if err != nil {
			return fmt.Errorf("ignore file %s: %w", name, vanished(err))
		}
		if !is {
			w.warn(path, tree.Quote(path)+": is no regular file, and its rules do not count")
			continue
		}
		scope, err := d.scope.Narrow(name, policy.ParseIgnore(tree.Quote(path), content))
		w.warn(path, badRules(err)...)
		if err := w.budget.Err(); err != nil {
			w.cancel(err)
			return err
		}
		if d.scope, d.narrowed = scope, true; entry.saved {
			continue // see carry
		}
		w.mu.Lock()
		w.ignoreFiles = append(w.ignoreFiles, policy.IgnoreFile{Path: path, Hash: cas.Data.Sum(w.withoutDeclared(content))})
		w.mu.Unlock()
	}
	return nil
}

// badRules returns a line for each rule of an ignore file that was refused.
func badRules(err error) []string {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	var lines []string
	all := joined.Unwrap()
	for i, err := range all {
		var bad *policy.PatternError
		if !errors.As(err, &bad) {
			continue
		}
		if i == maxWarnings {
			source, _, _ := strings.Cut(lines[0], ": ")
			lines = append(lines, fmt.Sprintf("%s: and %d more", source, len(all)-i))
			break
		}
		lines = append(lines, fmt.Sprintf("%s: pattern %s does not count: %s (%s)", bad.Rule.Source, tree.Quote(bad.Rule.Pattern), bad.Problem, bad.Hint))
	}
	return lines
}

// readIgnore reads an ignore file of a directory. Anything but a regular file is none.
func (d *dirFD) readIgnore(entry dirName) (content []byte, is bool, err error) {
	if entry.kind == unix.DT_UNKNOWN {
		st, err := d.look(entry.name)
		if err != nil {
			return nil, false, err
		}
		entry.kind = kindOf(&st)
	}
	if entry.kind != unix.DT_REG {
		return nil, false, nil
	}
	fd, err := d.open(entry.name, 0)
	if err != nil {
		return nil, false, err
	}
	file := os.NewFile(uintptr(fd), entry.name)
	defer file.Close()
	var before, after unix.Stat_t
	if err := unix.Fstat(fd, &before); err != nil {
		return nil, false, err
	}
	for range tries {
		switch {
		case kindOf(&before) != unix.DT_REG:
			return nil, false, errReplaced
		case before.Size > maxIgnoreFile:
			return nil, false, fmt.Errorf("%d bytes long, at most %d are read", before.Size, maxIgnoreFile)
		}
		content, err = io.ReadAll(io.NewSectionReader(file, 0, maxIgnoreFile+1))
		if err == nil {
			err = unix.Fstat(fd, &after)
		}
		if err != nil || unchangedSince(&before, &after) && int64(len(content)) == after.Size {
			return content, err == nil, err
		}
		before = after
	}
	return nil, false, errChanging
}

// CacheTag is the name of the file that tells a cache directory, when it begins with the
// signature (bford.info/cachedir).
const (
	CacheTag       = "CACHEDIR.TAG"
	cacheSignature = "Signature: 8a477f597d28d172789f06886806bc55"
)

// isCache reports whether the names of a directory are a cache's. A tag that cannot be
// read tags nothing: it is a problem of its own when its turn comes.
func (d *dirFD) isCache(names []dirName) bool {
	entry, found := findName(names, CacheTag)
	if !found {
		return false
	}
	if entry.kind == unix.DT_UNKNOWN {
		st, err := d.look(CacheTag)
		if err != nil {
			return false
		}
		entry.kind = kindOf(&st)
	}
	if entry.kind != unix.DT_REG {
		return false
	}
	fd, err := d.open(CacheTag, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && kindOf(&st) == unix.DT_REG && string(readAt(fd, 0, int64(len(cacheSignature)), nil)) == cacheSignature
}
