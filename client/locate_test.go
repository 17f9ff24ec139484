package client_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/client"
	"github.com/snapfs/snapfs/server"
	"github.com/snapfs/snapfs/snapshot"
)

func itoa(n int) string { return strconv.Itoa(n) }

// keys makes n keys of nothing.
func keys(n int) []cas.Key {
	out := make([]cas.Key, n)
	for i := range out {
		out[i] = cas.Key{NS: cas.Files, Hash: cas.Hash{byte(i), byte(i >> 8), byte(i >> 16), 1}}
	}
	return out
}

// moving counts what is asked, and moves the objects elsewhere when told to.
type moving struct {
	snapshot.Holder
	asked atomic.Int64
	pack  atomic.Int64
}

func (m *moving) Locate(_ context.Context, keys []cas.Key) ([]cas.Location, error) {
	m.asked.Add(int64(len(keys)))
	locs := make([]cas.Location, len(keys))
	for i, k := range keys {
		if k.NS == cas.Files {
			locs[i] = cas.Location{Pack: cas.PackID{byte(m.pack.Load())}, Kind: cas.Data, Plain: 1}
		}
	}
	return locs, nil
}

// serveHolder puts a connection before a holder.
func serveHolder(t *testing.T, dir string, h snapshot.Holder) *client.Holder {
	t.Helper()
	l, err := server.ListenSocket(dir)
	require.NoError(t, err)
	srv := server.New(snapshot.New(dir, h, snapshot.Options{}), server.Options{})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, srv.Shutdown(context.Background()))
		require.NoError(t, <-served)
	})
	return dial(t, dir)
}

func TestLocationsAreRemembered(t *testing.T) {
	dir := newStore(t)
	store, err := snapshot.Open(t.Context(), dir, snapshot.Options{})
	require.NoError(t, err)
	defer store.Close()
	m := &moving{Holder: store.Holder()}
	h := serveHolder(t, dir, m)
	ctx := t.Context()

	some := keys(100)
	_, err = h.Locate(ctx, some)
	require.NoError(t, err)
	locs, err := h.Locate(ctx, some)
	require.NoError(t, err)
	require.EqualValues(t, 100, m.asked.Swap(0))

	// What is nowhere is asked for each time.
	nowhere := []cas.Key{{NS: cas.Trees}}
	for range 2 {
		_, err = h.Locate(ctx, nowhere)
		require.NoError(t, err)
	}
	require.EqualValues(t, 2, m.asked.Swap(0))

	// The pack is rewritten: one reader notices, and nobody is told the old place
	// any more.
	m.pack.Store(7)
	again, err := h.Locate(ctx, some[:1])
	require.NoError(t, err)
	require.Equal(t, locs[:1], again)
	again, err = h.Locate(local.Fresh(ctx), some[:1])
	require.NoError(t, err)
	require.Equal(t, cas.PackID{7}, again[0].Pack)
	again, err = h.Locate(ctx, some)
	require.NoError(t, err)
	for _, at := range again {
		require.Equal(t, cas.PackID{7}, at.Pack)
	}
	require.EqualValues(t, 100, m.asked.Swap(0))

	// It is bounded.
	many := keys(70000)
	_, err = h.Locate(ctx, many)
	require.NoError(t, err)
	m.asked.Store(0)
	_, err = h.Locate(ctx, many[:1])
	require.NoError(t, err)
	require.EqualValues(t, 1, m.asked.Load())
}

// renaming tells new names of packs, as after a gc.
type renaming struct {
	snapshot.Holder
	mu    sync.Mutex
	names map[cas.PackID]cas.PackID
}

func (r *renaming) Locate(ctx context.Context, keys []cas.Key) ([]cas.Location, error) {
	locs, err := r.Holder.Locate(ctx, keys)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, l := range locs {
		if name, ok := r.names[l.Pack]; ok {
			locs[i].Pack = name
		}
	}
	return locs, err
}

// TestReadAfterAPackMoved reads what was located before its pack got another name.
func TestReadAfterAPackMoved(t *testing.T) {
	dir := newStore(t)
	store, err := snapshot.Open(t.Context(), dir, snapshot.Options{})
	require.NoError(t, err)
	defer store.Close()
	r := &renaming{Holder: store.Holder(), names: map[cas.PackID]cas.PackID{}}
	s := snapshot.New(dir, serveHolder(t, dir, r), snapshot.Options{})
	cp := save(t, s, "t", "one", map[string]string{"f": "1"})
	want, err := s.Record(t.Context(), cp)
	require.NoError(t, err)

	r.mu.Lock()
	for id, err := range local.Packs(dir) {
		require.NoError(t, err)
		name := cas.PackID{0xff, id[0], id[1]}
		r.names[id] = name
		to := filepath.Join(dir, "packs", "ff", name.String()+".pack")
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o700))
		require.NoError(t, os.Rename(filepath.Join(dir, "packs", id.String()[:2], id.String()+".pack"), to))
	}
	r.mu.Unlock()
	require.NoError(t, s.Blobs().(*local.Store).Close()) // the files that are open
	got, err := s.Record(t.Context(), cp)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func BenchmarkRoundTrip(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "store")
	store, err := snapshot.Open(b.Context(), dir, snapshot.Options{Create: true})
	require.NoError(b, err)
	defer store.Close()
	workspace := b.TempDir()
	for i := range 200 {
		require.NoError(b, os.WriteFile(filepath.Join(workspace, itoa(i)), []byte("content "+itoa(i)), 0o644))
	}
	_, err = store.Save(b.Context(), snapshot.SaveOptions{Workspace: workspace, Thread: "t"})
	require.NoError(b, err)
	var there []cas.Key
	for i := range 128 {
		there = append(there, cas.NewObject(cas.Files, cas.Data, []byte("content "+itoa(i))).Key)
	}
	l, err := server.ListenSocket(dir)
	require.NoError(b, err)
	srv := server.New(store, server.Options{})
	go func() { _ = srv.Serve(l) }()
	defer func() { _ = srv.Shutdown(context.Background()) }()
	h, err := client.Dial(b.Context(), dir)
	require.NoError(b, err)
	defer h.Close()
	for _, side := range []struct {
		name   string
		holder snapshot.Holder
	}{{"in process", store.Holder()}, {"client", h}} {
		b.Run("resolve/"+side.name, func(b *testing.B) {
			for b.Loop() {
				_, err := side.holder.Resolve(b.Context(), "t@latest")
				require.NoError(b, err)
			}
		})
		b.Run("locate 128/"+side.name, func(b *testing.B) {
			ctx := local.Fresh(b.Context())
			for b.Loop() {
				locs, err := side.holder.Locate(ctx, there)
				require.NoError(b, err)
				require.False(b, locs[0].IsZero())
			}
		})
		b.Run("begin and end/"+side.name, func(b *testing.B) {
			for b.Loop() {
				s, err := side.holder.Begin(b.Context(), snapshot.BeginRequest{Thread: "u"})
				require.NoError(b, err)
				require.NoError(b, s.Close())
			}
		})
	}
	b.Run("locate 128/client, remembered", func(b *testing.B) {
		for b.Loop() {
			_, err := h.Locate(b.Context(), there)
			require.NoError(b, err)
		}
	})
	b.Run("dial", func(b *testing.B) {
		for b.Loop() {
			h, err := client.Dial(b.Context(), dir)
			require.NoError(b, err)
			require.NoError(b, h.Close())
		}
	})
}
