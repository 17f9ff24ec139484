package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/castest"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/secrets"
)

// late is a value that is declared too late.
const late = "correct-horse-battery"

func lateSet(t *testing.T) *secrets.Set {
	t.Helper()
	set, err := secrets.NewSet([]secrets.Value{{Bytes: []byte(late), Source: "test"}})
	require.NoError(t, err)
	return set
}

// scrubbing runs a scrub and returns its hits as "CHECKPOINT|IN PATH", sorted, and what
// could not be searched.
func scrubbing(t *testing.T, s *Store, opt ScrubOptions) (hits, faults []string, res ScrubResult) {
	t.Helper()
	opt.Fault = func(f ScrubFault) error {
		require.NotContains(t, fmt.Sprint(f), late)
		faults = append(faults, f.Checkpoint+"|"+f.What)
		return nil
	}
	res, err := s.Scrub(t.Context(), lateSet(t), opt, func(h ScrubHit) error {
		require.NotContains(t, fmt.Sprint(h), late)
		require.Positive(t, h.Values)
		hits = append(hits, strings.TrimSpace(h.Checkpoint+"|"+h.In+" "+h.Raw()))
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, len(hits), res.Hits)
	require.Equal(t, len(faults), res.Faults)
	slices.Sort(hits)
	return hits, faults, res
}

// holding lists the files of a store that hold a text, in their bytes or names.
func holding(t *testing.T, s *Store, text string) (paths []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(s.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var data []byte
		if d.Type().IsRegular() {
			data, err = os.ReadFile(path)
		}
		if bytes.Contains(data, []byte(text)) || strings.Contains(path, text) {
			paths = append(paths, path)
		}
		return err
	}))
	return paths
}

// rawSave saves without compression, so that bytes can be found.
func rawSave(t *testing.T, s *Store, opt SaveOptions) Checkpoint {
	t.Helper()
	opt.Files, opt.Compression = policy.FilesOptions{NoDefaults: true, Exclude: opt.Files.Exclude}, local.Off
	res, err := s.Save(t.Context(), opt)
	require.NoError(t, err)
	return res.Checkpoint
}

// TestScrubFindsEveryPlace puts a value into each place that a checkpoint has, one
// checkpoint each.
func TestScrubFindsEveryPlace(t *testing.T) {
	stars := strings.Repeat("*", len(late))
	long := castest.Noise(1, 6<<20)
	for name, c := range map[string]struct {
		files map[string]string
		make  func(t *testing.T, ws string)
		opt   SaveOptions
		want  []string
	}{
		"nothing":        {files: map[string]string{"f": late[1:]}},
		"file":           {files: map[string]string{"a/b/f": "x " + late + " y"}, want: []string{"c|file a/b/f"}},
		"name":           {files: map[string]string{"d/" + late + "x": ""}, want: []string{"c|name d/" + stars + "x"}},
		"directory":      {files: map[string]string{late + "/f": "f", "g": "g"}, want: []string{"c|name " + stars}},
		"file below one": {files: map[string]string{late + "/f": late}, want: []string{"c|file " + stars + "/f", "c|name " + stars}},
		"odd name":       {files: map[string]string{"\xff" + late: ""}, want: []string{"c|name \xff" + stars}},
		"long file": {make: func(t *testing.T, ws string) {
			for i, at := range []int{0, 1<<20 - 5, 2_500_000, len(long)} {
				data := slices.Concat(long[:at], []byte(late), long[at:])
				require.NoError(t, os.WriteFile(filepath.Join(ws, fmt.Sprint(i)), data, 0o644))
			}
			require.NoError(t, os.WriteFile(filepath.Join(ws, "clean"), long, 0o644))
		}, want: []string{"c|file 0", "c|file 1", "c|file 2", "c|file 3"}},
		"sparse file": {make: func(t *testing.T, ws string) {
			f, err := os.Create(filepath.Join(ws, "f"))
			require.NoError(t, err)
			_, err = f.WriteAt([]byte(late), 8<<20-5)
			require.NoError(t, err)
			require.NoError(t, f.Truncate(20<<20))
			require.NoError(t, f.Close())
		}, want: []string{"c|file f"}},
		"link": {make: func(t *testing.T, ws string) {
			require.NoError(t, os.Symlink("/tmp/"+late, filepath.Join(ws, "l")))
		}, want: []string{"c|link l"}},
		"attributes": {files: map[string]string{"f": ""}, make: func(t *testing.T, ws string) {
			require.NoError(t, unix.Setxattr(filepath.Join(ws, "f"), "user.x", []byte("= "+late), 0))
			require.NoError(t, unix.Setxattr(ws, "user."+late, []byte("1"), 0))
		}, want: []string{"c|attribute .", "c|attribute f"}},
		"conversation":         {opt: SaveOptions{Conversation: strings.NewReader(`[{"m":"` + late + `"}]`)}, want: []string{"c|conversation"}},
		"escaped conversation": {opt: SaveOptions{Conversation: strings.NewReader(`[{"m":"\u0063` + late[1:] + `"}]`)}, want: []string{"c|conversation"}},
		"message":              {opt: SaveOptions{Message: "the password is " + late}, want: []string{"c|record message"}},
		"label":                {opt: SaveOptions{Labels: map[string]string{"k": late, late: "v"}}, want: []string{"c|record label " + stars, "c|record label k"}},
		"its name":             {opt: SaveOptions{Name: late}, want: []string{"c|record name"}},
		"run":                  {opt: SaveOptions{Run: late}, want: []string{"c|record run"}},
		"id":                   {opt: SaveOptions{ID: "x-" + late}, want: []string{"x-" + stars + "|record id"}},
		"thread":               {opt: SaveOptions{Thread: late}, want: []string{"c|record thread", "|record thread"}},
		"policy and omission": {files: map[string]string{late: "", "g": ""}, opt: SaveOptions{Files: policy.FilesOptions{Exclude: []policy.Rule{{Pattern: late}}}},
			want: []string{"c|omission " + stars, "c|policy"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			ws := filepath.Join(t.TempDir(), "ws")
			write(t, ws, c.files)
			write(t, ws, map[string]string{"other": "content"})
			if c.make != nil {
				c.make(t, ws)
			}
			opt := c.opt
			opt.Workspace = ws
			if opt.Thread == "" {
				opt.Thread = "t"
			}
			if opt.ID == "" {
				opt.ID = "c"
			}
			cp := rawSave(t, s, opt)
			slices.Sort(c.want)
			hits, faults, res := scrubbing(t, s, ScrubOptions{})
			require.Equal(t, c.want, hits)
			require.Empty(t, faults)
			require.Equal(t, 1, res.Checkpoints)

			// And what is deleted is nowhere after a collection.
			_, _, res = scrubbing(t, s, ScrubOptions{Delete: true})
			require.Equal(t, min(len(c.want), 1), res.Deleted)
			require.Empty(t, res.Kept)
			if res.Threads > 0 {
				require.NoError(t, s.DeleteThread(t.Context(), cp.Thread))
			}
			collected := gc(t, s)
			require.Equal(t, len(c.want) > 0, collected.Purged)
			require.Empty(t, collected.Left)
			if len(c.want) > 0 {
				require.Empty(t, holding(t, s, late))
			}
			hits, _, _ = scrubbing(t, s, ScrubOptions{})
			require.Empty(t, hits)
		})
	}
}

