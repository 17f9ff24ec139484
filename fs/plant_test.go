package fs_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

// planted is where a session finds and puts objects.
type planted struct {
	snapshot.Session
	holder snapshot.Holder
}

func (p planted) Locate(ctx context.Context, keys []cas.Key) ([]cas.Location, error) {
	return p.holder.Locate(ctx, keys)
}

// plant publishes a tree that never was on a disk: dirs directories with each times
// perDir small files, which are content(i).
func (d *daemon) plant(thread string, dirs, perDir int, content func(i int) []byte) snapshot.Checkpoint {
	t := d.t
	t.Helper()
	return d.plantTree(thread, func(w cas.Writer) tree.Root {
		var top, b tree.Builder
		for dir := range dirs {
			objects := make([]cas.Object, perDir)
			for i := range objects {
				n := dir*perDir + i
				objects[i] = cas.NewObject(cas.Files, cas.Data, content(n))
				require.NoError(t, b.Add(tree.Entry{
					Name: fmt.Sprintf("file-%07d.js", n), Kind: tree.File, Mode: 0o644, Hash: objects[i].Key.Hash, Size: uint64(len(objects[i].Data)), MtimeSec: 1e9 + int64(n),
				}, tree.Totals{}))
			}
			root, segments, err := b.Finish()
			require.NoError(t, err)
			require.NoError(t, w.Put(t.Context(), append(objects, segments...)...))
			require.NoError(t, top.Add(tree.Entry{Name: fmt.Sprintf("dir-%05d", dir), Kind: tree.Dir, Mode: 0o755, Hash: root.Hash}, root.Totals))
		}
		return finish(t, &top, w)
	})
}

// finish puts a directory's objects.
func finish(t *testing.T, b *tree.Builder, w cas.Writer) tree.Root {
	t.Helper()
	root, segments, err := b.Finish()
	require.NoError(t, err)
	require.NoError(t, w.Put(t.Context(), segments...))
	return root
}

// plantTree publishes the tree that build puts.
func (d *daemon) plantTree(thread string, build func(w cas.Writer) tree.Root) snapshot.Checkpoint {
	d.t.Helper()
	return d.plantRecord(thread, func(w cas.Writer, rec *index.Record) {
		root := build(w)
		rec.Root.Tree, rec.Totals = root.Hash, index.Totals(root.Totals)
	})
}

// plantRecord publishes a record that build completes.
func (d *daemon) plantRecord(thread string, build func(w cas.Writer, rec *index.Record)) snapshot.Checkpoint {
	t := d.t
	t.Helper()
	session, err := d.store.Holder().Begin(t.Context(), snapshot.BeginRequest{Thread: thread})
	require.NoError(t, err)
	defer session.Close()
	blobs := local.New(d.dir, planted{session, d.store.Holder()}, local.Options{})
	defer blobs.Close()
	w, err := blobs.NewWriter(t.Context())
	require.NoError(t, err)
	defer w.Close()
	rec := index.Record{
		ID: "planted-" + thread, Thread: thread, Parent: session.Head(), Reason: index.Manual, Created: time.Now().UnixNano(),
		Root: index.Root{Mode: 0o755}, Consistency: index.PerFile,
	}
	build(w, &rec)
	rec.NewBytes = w.Stats().Stored
	data, err := index.Encode(rec)
	require.NoError(t, err)
	obj := cas.NewObject(cas.Records, cas.Data, data)
	require.NoError(t, w.Put(t.Context(), obj))
	require.NoError(t, w.Flush(t.Context()))
	cp, err := session.Publish(t.Context(), snapshot.PublishRequest{Record: obj.Key.Hash})
	require.NoError(t, err)
	return cp
}

// smallFile is the content of the i-th planted file: a third of them are twins.
func smallFile(i int) []byte {
	if i%3 == 0 {
		i %= 300
	}
	return fmt.Appendf(nil, "module %d;%*d\n", i, 20+i%900, i*i)
}
