package snapshot

import (
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/secrets"
)

// An artifactDir is an open directory whose files become artifacts.
type artifactDir struct {
	root  *capture.Root
	files []ArtifactFile
	// passed counts what becomes none: symlinks, special files, and files with names that
	// no artifact can have.
	passed int
}

// artifactsIn opens a directory and lists the regular files below it, by path.
// declared are the values that no name may have.
func (s *Store) artifactsIn(dir string, declared *secrets.Set) (*artifactDir, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		_, err = s.outside(real)
	}
	if err != nil {
		return nil, fmt.Errorf("artifacts: %w", err)
	}
	d := &artifactDir{}
	if d.root, err = capture.OpenRoot(real); err != nil {
		return nil, fmt.Errorf("artifacts: %w", err)
	}
	err = filepath.WalkDir(real, func(path string, e iofs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(real, path)
		if !e.Type().IsRegular() || index.ValidArtifact(name, "") != nil || declared.Holds(name) {
			d.passed++
			return nil
		}
		d.files = append(d.files, ArtifactFile{Path: path, Name: name, Once: true, below: d.root})
		return err
	})
	if err != nil {
		_ = d.root.Close()
		return nil, fmt.Errorf("artifacts: %w", err)
	}
	return d, nil
}

// open opens the file. One that was listed in a directory is no symlink, nor is anything on
// the way to it, whatever has become of it since.
func (f ArtifactFile) open() (*os.File, error) {
	if f.below != nil {
		return f.below.Open(f.Name)
	}
	return os.OpenFile(f.Path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO would wait for a writer
}
