package badger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/table"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/index"
)

// checkTables verifies every block of every table before Badger opens them.
// Badger opens and compacts tables in goroutines of its own, where damage is a
// panic that nobody can recover from, and a lookup takes a damaged block for an
// empty one: a listing would end early without a word. Damage is errDistrust.
func checkTables(dir string) error {
	paths, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, e := range paths {
		if filepath.Ext(e.Name()) != ".sst" {
			continue
		}
		group.Go(func() error {
			if err := checkTable(filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("%w: table %s: %w", errDistrust, e.Name(), err)
			}
			return nil
		})
	}
	return group.Wait()
}

func checkTable(path string) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.Size() == 0 || !st.Mode().IsRegular() {
		return errors.New("it is empty")
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return &os.PathError{Op: "mmap", Path: path, Err: err}
	}
	defer func() { _ = unix.Munmap(data) }()
	defer guard(&err)
	// A disk that cannot read is a fault in mapped memory.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	t, err := table.OpenInMemoryTable(data, 0, &table.Options{Compression: options.None, BlockSize: blockSize})
	if err != nil {
		return err
	}
	return t.VerifyChecksum()
}

// guard turns a panic of Badger's on damaged bytes into an error. It is deferred
// around Badger's own code only.
func guard(err *error) {
	if p := recover(); p != nil {
		what, _, _ := strings.Cut(strings.TrimSpace(fmt.Sprint(p)), "\n")
		*err = fmt.Errorf("badger panicked: %s: %w", what, index.ErrCorrupt)
	}
}
