package snapshot

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"

	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/disk"
)

// purgeDir holds requests, each an empty file of a random name: the next collection is
// to leave no byte of what was deleted. A request is made before the deletion. It goes
// when a collection that had seen it has done all of that, so that it outlives crashes,
// daemons and collections that could not.
const purgeDir = "purge"

// requestPurge makes a request.
func requestPurge(fsys disk.FS, dir string) error {
	if dir == "" {
		return nil // what is freed in memory is gone
	}
	folder := filepath.Join(dir, purgeDir)
	err := fsys.Mkdir(folder, 0o700)
	if errors.Is(err, iofs.ErrExist) {
		err = nil
	}
	if err == nil {
		err = errors.Join(disk.Own(folder, dir), fsys.SyncDir(dir))
	}
	if err == nil {
		err = writeFile(fsys, dir, filepath.Join(folder, rand.Text()), nil)
	}
	if err != nil {
		return fmt.Errorf("ask gc to leave nothing of what is deleted: %w", err)
	}
	return nil
}

// purgeRequests lists the requests that there are.
func purgeRequests(dir string) ([]string, error) {
	files, err := os.ReadDir(filepath.Join(dir, purgeDir))
	if err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return nil, fmt.Errorf("look for requests to purge: %w", err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names, nil
}

// A purge is the part of a collection that leaves nothing of what was deleted.
type purge struct {
	h        *localHolder
	requests []string // that it has seen
	upTo     uint64   // the journal's last entry when it began
	left     []string // why some of it is still there
}

// renewer is an index that can be made to forget.
type renewer interface {
	// Last is the number of the last change.
	Last() uint64
	// Renew leaves nothing of what was deleted by then.
	Renew(ctx context.Context, upTo uint64) error
}

// newPurge looks whether a collection is to purge; nil: it is not.
func (h *localHolder) newPurge(ctx context.Context, req GCRequest) (*purge, error) {
	if req.DryRun {
		return nil, nil
	}
	if req.Purge {
		if err := requestPurge(h.fsys, h.dir); err != nil {
			return nil, err
		}
	}
	requests, err := purgeRequests(h.dir)
	if err != nil || len(requests) == 0 {
		return nil, err
	}
	p := &purge{h: h, requests: requests}
	// The texts of what is deleted stay until it is removed.
	h.resumeDeletions(ctx)
	pending, err := h.index.Deletions(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range pending {
		left := deletion{d.Thread, d.Checkpoint}
		p.keep("%s is being deleted: %s ends that", left, left.again())
	}
	if ix, ok := h.index.(renewer); ok {
		p.upTo = ix.Last()
	}
	return p, nil
}

// keep says why some of what was deleted is still there. On nil it does nothing.
func (p *purge) keep(format string, args ...any) {
	if p != nil {
		p.left = append(p.left, fmt.Sprintf(format, args...))
	}
}

// end does what is left when the packs hold nothing any more that was deleted, and takes
// the requests back. While something is left they stay for the next collection.
func (p *purge) end(ctx context.Context, res *GCResult) error {
	if p == nil {
		return nil
	}
	if res.Waiting > 0 {
		p.keep("a save under way may still need some of it")
	}
	if len(p.left) == 0 {
		if err := p.rest(ctx); err != nil {
			return fmt.Errorf("purge: %w", err)
		}
	}
	res.Left = p.left
	res.Purged = len(p.left) == 0
	aside, err := p.aside()
	res.Aside = aside
	return err
}

// rest does what has to do with no pack.
func (p *purge) rest(ctx context.Context) error {
	h := p.h
	if err := h.at("purge"); err != nil {
		return err
	}
	if err := local.CheckSpace(h.dir); err != nil {
		p.keep("%v: the index is not made anew", err)
		return nil
	}
	if ix, ok := h.index.(renewer); ok {
		err := ix.Renew(ctx, p.upTo)
		if errors.Is(err, index.ErrInUse) || errors.Is(err, errors.ErrUnsupported) {
			p.keep("%v", err)
			return nil
		}
		if err != nil {
			return err
		}
	}
	if err := h.at("renewed"); err != nil {
		return err
	}
	if err := p.caches(ctx); err != nil {
		return err
	}
	folder := filepath.Join(h.dir, purgeDir)
	for _, name := range p.requests {
		if err := h.fsys.Remove(filepath.Join(folder, name)); err != nil && !errors.Is(err, iofs.ErrNotExist) {
			return err
		}
	}
	return h.fsys.SyncDir(folder)
}

// caches removes what caches may know of what was deleted: names in workspaces, and
// workspaces' threads that are gone.
func (p *purge) caches(ctx context.Context) error {
	cache := filepath.Join(p.h.dir, cacheDir)
	err := eachFile(filepath.Join(cache, knownDir), p.h.fsys.Remove)
	if err != nil {
		return err
	}
	err = eachFile(filepath.Join(cache, memoryDirName), func(path string) error {
		id, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		_, err = p.h.index.Thread(ctx, defaultOrg, string(id))
		if errors.Is(err, index.ErrThreadNotFound) {
			err = p.h.fsys.Remove(path)
		}
		return err
	})
	for _, folder := range []string{knownDir, memoryDirName} { // before the request goes
		if serr := p.h.fsys.SyncDir(filepath.Join(cache, folder)); !errors.Is(serr, iofs.ErrNotExist) {
			err = errors.Join(err, serr)
		}
	}
	return err
}

// eachFile calls fn with the paths of the files in a directory; one that is gone meanwhile
// is no failure.
func eachFile(dir string, fn func(path string) error) error {
	files, err := os.ReadDir(dir)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := fn(filepath.Join(dir, f.Name())); err != nil && !errors.Is(err, iofs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// aside names what a collection leaves alone because it is somebody's to look at, and
// what may speak of what was deleted.
func (p *purge) aside() (paths []string, err error) {
	err = eachFile(filepath.Join(p.h.dir, local.DamagedDir), func(path string) error {
		paths = append(paths, path)
		return nil
	})
	for _, name := range []string{LogFile, LogFile + ".old"} {
		path := filepath.Join(p.h.dir, name)
		if info, serr := os.Stat(path); serr == nil && info.Size() > 0 {
			paths = append(paths, path)
		}
	}
	return paths, err
}
