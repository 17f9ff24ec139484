package disktest

import (
	"os"
	"testing"
)

// Memory returns a temporary directory in memory, where there is such, for what no test needs
// to be durable.
func Memory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "snapfs-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
