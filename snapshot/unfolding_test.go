package snapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// unfolding is a tree of few objects, of which each but the last is in the one above
// it twice: it stands for two to the power of depth of those.
func (c *crafter) unfolding(depth int, leaf tree.Entry) (tree.Entry, tree.Totals) {
	e, totals := c.dir("", nil, leaf)
	for range depth {
		a, b := e, e
		a.Name, b.Name = "a", "b"
		e, totals = c.dir("", map[string]tree.Totals{"a": totals, "b": totals}, a, b)
	}
	return e, totals
}

// TestUnfoldingTrees: a tree of two to the power of 40 files in 41 objects is as soon
// checked as those are; who goes through all of it can be stopped.
func TestUnfoldingTrees(t *testing.T) {
	const depth = 40
	s := newStore(t)
	links, err := tree.EncodeLinks([][]string{{strings.Repeat("a/", depth) + "f", strings.Repeat("b/", depth) + "f"}})
	require.NoError(t, err)
	unfold := func(content string) func(c *crafter, rec *index.Record) {
		return func(c *crafter, rec *index.Record) {
			root, totals := c.unfolding(depth, c.file("f", content))
			rooted(rec, root, totals)
			rec.Links = c.blob(cas.Trees, links)
		}
	}
	craft(t, s, "one", unfold("1"))
	craft(t, s, "two", unfold("2"))
	cp, err := s.Show(t.Context(), "one")
	require.NoError(t, err)
	require.Equal(t, uint64(1<<depth), cp.Files)
	require.Empty(t, faults(t, s), "the hard links of two trees that differ everywhere")
	_, err = s.GC(t.Context(), GCRequest{})
	require.NoError(t, err)

	target := filepath.Join(t.TempDir(), "target")
	for name, read := range map[string]func(ctx context.Context) error{
		"ls": func(ctx context.Context) error {
			return s.Ls(ctx, "one", "", true, func(string, tree.Entry) error { return nil })
		},
		"diff": func(ctx context.Context) error {
			return s.Diff(ctx, "one", "two", DiffOptions{}, func(tree.Change) error { return nil })
		},
		"restore": func(ctx context.Context) error {
			some := []policy.Rule{{Pattern: "**/f", Source: "--include"}}
			_, err := s.Restore(ctx, "one", RestoreOptions{Dir: target, Include: some})
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		require.ErrorIs(t, read(ctx), context.DeadlineExceeded, name)
		cancel()
	}
	_, err = s.Restore(t.Context(), "one", RestoreOptions{Dir: target})
	require.ErrorIs(t, err, cas.ErrNoSpace)
	require.ErrorContains(t, err, "has 3298534883325 files and directories")
	require.NoDirExists(t, target)
}

// askedHolder notes how many places are asked for at once.
type askedHolder struct {
	Holder
	most int
}

func (a *askedHolder) Locate(ctx context.Context, keys []cas.Key) ([]cas.Location, error) {
	a.most = max(a.most, len(keys))
	return a.Holder.Locate(ctx, keys)
}

// TestManyChunks: lists that name one chunk very often, found or lost, are looked
// through bit by bit.
func TestManyChunks(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "store"), Options{Create: true})
	require.NoError(t, err)
	defer s.Close()
	craft(t, s, "lists", func(c *crafter, rec *index.Record) {
		list := func(name string, h cas.Hash) tree.Entry {
			data, err := cas.EncodeList(slices.Repeat([]cas.Chunk{{Len: 20, Hash: h}}, 70_000))
			require.NoError(t, err)
			return tree.Entry{Name: name, Kind: tree.File, Mode: 0o644, Hash: c.object(cas.Files, cas.List, data), Size: 1_400_000}
		}
		root, totals := c.dir("", nil, list("a", c.file("", "content of 20 bytes.").Hash), list("b", cas.Hash{1}))
		rooted(rec, root, totals)
	})
	asked := &askedHolder{Holder: s.holder}
	other := New(s.dir, asked, Options{})
	var found []string
	_, err = other.Verify(t.Context(), VerifyOptions{}, func(problem string) error { found = append(found, problem); return nil })
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Contains(t, found[0], "b: chunk at 0: ")
	require.LessOrEqual(t, asked.most, lookedFor)
}

// TestZerosWithoutEnd: who prints a file that is longer than anybody waits can stop it.
func TestZerosWithoutEnd(t *testing.T) {
	s := newStore(t)
	craft(t, s, "zeros", func(c *crafter, rec *index.Record) {
		b := c.zeros(cas.Files, 1<<62)
		root, totals := c.dir("", nil, tree.Entry{Name: "f", Kind: tree.File, Mode: 0o644, Hash: b.Hash, Size: b.Size})
		rooted(rec, root, totals)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, readers["cat"](ctx, s, "zeros", ""), context.DeadlineExceeded)
}

// TestVerifyNamesEnough: damage that shows at more paths than anybody can read is told
// of at some of them.
func TestVerifyNamesEnough(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "store"), Options{Create: true})
	require.NoError(t, err)
	defer s.Close()
	craft(t, s, "broken", func(c *crafter, rec *index.Record) {
		leaf := c.file("f", "content")
		leaf.Size++
		root, totals := c.unfolding(40, leaf)
		rooted(rec, root, totals)
	})
	found := 0
	var last string
	_, err = s.Verify(t.Context(), VerifyOptions{}, func(problem string) error {
		found, last = found+1, problem
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, 100_001, found)
	require.Contains(t, last, "more than 100000 paths suffer")
}

// TestDescriptionIsShort: of a checkpoint that left very much out a mount keeps a
// description that says how much, and names some.
func TestDescriptionIsShort(t *testing.T) {
	s := newStore(t)
	left := make([]capture.Omission, 50_000)
	for i := range left {
		left[i] = capture.Omission{Path: fmt.Sprintf("%06d.log", i), Why: "excluded"}
	}
	craft(t, s, "many", func(c *crafter, rec *index.Record) {
		data, err := encodeOmissions(left)
		require.NoError(t, err)
		rec.Omissions, rec.OmissionCount = c.blob(cas.Records, data), uint64(len(left))
		rec.Policy = c.blob(cas.Records, make([]byte, 2<<20))
	})
	full, err := s.Show(t.Context(), "many")
	require.NoError(t, err)
	require.Len(t, full.Omissions, len(left))
	require.Len(t, full.Policy, 2<<20)
	data, err := s.Describe(t.Context(), full)
	require.NoError(t, err)
	var doc Checkpoint
	require.NoError(t, json.Unmarshal(data, &doc))
	require.Len(t, doc.Omissions, describedOmissions)
	require.EqualValues(t, len(left), doc.Omitted)
	require.Empty(t, doc.Policy)
}

// TestListsThatAreTooLong: what could not be read again is not stored.
func TestListsThatAreTooLong(t *testing.T) {
	_, err := encodeOmissions(make([]capture.Omission, maxOmissions+1))
	require.ErrorIs(t, err, cas.ErrTooLarge)
	long := make([]capture.Omission, 1<<12)
	for i := range long {
		long[i].Path = strings.Repeat("x", 1<<16+1)
	}
	_, err = encodeOmissions(long)
	require.ErrorIs(t, err, cas.ErrTooLarge)
	_, err = encodeArtifacts(make([]index.Artifact, maxArtifacts+1))
	require.ErrorIs(t, err, cas.ErrTooLarge)
	_, err = encodeArtifacts(make([]index.Artifact, 1))
	require.ErrorIs(t, err, index.ErrInvalid)
}
