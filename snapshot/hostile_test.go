package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/soak"
	"github.com/snapfs/snapfs/tree"
)

// A crafter stores what no save would.
type crafter struct {
	t *testing.T
	w cas.Writer
}

// object stores bytes by their right name.
func (c *crafter) object(ns cas.Namespace, kind cas.Kind, data []byte) cas.Hash {
	c.t.Helper()
	obj := cas.NewObject(ns, kind, data)
	require.NoError(c.t, c.w.Put(c.t.Context(), obj))
	return obj.Key.Hash
}

// blob stores bytes as they should be.
func (c *crafter) blob(ns cas.Namespace, data []byte) index.Blob {
	c.t.Helper()
	b, err := cas.WriteBlob(c.t.Context(), c.w, ns, bytes.NewReader(data))
	require.NoError(c.t, err)
	return blobRef(b)
}

// zeros is a blob of n zeros, which takes some bytes in the store.
func (c *crafter) zeros(ns cas.Namespace, n int64) index.Blob {
	c.t.Helper()
	data, err := cas.EncodeList([]cas.Chunk{{Len: n}})
	require.NoError(c.t, err)
	return index.Blob{Hash: c.object(ns, cas.List, data), Size: uint64(n)}
}

// repeated is a blob of n times the same chunk.
func (c *crafter) repeated(ns cas.Namespace, n int) index.Blob {
	c.t.Helper()
	one := cas.Chunk{Len: cas.MaxChunk, Hash: c.object(ns, cas.Data, make([]byte, cas.MaxChunk))}
	data, err := cas.EncodeList(slices.Repeat([]cas.Chunk{one}, n))
	require.NoError(c.t, err)
	return index.Blob{Hash: c.object(ns, cas.List, data), Size: uint64(n) * cas.MaxChunk}
}

// dir stores a directory and returns an entry for it. Totals are what the entries are
// said to have.
func (c *crafter) dir(name string, below map[string]tree.Totals, entries ...tree.Entry) (tree.Entry, tree.Totals) {
	c.t.Helper()
	var b tree.Builder
	for _, e := range entries {
		require.NoError(c.t, b.Add(e, below[e.Name]))
	}
	root, objs, err := b.Finish()
	require.NoError(c.t, err)
	require.NoError(c.t, c.w.Put(c.t.Context(), objs...))
	return tree.Entry{Name: name, Kind: tree.Dir, Mode: 0o755, Hash: root.Hash}, root.Totals
}

// file stores a file's content and returns its entry.
func (c *crafter) file(name, data string) tree.Entry {
	return tree.Entry{Name: name, Kind: tree.File, Mode: 0o644, Hash: c.object(cas.Files, cas.Data, []byte(data)), Size: uint64(len(data))}
}

// craft publishes a checkpoint, of one small file unless change makes something else
// of it.
func craft(t *testing.T, s *Store, id string, change func(c *crafter, rec *index.Record)) {
	t.Helper()
	session := begin(t, s, BeginRequest{Thread: id})
	defer session.Close()
	blobs := local.New(s.dir, inSession{s.holder, session}, local.Options{})
	defer blobs.Close()
	w, err := blobs.NewWriter(t.Context())
	require.NoError(t, err)
	defer w.Close()
	c := &crafter{t, w}
	root, totals := c.dir("", nil, c.file("f", "content"))
	rec := index.Record{ID: id, Thread: id, Reason: index.Manual, Created: 1e18, Root: index.Root{Tree: root.Hash, Mode: 0o755}, Totals: index.Totals(totals), Consistency: index.PerFile}
	change(c, &rec)
	_, err = publish(t.Context(), session, w, rec, PublishRequest{})
	require.NoError(t, err)
}

// rooted makes a directory the root of a record.
func rooted(rec *index.Record, root tree.Entry, totals tree.Totals) {
	rec.Root.Tree, rec.Totals = root.Hash, index.Totals(totals)
}

