package snapshot

import (
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
)

// artifactsIn lists the regular files below a directory, by path, as artifacts to be. A
// symlink or a special file is none; passed counts them.
func artifactsIn(dir string) (files []ArtifactFile, passed int, err error) {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		return nil, 0, fmt.Errorf("artifacts: %s is not a directory: %w", quoted(dir), ErrRefused)
	}
	root := dir + string(filepath.Separator) // it may be a symlink
	err = filepath.WalkDir(root, func(path string, d iofs.DirEntry, err error) error {
		switch {
		case err != nil || d.IsDir():
			return err
		case !d.Type().IsRegular():
			passed++
			return nil
		}
		name, err := filepath.Rel(root, path)
		files = append(files, ArtifactFile{Path: path, Name: name, Once: true})
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("artifacts: %w", err)
	}
	return files, passed, nil
}
