package capture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// memory is a store in memory and its own writer. onPut runs before objects are
// taken, one call at a time; its error is Put's.
type memory struct {
	onPut   func(objs []cas.Object) error
	putting sync.Mutex

	mu      sync.Mutex
	objects map[cas.Key][]byte
}

func newMemory() *memory { return &memory{objects: map[cas.Key][]byte{}} }

func (m *memory) Put(ctx context.Context, objs ...cas.Object) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if m.onPut != nil {
		m.putting.Lock()
		err := m.onPut(objs)
		m.putting.Unlock()
		if err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range objs {
		m.objects[o.Key] = append([]byte(nil), o.Data...)
	}
	return nil
}

func (m *memory) Read(_ context.Context, key cas.Key, dst []byte) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data, ok := m.objects[key]
	if !ok {
		return nil, fmt.Errorf("%s: %w", key, cas.ErrNotFound)
	}
	return append(dst, data...), nil
}

func (m *memory) Flush(context.Context) error { return nil }
func (m *memory) Stats() cas.WriterStats      { return cas.WriterStats{} }
func (m *memory) Close() error                { return nil }

// size is what all objects take together, in bytes.
func (m *memory) size() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, data := range m.objects {
		n += len(data)
	}
	return n
}

// content reads a file of a captured tree back.
func (m *memory) content(t *testing.T, e tree.Entry) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, cas.CopyBlob(t.Context(), &b, m, cas.Files, cas.Blob{Hash: e.Hash, Size: int64(e.Size)}))
	return b.String()
}

// entries is everything in a captured tree, by path.
func (m *memory) entries(t *testing.T, got Result) map[string]tree.Entry {
	t.Helper()
	r := tree.NewReader(m, 1<<20)
	require.NoError(t, tree.Verify(t.Context(), r, got.Root.Hash))
	all := map[string]tree.Entry{}
	require.NoError(t, tree.Walk(t.Context(), r, got.Root.Hash, func(path string, e tree.Entry) error {
		all[path] = e
		return nil
	}))
	return all
}

// links are a captured tree's groups of hard links.
func (m *memory) links(t *testing.T, got Result) [][]string {
	t.Helper()
	if got.Links == (cas.Blob{}) {
		return nil
	}
	data, err := m.Read(t.Context(), cas.Key{NS: cas.Trees, Hash: got.Links.Hash}, nil)
	require.NoError(t, err)
	groups, err := tree.DecodeLinks(data)
	require.NoError(t, err)
	return groups
}

// rules compiles excludes without the defaults.
func rules(t *testing.T, exclude ...string) *policy.Files {
	t.Helper()
	opt := policy.FilesOptions{NoDefaults: true}
	for _, p := range exclude {
		opt.Exclude = append(opt.Exclude, policy.Rule{Pattern: p, Source: "--exclude"})
	}
	files, err := policy.CompileFiles(opt)
	require.NoError(t, err)
	return files
}

// captureAll captures everything in dir.
func captureAll(t *testing.T, dir string, m *memory) (Result, error) {
	t.Helper()
	return Tree(t.Context(), dir, m, Options{Files: rules(t)})
}

// known is what a capture found, as the next one gets it.
func known(t *testing.T, got Result) *Known {
	t.Helper()
	k, binding, err := DecodeKnown(got.Known.Encode([]byte("binding")))
	require.NoError(t, err)
	require.Equal(t, "binding", string(binding))
	return k
}

// captureInOrder captures everything in dir with one worker: of each directory the
// files by name, then what lies in directories. looked is told when a directory was
// listed, or a file looked at and not read yet.
func captureInOrder(t *testing.T, dir string, m *memory, looked func(path string)) (Result, error) {
	t.Helper()
	return captureWith(t, dir, m, 1, func(w *walker) { w.looked = looked })
}

// captureWith captures everything in dir with as many workers, and with what setup
// changes.
func captureWith(t *testing.T, dir string, m *memory, workers int, setup func(*walker)) (Result, error) {
	t.Helper()
	root, err := openRoot(dir)
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	w := newWalker(ctx, cancel, m)
	w.opt.Files = rules(t)
	setup(w)
	return w.run(root, workers)
}

// write makes files with their directories; a name that ends in a slash is an
// empty directory.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, data := range files {
		path := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			require.NoError(t, os.MkdirAll(path, 0o755))
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(data), 0o644))
	}
}

// overwrite writes data at an offset of a file, which it makes if need be.
func overwrite(path string, at int64, data string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(data), at)
	return errors.Join(err, f.Close())
}

// appendTo adds bytes to a file.
func appendTo(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// needRoot skips what only root can set up.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// mountTmpfs mounts a small file system and detaches it when the test ends.
func mountTmpfs(t *testing.T, dir string) {
	t.Helper()
	needRoot(t)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("cannot mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
}

// problems returns the paths of a failed capture's offenders.
func problems(t *testing.T, err error) map[string]string {
	t.Helper()
	require.ErrorIs(t, err, ErrUnsavable)
	var all *ProblemsError
	require.ErrorAs(t, err, &all)
	paths := map[string]string{}
	for _, p := range all.Problems {
		paths[p.Path] = p.Err.Error()
	}
	require.Len(t, paths, len(all.Problems), "a path is named twice")
	return paths
}

// sortedKeys returns the paths of a tree.
func sortedKeys(all map[string]tree.Entry) []string { return slices.Sorted(maps.Keys(all)) }