// TestScrubArtifacts: those of a thread that no checkpoint has, and those that one has.
func TestScrubArtifacts(t *testing.T) {
	s := newStore(t)
	dir := t.TempDir()
	write(t, dir, map[string]string{"ws/f": "f", "secret": late, "fine": "fine"})
	add := func(file ArtifactFile) Artifact {
		file.Path = filepath.Join(dir, file.Path)
		a, _, err := s.AddArtifact(t.Context(), "t", file, policy.SecretsWarn, SecretsOptions{})
		require.NoError(t, err)
		return a
	}
	fine := add(ArtifactFile{Path: "fine", Name: "fine"})
	save(t, s, filepath.Join(dir, "ws"), "t")
	add(ArtifactFile{Path: "secret", Name: "content"})
	cp := save(t, s, filepath.Join(dir, "ws"), "t")
	add(ArtifactFile{Path: "fine", Name: "n-" + late})
	hits, _, _ := scrubbing(t, s, ScrubOptions{})
	require.Equal(t, []string{cp.ID + "|artifact content", "|artifact content", "|artifact n-" + strings.Repeat("*", len(late))}, hits)

	_, _, res := scrubbing(t, s, ScrubOptions{Delete: true})
	require.Equal(t, 1, res.Deleted)
	require.Equal(t, 2, res.Removed)
	require.True(t, gc(t, s).Purged)
	require.Empty(t, holding(t, s, late))
	left, err := s.holder.Artifacts(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, []Artifact{fine}, left)
}

// TestScrubReadsOnce: what checkpoints share is read once, chunks of a long file too.
func TestScrubReadsOnce(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	data := noiseFile(t, filepath.Join(ws, "long"), 1, 12<<20)
	for i := range 20 {
		noiseFile(t, filepath.Join(ws, fmt.Sprint("f", i)), uint64(i), 100_000)
	}
	save(t, s, ws, "t")
	_, _, once := scrubbing(t, s, ScrubOptions{})
	for i := range 4 {
		copy(data[i*2_500_000:], "changed")
		require.NoError(t, os.WriteFile(filepath.Join(ws, "long"), data, 0o644))
		save(t, s, ws, "t")
	}
	hits, _, many := scrubbing(t, s, ScrubOptions{})
	require.Empty(t, hits)
	require.Equal(t, 5, many.Checkpoints)
	require.Less(t, many.Bytes, once.Bytes+4*3*cas.MaxChunk)

	// One that has a value in a chunk that the others have not.
	copy(data[7_000_000:], late)
	require.NoError(t, os.WriteFile(filepath.Join(ws, "long"), data, 0o644))
	cp := save(t, s, ws, "t")
	hits, _, _ = scrubbing(t, s, ScrubOptions{})
	require.Equal(t, []string{cp.ID + "|file long"}, hits)
}

