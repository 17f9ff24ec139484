package capture

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/soak"
)

// secret is in everything outside of the workspace, names and attributes included, and
// nowhere in it.
const secret = "TOP-SECRET"

// TestSwappedDirectories: while saves go on, somebody exchanges directories and files of
// the workspace for symlinks that lead out, to directories and files that have the
// names which lie in it. Whatever becomes of the saves, nothing from outside is stored:
// no content, no name, no attribute, no link's target.
func TestSwappedDirectories(t *testing.T) {
	top, err := os.MkdirTemp("/dev/shm", "snapfs-test-")
	if err != nil {
		top = t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(top)) })
	ws, outside, links := filepath.Join(top, "ws"), filepath.Join(top, "outside"), filepath.Join(top, "links")
	inside, out := map[string]string{}, map[string]string{}
	var below []string
	for _, dir := range []string{"a", "a/b", "a/b/c", "d", "d/e", "f"} {
		below = append(below, dir, dir+"/file", dir+"/large")
		inside[dir+"/file"], out[dir+"/file"] = "of the workspace", secret
		inside[dir+"/large"], out[dir+"/large"] = strings.Repeat("large", 10_000), strings.Repeat(secret, 200_000)
		out[dir+"/"+secret] = secret
	}
	write(t, ws, inside)
	write(t, outside, out)
	require.NoError(t, os.Mkdir(links, 0o755))
	for _, path := range below {
		path = filepath.Join(outside, path)
		if err := unix.Setxattr(path, "user.secret", []byte(secret), 0); err != nil {
			require.ErrorIs(t, err, unix.ENOTSUP)
		}
		require.NoError(t, os.Symlink(secret, filepath.Join(filepath.Dir(path), "link "+filepath.Base(path))))
	}

	stop := make(chan struct{})
	var wg sync.WaitGroup
	swaps := 0
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			name := below[rand.IntN(len(below))]
			path, link := filepath.Join(ws, name), filepath.Join(links, fmt.Sprint(i))
			to := filepath.Join(outside, below[rand.IntN(len(below))])
			if rand.IntN(2) == 0 {
				to = filepath.Join(outside, name)
			}
			if os.Symlink(to, link) != nil {
				continue
			}
			if unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE) == nil {
				time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond)
				_ = unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
				swaps++
			}
			_ = os.Remove(link)
		}
	})
	patience := 1500 * time.Millisecond
	if soak.Large() {
		patience = time.Minute
	}
	ended, failed := 0, 0
	for began := time.Now(); time.Since(began) < patience; {
		m := newMemory()
		if _, err := captureAll(t, ws, m); err != nil {
			failed++
		} else {
			ended++
		}
		for key, data := range m.objects {
			require.False(t, bytes.Contains(data, []byte(secret)), "%s was stored", key)
		}
	}
	close(stop)
	wg.Wait()
	t.Logf("%d saves ended, %d failed, %d swaps", ended, failed, swaps)
	require.Positive(t, swaps)
}
