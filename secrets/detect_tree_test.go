package secrets_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/secrets"
)

// TestScanTree prints what the detectors find below SNAPFS_SCAN_TREE, to look for false
// alarms:
//
//	SNAPFS_SCAN_TREE=DIR go test ./secrets -run TestScanTree -v
func TestScanTree(t *testing.T) {
	root := os.Getenv("SNAPFS_SCAN_TREE")
	if root == "" {
		t.Skip("SNAPFS_SCAN_TREE names no directory")
	}
	var files, size, findings int
	var spent time.Duration
	byKind := map[string]int{}
	require.NoError(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		size += len(content)
		start := time.Now()
		scanPieces(content, 1<<20, func(off int64, f secrets.Finding) bool {
			t.Logf("%s:%d (byte %d) %s", path, f.Line, off, f.Kind)
			byKind[f.Kind]++
			findings++
			return true
		})
		spent += time.Since(start)
		return nil
	}))
	require.NotZero(t, files)
	t.Logf("%d files, %d bytes, %d findings %v; %.2f GB/s", files, size, findings, byKind, float64(size)/1e9/spent.Seconds())
}
