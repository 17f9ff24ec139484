package snapshot

import (
	"archive/tar"
	"context"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/progress"
	"github.com/snapfs/snapfs/tree"
)

// Export writes a checkpoint as an archive that [Store.Import] and every tar reads: its
// files, artifacts, conversation and record, laid out as on a mount. A checkpoint always
// gives the same bytes, and equal trees give equal bytes below files/. All content is
// verified by its hashes while it is read. After an error the archive has no end, so that
// nothing takes it for whole.
func (s *Store) Export(ctx context.Context, ref string, out io.Writer, format ArchiveFormat) (cp Checkpoint, err error) {
	ctx = local.ByHash(ctx)
	cp, rec, err := s.record(ctx, ref)
	if err != nil {
		return cp, err
	}
	if format == TarZstd {
		z, err := local.NewStreamWriter(out)
		if err != nil {
			return cp, err
		}
		defer z.Abandon()
		if err = s.export(ctx, cp, rec, z); err == nil {
			err = z.Close()
		}
		return cp, err
	}
	return cp, s.export(ctx, cp, rec, out)
}

// export writes the archive, packed or not.
func (s *Store) export(ctx context.Context, cp Checkpoint, rec index.Record, out io.Writer) error {
	e := &exporter{Store: s, rec: rec, meter: progress.From(ctx), tw: tar.NewWriter(out), out: out}
	e.meter.Expect(int64(rec.Totals.Files), int64(rec.Totals.Bytes))
	err := e.head(ctx, cp)
	if err == nil {
		err = e.files(ctx)
	}
	if err == nil {
		err = e.artifacts(ctx)
	}
	if err == nil && !rec.Conversation.IsZero() {
		err = e.blob(ctx, conversationName, cas.Conversations, casBlob(rec.Conversation), rec.Created)
	}
	if err == nil {
		err = e.tw.Close() // which alone writes the end
	}
	if err != nil {
		return fmt.Errorf("export checkpoint %s: %w", quoted(cp.ID), err)
	}
	return nil
}

// An exporter writes one archive.
type exporter struct {
	*Store
	rec   index.Record
	meter *progress.Meter
	out   io.Writer
	tw    *tar.Writer // to out
}

// head writes what stands before the files: the mark, the record with what it names, and
// what a mount shows of it.
func (e *exporter) head(ctx context.Context, cp Checkpoint) error {
	hash, err := cas.ParseHash(cp.Record)
	if err != nil {
		return fmt.Errorf("record: %w: %w", err, cas.ErrCorrupt)
	}
	data, err := e.blobs.Read(ctx, cas.Key{NS: cas.Records, Hash: hash}, nil)
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	mark := map[string]string{paxComment: archiveMark + archiveVersion + " " + hash.String()}
	if err := e.tw.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: archiveHeader, PAXRecords: mark}); err != nil {
		return err
	}
	if err := e.folder(recordFolder); err != nil {
		return err
	}
	if err := e.bytes(recordName, data); err != nil {
		return err
	}
	for _, p := range recordParts {
		blob := *p.blob(&e.rec)
		if blob.IsZero() {
			continue
		}
		if blob.Size > uint64(p.most) {
			return fmt.Errorf("%s: %d bytes, at most %d can be: %w", p.name, blob.Size, p.most, cas.ErrCorrupt)
		}
		if err := e.blob(ctx, p.name, cas.Records, casBlob(blob), e.rec.Created); err != nil {
			return err
		}
	}
	if data, err = e.Describe(ctx, cp); err != nil {
		return err
	}
	return e.bytes(checkpointName, data)
}

