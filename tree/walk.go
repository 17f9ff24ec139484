package tree

import (
	"context"
	"errors"
	"fmt"

	"github.com/snapfs/snapfs/cas"
)

// Walk calls fn for everything below the directory root: a directory before
// its content, the entries of one directory in bytewise order of their names.
// Paths have slashes and do not begin with one. The root itself is not visited.
//
// When fn returns [SkipDir] for a directory, its content is left out; for
// anything else, the rest of the directory that it lies in is. [SkipAll] ends
// the walk without an error. All other errors end it and are returned as they
// are. A path longer than [MaxPath] fails, which bounds the depth.
func Walk(ctx context.Context, r *Reader, root cas.Hash, fn func(path string, e Entry) error) error {
	err := walk(ctx, r, root, "", fn)
	if errors.Is(err, SkipAll) {
		return nil
	}
	return err
}

func walk(ctx context.Context, r *Reader, h cas.Hash, dir string, fn func(string, Entry) error) error {
	d, err := r.openAt(ctx, h, dir)
	if err != nil {
		return err
	}
	for e, err := range d.Entries(ctx, 0) {
		if err != nil {
			return at(dir, err)
		}
		path, err := deeper(dir, e.Name)
		if err != nil {
			return err
		}
		err = fn(path, e)
		if err == nil && e.Kind == Dir {
			err = walk(ctx, r, e.Hash, path, fn)
		} else if errors.Is(err, SkipDir) {
			if e.Kind != Dir {
				return nil
			}
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// openAt opens the directory at a path; the path is for messages.
func (r *Reader) openAt(ctx context.Context, h cas.Hash, path string) (*Directory, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d, err := r.Open(ctx, h)
	if err != nil {
		return nil, at(path, err)
	}
	return d, nil
}

// at says where in the tree an error came up.
func at(path string, err error) error {
	if path == "" {
		return err
	}
	return fmt.Errorf("%s: %w", Quote(path), err)
}

// deeper joins the path of an entry. The limit keeps recursion in bounds.
func deeper(dir, name string) (string, error) {
	path := join(dir, name)
	if len(path) > MaxPath {
		return "", fmt.Errorf("%w: %w", cas.ErrCorrupt, tooDeep(path))
	}
	return path, nil
}