// readers are all ways to look at a checkpoint. A reader that writes something does it
// below dir.
var readers = map[string]func(ctx context.Context, s *Store, ref, dir string) error{
	"show": func(ctx context.Context, s *Store, ref, _ string) error { _, err := s.Show(ctx, ref); return err },
	"describe": func(ctx context.Context, s *Store, ref, _ string) error {
		cp, err := s.Resolve(ctx, ref)
		if err != nil {
			return err
		}
		_, err = s.Describe(ctx, cp)
		return err
	},
	"ls": func(ctx context.Context, s *Store, ref, _ string) error {
		return s.Ls(ctx, ref, "", true, func(string, tree.Entry) error { return nil })
	},
	"cat":          func(ctx context.Context, s *Store, ref, _ string) error { return s.Cat(ctx, ref, "f", io.Discard) },
	"conversation": func(ctx context.Context, s *Store, ref, _ string) error { return s.Conversation(ctx, ref, io.Discard) },
	"artifacts":    func(ctx context.Context, s *Store, ref, _ string) error { _, err := s.Artifacts(ctx, ref); return err },
	"artifact": func(ctx context.Context, s *Store, ref, _ string) error {
		return s.ReadArtifact(ctx, ref, "a", io.Discard)
	},
	"diff": func(ctx context.Context, s *Store, ref, _ string) error {
		return s.Diff(ctx, "plain", ref, DiffOptions{}, func(tree.Change) error { return nil })
	},
	"restore": func(ctx context.Context, s *Store, ref, dir string) error {
		_, err := s.Restore(ctx, ref, RestoreOptions{Dir: dir})
		return err
	},
	"fork": func(ctx context.Context, s *Store, ref, _ string) error {
		_, err := s.Fork(ctx, ref, ForkOptions{Thread: "fork of " + ref})
		return err
	},
	"gc": func(ctx context.Context, s *Store, _, _ string) error { _, err := s.GC(ctx, GCRequest{}); return err },
	"verify": func(ctx context.Context, s *Store, ref, _ string) error {
		var found error
		_, err := s.Verify(ctx, VerifyOptions{Ref: ref}, func(problem string) error {
			found = fmt.Errorf("%s: %w", problem, cas.ErrCorrupt)
			return nil
		})
		return errors.Join(err, found)
	},
}