// files writes the workspace. The walk, those who read and pack small files, and the one
// who writes them in order work beside one another.
func (e *exporter) files(ctx context.Context) error {
	links, err := e.readLinks(ctx)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	queue, work := make(chan *exportBatch, exportAhead), make(chan *exportBatch, exportAhead)
	group.Go(func() error {
		defer close(queue)
		defer close(work)
		walk := exportWalk{ctx: ctx, links: links, queue: queue, work: work}
		if err := walk.add("", RootEntry(e.rec)); err != nil {
			return err
		}
		if err := tree.Walk(ctx, e.trees, e.rec.Root.Tree, walk.add); err != nil {
			return err
		}
		return walk.flush()
	})
	for range exportWorkers() {
		group.Go(func() error {
			for b := range work {
				b.err = e.pack(ctx, b)
				close(b.done)
			}
			return nil
		})
	}
	group.Go(func() error {
		for b := range queue {
			if err := e.write(ctx, b); err != nil {
				return err
			}
		}
		return ctx.Err()
	})
	return group.Wait()
}

// write writes a batch once it is packed.
func (e *exporter) write(ctx context.Context, b *exportBatch) error {
	select {
	case <-b.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if b.err != nil {
		return b.err
	}
	// Whole entries with their padding: e.tw stands between two of its own.
	if _, err := e.out.Write(b.packed.Bytes()); err != nil {
		return err
	}
	if !b.large {
		for _, f := range b.entries {
			switch f.Kind {
			case tree.File:
				e.meter.Add(1, int64(f.Size))
			case tree.Symlink:
				e.meter.Add(1, 0)
			}
		}
		return nil
	}
	f := b.entries[0]
	content := meteredWriter{e.tw, e.meter}
	hdr, err := e.header(ctx, f)
	if err == nil {
		err = e.tw.WriteHeader(hdr)
	}
	if err == nil {
		err = cas.CopyBlob(ctx, content, e.blobs, cas.Files, f.content())
	}
	if err == nil {
		err = e.tw.Flush()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", quoted(f.path), err)
	}
	e.meter.Add(1, 0)
	return nil
}

// meteredWriter shows what is written on the meter.
type meteredWriter struct {
	w     io.Writer
	meter *progress.Meter
}

// Write implements [io.Writer].
func (m meteredWriter) Write(b []byte) (int, error) {
	n, err := m.w.Write(b)
	m.meter.Add(0, int64(n))
	return n, err
}

// artifacts writes the artifacts under the names that a mount gives them.
func (e *exporter) artifacts(ctx context.Context) error {
	if err := e.folder(artifactsFolder); err != nil {
		return err
	}
	list, err := readArtifacts(ctx, e.blobs, e.rec)
	if err != nil {
		return err
	}
	for i, name := range ArtifactNames(newArtifacts(list)) {
		if err := e.blob(ctx, artifactsFolder+"/"+name, cas.Artifacts, casBlob(list[i].Blob), list[i].Created); err != nil {
			return err
		}
	}
	return nil
}

// plain is the header of an entry that no tree has. It belongs to the workspace's owner.
func (e *exporter) plain(name string, mode int64, created int64) *tar.Header {
	hdr := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Uid: int(e.rec.Root.UID), Gid: int(e.rec.Root.GID), Format: tar.FormatPAX}
	setTime(hdr, created/1e9, created%1e9)
	return hdr
}

func (e *exporter) folder(name string) error {
	hdr := e.plain(name+"/", 0o755, e.rec.Created)
	hdr.Typeflag = tar.TypeDir
	return e.tw.WriteHeader(hdr)
}

func (e *exporter) bytes(name string, data []byte) error {
	hdr := e.plain(name, 0o644, e.rec.Created)
	hdr.Size = int64(len(data))
	err := e.tw.WriteHeader(hdr)
	if err == nil {
		_, err = e.tw.Write(data)
	}
	if err == nil {
		err = e.tw.Flush()
	}
	return err
}

func (e *exporter) blob(ctx context.Context, name string, ns cas.Namespace, b cas.Blob, created int64) error {
	hdr := e.plain(name, 0o644, created)
	hdr.Size = b.Size
	err := e.tw.WriteHeader(hdr)
	if err == nil {
		err = cas.CopyBlob(ctx, e.tw, e.blobs, ns, b)
	}
	if err == nil {
		err = e.tw.Flush()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", quoted(name), err)
	}
	return nil
}