// TestScrubOneThread: only what it has is listed and deleted; that others share it is
// counted.
func TestScrubOneThread(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"d/f": late, "g": "g"})
	cp := save(t, s, ws, "t")
	fork, err := s.Fork(t.Context(), cp.ID, ForkOptions{Thread: "forked"})
	require.NoError(t, err)
	write(t, ws, map[string]string{"g": "changed"})
	other := save(t, s, ws, "u")
	write(t, ws, map[string]string{"d/f": "clean"})
	save(t, s, ws, "v")

	hits, _, res := scrubbing(t, s, ScrubOptions{Thread: "t", Delete: true})
	require.Equal(t, []string{cp.ID + "|file d/f"}, hits)
	require.Equal(t, 2, res.Others)
	require.Equal(t, 1, res.Deleted)
	require.True(t, gc(t, s).Purged)
	hits, _, _ = scrubbing(t, s, ScrubOptions{})
	want := []string{fork.ID + "|file d/f", other.ID + "|file d/f"}
	slices.Sort(want)
	require.Equal(t, want, hits)
	_, err = s.Scrub(t.Context(), lateSet(t), ScrubOptions{Thread: "nobody"}, nil)
	require.ErrorIs(t, err, index.ErrThreadNotFound)
	_, err = s.Scrub(t.Context(), nil, ScrubOptions{}, nil)
	require.ErrorIs(t, err, ErrRefused)
}

// TestScrubDamage: what cannot be read is named, the rest is searched, and what could not
// be searched whole is not deleted.
func TestScrubDamage(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"a": "readable", "d/b": "lost, lost, lost", "secret": late})
	bad := save(t, s, ws, "t")
	require.NoError(t, os.Remove(filepath.Join(ws, "d/b")))
	good := save(t, s, ws, "t")
	lose(t, s, cas.NewObject(cas.Files, cas.Data, []byte("lost, lost, lost")).Key)

	hits, faults, res := scrubbing(t, s, ScrubOptions{Delete: true})
	want := []string{bad.ID + "|file secret", good.ID + "|file secret"}
	slices.Sort(want)
	require.Equal(t, want, hits)
	require.Equal(t, []string{bad.ID + "|d/b"}, faults)
	require.Equal(t, 1, res.Deleted)
	require.Len(t, res.Kept, 1)
	require.Contains(t, res.Kept[0], bad.ID)
	_, err := s.Resolve(t.Context(), bad.ID)
	require.NoError(t, err)
	_, err = s.Delete(t.Context(), bad.ID)
	require.NoError(t, err)
	require.True(t, gc(t, s).Purged, "the request has stayed")
	require.Empty(t, holding(t, s, late))
}

// lose has the index forget where an object lies.
func lose(t *testing.T, s *Store, key cas.Key) {
	t.Helper()
	require.NoError(t, s.holder.(*localHolder).index.DropLocations(t.Context(), []cas.Key{key}))
}

// TestScrubBesideEverything: what is saved, deleted and collected meanwhile is no damage.
func TestScrubBesideEverything(t *testing.T) {
	s := newStore(t)
	dir := t.TempDir()
	write(t, dir, map[string]string{"stays/f": late, "secret": late})
	stays := save(t, s, filepath.Join(dir, "stays"), "stays")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 25 {
			ws := filepath.Join(dir, "ws")
			for n := range 20 {
				path := filepath.Join(ws, fmt.Sprint("d", n%3), fmt.Sprint("f", n))
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, castest.Noise(uint64(100*i+n), 3000), 0o644)); err != nil {
					t.Error(err)
					return
				}
			}
			ctx, thread := context.Background(), fmt.Sprint("t", i%2)
			saved, err := s.Save(ctx, SaveOptions{Workspace: ws, Thread: thread})
			if err == nil && i%3 == 0 {
				var a Artifact
				a, _, err = s.AddArtifact(ctx, thread, ArtifactFile{Path: filepath.Join(ws, "d0/f0")}, policy.SecretsWarn, SecretsOptions{})
				if err == nil {
					err = s.RemoveArtifact(ctx, thread, a.ID)
				}
			}
			if err == nil {
				_, err = s.Delete(ctx, saved.Checkpoint.ID)
			}
			if err == nil {
				_, err = s.GC(ctx, GCRequest{Purge: i%5 == 0})
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for rounds := 0; ; rounds++ {
		hits, faults, _ := scrubbing(t, s, ScrubOptions{})
		require.Equal(t, []string{stays.ID + "|file f"}, hits)
		require.Empty(t, faults)
		select {
		case <-done:
			require.Positive(t, rounds)
			return
		default:
		}
	}
}