// TestHostileCheckpoints: whatever somebody who made a store put into it, a reader
// either does not come to it or says that it is damage, soon, and with little memory.
// No restore leaves anything then.
func TestHostileCheckpoints(t *testing.T) {
	const huge = 1 << 60
	blobs := func(set func(rec *index.Record, b index.Blob), ns cas.Namespace) map[string]func(c *crafter, rec *index.Record) {
		return map[string]func(c *crafter, rec *index.Record){
			"zeros":    func(c *crafter, rec *index.Record) { set(rec, c.zeros(ns, huge)) },
			"repeated": func(c *crafter, rec *index.Record) { set(rec, c.repeated(ns, soak.Rounds(20_000, 100_000))) },
			"longer": func(c *crafter, rec *index.Record) {
				b := c.blob(ns, []byte("3 B"))
				b.Size++
				set(rec, b)
			},
			"of another kind": func(c *crafter, rec *index.Record) {
				b := c.zeros(ns, 2<<20)
				b.Size = 25
				set(rec, b)
			},
			"most": func(c *crafter, rec *index.Record) {
				b := c.blob(ns, []byte("3 B"))
				b.Size = math.MaxInt64
				set(rec, b)
			},
			"nothing": func(_ *crafter, rec *index.Record) { set(rec, index.Blob{Hash: cas.Hash{1}, Size: 10}) },
		}
	}
	type test struct {
		craft func(c *crafter, rec *index.Record)
		fails string // readers, with spaces between them; all others do not mind
	}
	tests := map[string]test{}
	for part, p := range map[string]struct {
		set   func(rec *index.Record, b index.Blob)
		ns    cas.Namespace
		fails string
	}{
		"conversation": {func(rec *index.Record, b index.Blob) { rec.Conversation = b }, cas.Conversations, "conversation verify"},
		"policy":       {func(rec *index.Record, b index.Blob) { rec.Policy = b }, cas.Records, "show describe verify"},
		"omissions":    {func(rec *index.Record, b index.Blob) { rec.Omissions, rec.OmissionCount = b, 1 }, cas.Records, "show describe verify"},
		"secrets":      {func(rec *index.Record, b index.Blob) { rec.Secrets, rec.FindingCount = b, 1 }, cas.Records, "show describe verify"},
		"artifacts":    {func(rec *index.Record, b index.Blob) { rec.Artifacts, rec.ArtifactCount = b, 1 }, cas.Records, "artifacts artifact fork gc verify"},
		"hard links":   {func(rec *index.Record, b index.Blob) { rec.Links = b }, cas.Trees, "restore verify"},
	} {
		for how, craft := range blobs(p.set, p.ns) {
			fails := p.fails
			if (how == "nothing" || how == "most") && !strings.Contains(fails, "gc") {
				fails += " gc" // which needs the object
			}
			if how == "of another kind" && (part == "conversation" || part == "policy") {
				fails = "verify" // any bytes will do
			}
			tests[part+" "+how] = test{craft, fails}
		}
	}
	list := func(change func(a []index.Artifact) []index.Artifact) func(c *crafter, rec *index.Record) {
		return func(c *crafter, rec *index.Record) {
			data, err := artifactEnc.Marshal(change([]index.Artifact{{ID: "a", Name: "n", MediaType: "text/plain", Blob: c.blob(cas.Artifacts, []byte("1")), Created: 1}}))
			require.NoError(c.t, err)
			rec.Artifacts, rec.ArtifactCount = c.blob(cas.Records, data), 1
		}
	}
	const artifactReaders = "artifacts artifact fork gc verify"
	tests["artifact twice"] = test{list(func(a []index.Artifact) []index.Artifact { return append(a, a[0]) }), artifactReaders}
	tests["artifacts of one name and no id"] = test{list(func(a []index.Artifact) []index.Artifact {
		a[0].ID = ""
		return slices.Repeat(a, soak.Rounds(20_000, 100_000))
	}), artifactReaders}
	tests["artifact without a name"] = test{list(func(a []index.Artifact) []index.Artifact { a[0].Name = ""; return a }), artifactReaders}
	tests["artifact with a long name"] = test{list(func(a []index.Artifact) []index.Artifact { a[0].Name = strings.Repeat("x", 1<<20); return a }), artifactReaders}
	tests["artifact of a negative length"] = test{list(func(a []index.Artifact) []index.Artifact { a[0].Blob.Size = 1 << 63; return a }), artifactReaders}
	tests["artifact that is longer than its content"] = test{list(func(a []index.Artifact) []index.Artifact { a[0].Blob.Size++; return a }), "artifact verify"}
	tests["artifact that leads out"] = test{list(func(a []index.Artifact) []index.Artifact { a[0].Name = "../../etc/passwd"; return a }), ""}

	file := func(change func(c *crafter, e *tree.Entry)) func(c *crafter, rec *index.Record) {
		return func(c *crafter, rec *index.Record) {
			e := c.file("f", "content")
			change(c, &e)
			root, totals := c.dir("", nil, e)
			rooted(rec, root, totals)
		}
	}
	tests["file of an exbibyte and three bytes"] = test{file(func(c *crafter, e *tree.Entry) { e.Size = huge }), "cat restore gc verify"}
	tests["file of the longest length"] = test{file(func(c *crafter, e *tree.Entry) { e.Size = math.MaxInt64 }), "cat restore gc verify"}
	tests["file of three bytes and a gibibyte"] = test{file(func(c *crafter, e *tree.Entry) { e.Hash, e.Size = c.zeros(cas.Files, 1<<30).Hash, 3 }), "cat restore verify"}
	tests["file of three bytes and 60 MiB"] = test{file(func(c *crafter, e *tree.Entry) {
		e.Hash, e.Size = c.object(cas.Files, cas.Data, make([]byte, 60<<20)), 3
	}), "cat restore verify"}
	tests["file that is a directory"] = test{file(func(c *crafter, e *tree.Entry) { d, _ := c.dir("", nil); e.Hash, e.Size = d.Hash, 4 }), "cat restore gc verify"}
	tests["list with a chunk that is shorter"] = test{file(func(c *crafter, e *tree.Entry) {
		data, err := cas.EncodeList([]cas.Chunk{{Len: 2 << 20, Hash: c.object(cas.Files, cas.Data, make([]byte, 1<<20))}})
		require.NoError(c.t, err)
		e.Hash, e.Size = c.object(cas.Files, cas.List, data), 2<<20
	}), "cat restore verify"}
	for name, chunks := range map[string]string{
		"chunk of nothing":  "\x01\x00\x00\x00\x00" + strings.Repeat("h", 32),
		"no run of zeros":   "\x02" + strings.Repeat("\x00", 8),
		"negative zeros":    "\x02\x00\x00\x00\x00\x00\x00\x00\x80",
		"too many zeros":    "\x02\x00\x00\x00\x00\x00\x00\x00\x10",
		"a cut entry":       "\x01\x00",
		"an unknown entry":  "\x03\x00\x00\x00\x00\x00\x00\x00\x10",
		"no entry":          "",
		"zeros after zeros": "\x02\x00\x00\x10\x00\x00\x00\x00\x00\x02\x00\x00\x10\x00\x00\x00\x00\x00",
	} {
		tests["list with "+name] = test{file(func(c *crafter, e *tree.Entry) {
			e.Hash, e.Size = c.object(cas.Files, cas.List, []byte("SFCL\x01\x00\x00\x00\x00\x00\x20\x00\x00\x00\x00\x00"+chunks)), 2<<20
		}), "cat restore gc verify"}
	}
	chunks := soak.Rounds(50_000, 1_000_000)
	tests["very many chunks"] = test{file(func(c *crafter, e *tree.Entry) {
		one := cas.Chunk{Len: 4, Hash: c.object(cas.Files, cas.Data, []byte("1234"))}
		two := cas.Chunk{Len: 60, Hash: c.object(cas.Files, cas.Data, bytes.Repeat([]byte("5"), 60))}
		data, err := cas.EncodeList(slices.Repeat([]cas.Chunk{one, two}, chunks/2))
		require.NoError(c.t, err)
		e.Hash, e.Size = c.object(cas.Files, cas.List, data), 32*uint64(chunks)
	}), ""}
	sub := func(h func(c *crafter) cas.Hash) func(c *crafter, rec *index.Record) {
		return func(c *crafter, rec *index.Record) {
			root, totals := c.dir("", nil, tree.Entry{Name: "d", Kind: tree.Dir, Mode: 0o755, Hash: h(c)}, c.file("f", "content"))
			rooted(rec, root, totals)
		}
	}
	const treeReaders = "ls diff restore gc verify"
	tests["directory that is a file"] = test{sub(func(c *crafter) cas.Hash { return c.file("", "content").Hash }), treeReaders}
	tests["directory that is a set of attributes"] = test{sub(func(c *crafter) cas.Hash {
		set, err := tree.EncodeXAttrs([]tree.XAttr{{Name: "user.a"}})
		require.NoError(c.t, err)
		return c.object(cas.Trees, cas.Data, set.Data)
	}), "ls diff restore verify"}
	tests["directory that is garbage"] = test{sub(func(c *crafter) cas.Hash {
		return c.object(cas.Trees, cas.Data, bytes.Repeat([]byte("sfd\x01"), 1<<20))
	}), treeReaders}
	tests["list of segments that is short"] = test{sub(func(c *crafter) cas.Hash {
		return c.object(cas.Trees, cas.Data, []byte("sfd\x01\x01\x01\x01a\x10\x10\x00\x00\x00\x00"+strings.Repeat("h", 32)))
	}), treeReaders}
	tests["set of attributes that is a directory"] = test{file(func(c *crafter, e *tree.Entry) { d, _ := c.dir("", nil); e.XAttrs = d.Hash }), "restore verify"}
	for name, set := range map[string]string{
		"capabilities":   "sfx\x01\x01\x13security.capability\x01\x00",
		"trusted":        "sfx\x01\x01\x16trusted.overlay.opaque\x01y",
		"very many":      "sfx\x01\xff\xff\x03" + strings.Repeat("\x06user.a\x00", 1<<18),
		"a long value":   "sfx\x01\x01\x06user.a\xff\xff\xff\xff\x0f",
		"a name with /0": "sfx\x01\x01\x07user.a\x00\x00",
	} {
		tests["attributes with "+name] = test{file(func(c *crafter, e *tree.Entry) { e.XAttrs = c.object(cas.Trees, cas.Data, []byte(set)) }), "restore gc verify"}
	}
	tests["totals that are too high"] = test{func(c *crafter, rec *index.Record) {
		d, _ := c.dir("d", nil, c.file("f", "content"))
		lie := tree.Totals{Files: 1000, Bytes: 1 << 50}
		root, totals := c.dir("", map[string]tree.Totals{"d": lie}, d, c.file("f", "content"))
		rooted(rec, root, totals)
	}, "verify"}
	tests["totals of the record"] = test{func(c *crafter, rec *index.Record) { rec.Totals.Files, rec.Totals.Bytes = math.MaxInt64, math.MaxInt64 }, "verify"}
	for name, groups := range map[string]string{
		"that lead out":     "sfl\x01\x01\x02\x00\x01a\x00\x04../f",
		"that are absolute": "sfl\x01\x01\x02\x00\x04/etc\x00\x01f",
		"of very many":      "sfl\x01\xff\xff\xff\xff\x01" + strings.Repeat("\x00", 1<<20),
		"of one path":       "sfl\x01\x01\x02\x00\x01f\x01\x00",
	} {
		tests["hard links "+name] = test{func(c *crafter, rec *index.Record) { rec.Links = c.blob(cas.Trees, []byte(groups)) }, "restore verify"}
	}
	tests["hard links to what is not there"] = test{func(c *crafter, rec *index.Record) {
		data, err := tree.EncodeLinks([][]string{{"f", "g/h"}, {"x", "y"}})
		require.NoError(c.t, err)
		rec.Links = c.blob(cas.Trees, data)
	}, "verify"}
	tests["numbers of lists that are not there"] = test{func(c *crafter, rec *index.Record) {
		rec.OmissionCount, rec.ArtifactCount = math.MaxInt64, math.MaxInt64
	}, ""}

	dir := filepath.Join(t.TempDir(), "store")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
			s, err := Open(t.Context(), dir, Options{Create: true})
			require.NoError(t, err)
			defer s.Close()
			craft(t, s, "plain", func(*crafter, *index.Record) {})
			craft(t, s, "bad", test.craft)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for name, read := range readers {
				target := filepath.Join(t.TempDir(), "target")
				err := read(ctx, s, "bad", target)
				switch {
				case slices.Contains(strings.Fields(test.fails), name):
					require.Error(t, err, name)
					require.True(t, errors.Is(err, cas.ErrCorrupt) || errors.Is(err, cas.ErrNotFound), "%s: %v", name, err)
					require.NoDirExists(t, target)
				case name == "conversation" && errors.Is(err, ErrNoConversation), name == "artifact" && errors.Is(err, index.ErrArtifactNotFound):
				default:
					require.NoError(t, err, name)
				}
			}
		})
	}
	require.Less(t, peakMemory(t), int64(3<<30))
}

// peakMemory is the most memory that this process ever had, in bytes.
func peakMemory(t *testing.T) int64 {
	t.Helper()
	data, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, rest, _ := bytes.Cut(data, []byte("VmHWM:"))
	var kib int64
	_, err = fmt.Sscan(string(rest), &kib)
	require.NoError(t, err)
	return kib << 10
}
