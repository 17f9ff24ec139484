package badger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/index/indextest"
)

// hold lists the files of a store that hold a text.
func (s *store) hold(text string) (files []string) {
	s.Helper()
	require.NoError(s, filepath.WalkDir(s.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), text) {
			files = append(files, path)
		}
		return err
	}))
	return files
}

// TestRenew: what was deleted is nowhere any more, everything else is as it was, and
// the index goes on.
func TestRenew(t *testing.T) {
	s := newStore(t)
	rec := indextest.Record("v", "secret-id", "")
	rec.Message = "secret-message"
	cp, err := indextest.Publish(s, s.ix, s.packs, "acme", "secret-name", rec)
	require.NoError(t, err)
	blob := index.Blob{Hash: cas.Data.Sum(nil), Size: 1}
	require.NoError(t, s.ix.AddArtifact(t.Context(), "acme", "v", index.Artifact{ID: "secret-artifact", Name: "secret-file", Blob: blob}))
	_, _, err = s.ix.Delete(t.Context(), "acme", "secret-id")
	require.NoError(t, err)
	received, err := s.ix.Publish(t.Context(), index.Publish{
		Org: "acme", Record: indextest.Store(s, s.ix, s.packs, indextest.Record("v", "secret-received", "secret-parent")),
		Name: "secret-name", Received: index.Received{Store: "secret-store", Seq: 7},
	})
	require.NoError(t, err)
	_, _, err = s.ix.Delete(t.Context(), "acme", "secret-received")
	require.NoError(t, err)
	s.packs.Lose(received.RecordHash)
	s.packs.Lose(cp.RecordHash)
	require.NoError(t, s.ix.RemoveArtifact(t.Context(), "acme", "v", "secret-artifact"))
	require.NoError(t, s.ix.AddArtifact(t.Context(), "acme", "secret-thread", index.Artifact{ID: "a", Name: "secret-file", Blob: blob}))
	require.NoError(t, s.ix.DeleteThread(t.Context(), "acme", "secret-thread"))
	want := s.fill()
	require.NotEmpty(t, s.hold("secret-"))

	require.NoError(t, s.ix.Renew(t.Context(), s.ix.Last()))
	require.Empty(t, s.hold("secret-"))
	require.Equal(t, want, s.dump())
	s.publish("c-9", "c-2")
	want = s.dump()
	require.NoError(t, s.ix.Renew(t.Context(), s.ix.Last()))
	require.Equal(t, want, s.dump())
	require.NoError(t, s.ix.Close())
	require.ErrorIs(t, s.ix.Renew(t.Context(), 1), index.ErrClosed)
	s.ix = s.open("boot-1")
	require.Empty(t, s.ix.Rebuilt())
	require.Equal(t, want, s.dump())
	require.Empty(t, s.hold("secret-"))

	// Killed in the middle of everything else.
	require.NoError(t, s.ix.Renew(t.Context(), s.ix.Last()))
	s.crash()
	s.ix = s.open("boot-1")
	require.Equal(t, want, s.dump())
}

// TestRenewBesideCalls: calls wait and go on.
func TestRenewBesideCalls(t *testing.T) {
	s := newStore(t)
	want := s.fill()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				_, err := s.ix.Checkpoint(t.Context(), "acme", "c-1")
				if err == nil && i == 0 {
					_, err = s.ix.Rename(t.Context(), "acme", "c-1", fmt.Sprint("name ", n))
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 5 {
		require.NoError(t, s.ix.Renew(t.Context(), s.ix.Last()))
	}
	close(stop)
	wg.Wait()
	_, err := s.ix.Rename(t.Context(), "acme", "c-1", "")
	require.NoError(t, err)
	require.Equal(t, want, s.dump())
}

// TestRenewWhileListed: a listing that does not end keeps it from beginning, and a
// listing's consumer may call.
func TestRenewWhileListed(t *testing.T) {
	s := newStore(t)
	want := s.fill()
	for _, err := range s.ix.Threads(t.Context(), "acme", index.Page{}) {
		require.NoError(t, err)
		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, index.ErrInUse)
		require.ErrorIs(t, s.ix.Renew(ctx, s.ix.Last()), index.ErrInUse)
		cancel()
		_, err = s.ix.Checkpoint(t.Context(), "acme", "c-1")
		require.NoError(t, err)
		break
	}
	require.NoError(t, s.ix.Renew(t.Context(), s.ix.Last()))
	require.Equal(t, want, s.dump())

	opt := testOptions(t.TempDir(), s.packs)
	opt.InMemory = true
	mem, err := Open(t.Context(), s.path("none"), opt)
	require.NoError(t, err)
	defer mem.Close()
	require.ErrorIs(t, mem.Renew(t.Context(), 0), errors.ErrUnsupported)
}