// TestPurgeLargePack: a pack of which next to nothing is dead is rewritten, and all that
// is left stays whole.
func TestPurgeLargePack(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	for i := range 12 {
		noiseFile(t, filepath.Join(ws, fmt.Sprint("f", i)), uint64(i), 1<<20)
	}
	write(t, ws, map[string]string{"secret": late})
	rawSave(t, s, SaveOptions{Workspace: ws, Thread: "t"})
	require.NoError(t, os.Remove(filepath.Join(ws, "secret")))
	kept := rawSave(t, s, SaveOptions{Workspace: ws, Thread: "t"})
	_, _, res := scrubbing(t, s, ScrubOptions{Delete: true})
	require.Equal(t, 1, res.Deleted)

	// While a save is under way that may rely on it, it stays, and the request, too.
	session, err := s.holder.Begin(t.Context(), BeginRequest{Thread: "other"})
	require.NoError(t, err)
	collected := gc(t, s)
	require.False(t, collected.Purged)
	require.NotEmpty(t, collected.Left)
	require.NotEmpty(t, holding(t, s, late))
	require.NoError(t, session.Close())
	collected = gc(t, s)
	require.True(t, collected.Purged)
	require.Positive(t, collected.Rewritten)
	require.Empty(t, holding(t, s, late))
	restored(t, s, kept.ID)
	require.Empty(t, faults(t, s))
	require.False(t, gc(t, s).Purged, "once is enough")
	collected, err = s.GC(t.Context(), GCRequest{Purge: true})
	require.NoError(t, err)
	require.True(t, collected.Purged)
	require.Zero(t, collected.Rewritten, "in which nothing is dead")

	// Asked for by hand, after a deletion by hand.
	write(t, ws, map[string]string{"secret": late})
	cp := rawSave(t, s, SaveOptions{Workspace: ws, Thread: "t", Message: late})
	_, err = s.Delete(t.Context(), cp.ID)
	require.NoError(t, err)
	gc(t, s)
	collected, err = s.GC(t.Context(), GCRequest{Purge: true})
	require.NoError(t, err)
	require.True(t, collected.Purged)
	require.Empty(t, holding(t, s, late))
}

// TestPurgeEndsAnywhere: a purge that is broken off is done by the next collection.
func TestPurgeEndsAnywhere(t *testing.T) {
	for _, step := range []string{"purge", "renewed"} {
		t.Run(step, func(t *testing.T) {
			s := newStore(t)
			ws := filepath.Join(t.TempDir(), "ws")
			write(t, ws, map[string]string{"f": late, "g": "g"})
			rawSave(t, s, SaveOptions{Workspace: ws, Thread: "t", Name: late})
			write(t, ws, map[string]string{"f": "f"})
			kept := rawSave(t, s, SaveOptions{Workspace: ws, Thread: "t"})
			scrubbing(t, s, ScrubOptions{Delete: true})
			s.holder.(*localHolder).steps = func(at string) error {
				if at == step {
					return context.Canceled
				}
				return nil
			}
			_, err := s.GC(t.Context(), GCRequest{})
			require.ErrorIs(t, err, context.Canceled)
			require.NoError(t, s.Close())
			s = openStore(t, s.dir)
			require.True(t, gc(t, s).Purged)
			require.Empty(t, holding(t, s, late))
			restored(t, s, kept.ID)
		})
	}
}

// TestPurgeTells: a damaged pack is left alone and told of, and so is what was set aside.
func TestPurgeTells(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"f": late})
	cp := rawSave(t, s, SaveOptions{Workspace: ws, Thread: "t"})
	_, err := s.Delete(t.Context(), cp.ID)
	require.NoError(t, err)
	for id := range local.Packs(s.dir) {
		path := filepath.Join(s.dir, "packs", id.String()[:2], id.String()+".pack")
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(path, info.Size()-1))
	}
	require.NoError(t, s.RequestPurge())
	res := gc(t, s)
	require.False(t, res.Purged)
	require.Len(t, res.Left, 1)
	require.Contains(t, res.Left[0], "verify --repair")
	_, err = s.Verify(t.Context(), VerifyOptions{Repair: true}, func(string) error { return nil })
	require.NoError(t, err)
	res = gc(t, s)
	require.True(t, res.Purged)
	require.Len(t, res.Aside, 1)
	require.Equal(t, res.Aside, holding(t, s, late))
}
