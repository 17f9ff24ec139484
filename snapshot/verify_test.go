package snapshot

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/policy"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/restore"
	"github.com/snapfs/snapfs/tree"
)

// packFiles are the store's packs.
func packFiles(t *testing.T, s *Store) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.dir, "packs", "*", "*.pack"))
	require.NoError(t, err)
	return files
}

// unsound opens a store that the test damages, so that it is not looked at in
// the end.
func unsound(t *testing.T) (s *Store, ws string) {
	t.Helper()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "store"), Options{Create: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	ws = filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"d/small": "x", "big": strings.Repeat("0123456789abcdef", 70_000), "link1": "y"})
	require.NoError(t, os.Link(filepath.Join(ws, "link1"), filepath.Join(ws, "link2")))
	return s, ws
}

// TestVerifyFindsEveryByte: whichever byte of a pack is another one than it was,
// it is found.
func TestVerifyFindsEveryByte(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"a": strings.Repeat("compressible ", 100), "b": "raw", "d/c": ""})
	save(t, s, ws, "T")
	require.Empty(t, faults(t, s))
	packs := packFiles(t, s)
	require.Len(t, packs, 1)
	whole, err := os.ReadFile(packs[0])
	require.NoError(t, err)
	f, err := os.OpenFile(packs[0], os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	step := 1
	if testing.Short() {
		step = 7
	}
	for i := 0; i < len(whole); i += step {
		_, err := f.WriteAt([]byte{whole[i] ^ 1<<(i%8)}, int64(i))
		require.NoError(t, err)
		require.NotEmpty(t, faults(t, s), "byte %d of %d", i, len(whole))
		_, err = f.WriteAt(whole[i:i+1], int64(i))
		require.NoError(t, err)
	}
}

// TestVerifyFindsLostPacks: a pack that is gone or cut is found without reading
// contents, whatever of it is open or decoded already; a restore does not hand
// over a part.
func TestVerifyFindsLostPacks(t *testing.T) {
	damage := map[string]func(t *testing.T, path string){
		"deleted": func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
		"emptied": func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 0)) },
		"cut": func(t *testing.T, path string) {
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.NoError(t, os.Truncate(path, info.Size()/3))
		},
		"header only": func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 16)) },
	}
	for name, fn := range damage {
		t.Run(name, func(t *testing.T) {
			s, ws := unsound(t)
			cp := save(t, s, ws, "T")
			require.NotEmpty(t, look(t, restored(t, s, cp.ID))) // all of it is in the caches now
			for _, path := range packFiles(t, s) {
				fn(t, path)
			}
			found := 0
			_, err := s.Verify(t.Context(), VerifyOptions{}, func(string) error { found++; return nil })
			require.NoError(t, err)
			require.Positive(t, found)
			require.NotEmpty(t, faults(t, s))
			stop := errors.New("stop")
			_, err = s.Verify(t.Context(), VerifyOptions{}, func(string) error { return stop })
			require.ErrorIs(t, err, stop)

			fresh, end := s.uncached()
			t.Cleanup(end)
			dir := filepath.Join(t.TempDir(), "dir")
			_, err = fresh.Restore(t.Context(), cp.ID, RestoreOptions{Dir: dir})
			require.Error(t, err)
			require.True(t, errors.Is(err, cas.ErrNotFound) || errors.Is(err, cas.ErrCorrupt), err)
			require.NoDirExists(t, dir)
		})
	}
}

// TestVerifyTrustsNoCache: a tree that was read before its pack was lost is lost
// all the same.
func TestVerifyTrustsNoCache(t *testing.T) {
	s, _ := unsound(t)
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"only/directories/": ""})
	cp := save(t, s, ws, "T")
	restored(t, s, cp.ID)
	for _, path := range packFiles(t, s) {
		require.NoError(t, os.Remove(path))
	}
	var found []string
	_, err := s.Verify(t.Context(), VerifyOptions{}, func(p string) error { found = append(found, p); return nil })
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Contains(t, found[0], "checkpoint "+cp.ID+": record")
}

// TestDamagedFile: only its content is damaged. The restore names it and takes
// everything back, and the rest of the checkpoint can be had without it.
func TestDamagedFile(t *testing.T) {
	s, ws := unsound(t)
	needle := "these very bytes will be another's"
	write(t, ws, map[string]string{"d/victim": needle})
	cp := save(t, s, ws, "T")
	for _, path := range packFiles(t, s) {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(data), needle))
		require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(data), "very", "VERY", 1)), 0o600))
	}
	found := faults(t, s)
	require.Len(t, found, 2)
	require.Contains(t, found[0], "pack ")
	require.Contains(t, found[1], "checkpoint "+cp.ID+": d/victim: files/"+cas.Data.Sum([]byte(needle)).String()+": ")
	for _, existing := range []bool{false, true} {
		top := t.TempDir()
		dir := filepath.Join(top, "dir")
		if existing {
			require.NoError(t, os.Mkdir(dir, 0o755))
		}
		_, err := s.Restore(t.Context(), cp.ID, RestoreOptions{Dir: dir})
		require.ErrorIs(t, err, cas.ErrCorrupt)
		require.ErrorContains(t, err, "d/victim")
		want := 1
		if existing {
			want = 2
		}
		require.Len(t, look(t, top), want)
	}
	require.ErrorIs(t, s.Cat(t.Context(), cp.ID, "d/victim", io.Discard), cas.ErrCorrupt)
	require.NoError(t, s.Cat(t.Context(), cp.ID, "d/small", io.Discard))
	require.ErrorIs(t, s.Cat(t.Context(), cp.ID, "d", io.Discard), ErrRefused)
	require.ErrorIs(t, s.Cat(t.Context(), cp.ID, "d/nothing", io.Discard), tree.ErrNotFound)
}

// TestIndexIsRebuilt: it can be deleted; everything that users see comes back
// from packs and journal.
func TestIndexIsRebuilt(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	s := openStore(t, store)
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"a": "1"})
	saveAs(t, s, ws, "T", "", "named")
	write(t, ws, map[string]string{"b": "2"})
	save(t, s, ws, "T")
	_, err := s.Fork(t.Context(), "T@named", ForkOptions{Thread: "F"})
	require.NoError(t, err)
	seen := func(s *Store) (all []any) {
		threads, err := s.Threads(t.Context(), Page{})
		require.NoError(t, err)
		for _, thread := range threads {
			cps, err := s.Checkpoints(t.Context(), thread.ID, Page{})
			require.NoError(t, err)
			all = append(all, thread, cps)
		}
		return all
	}
	want := seen(s)
	require.NoError(t, s.Close())
	require.NoError(t, os.RemoveAll(filepath.Join(store, "index")))
	s = openStore(t, store)
	require.Equal(t, want, seen(s))
	save(t, s, restored(t, s, "T@latest"), "T")
}

// TestVerifyOne: of one checkpoint, and of one that is not there.
func TestVerifyOne(t *testing.T) {
	s := newStore(t)
	ws := t.TempDir()
	save(t, s, ws, "T")
	cp := save(t, s, ws, "T")
	res, err := s.Verify(t.Context(), VerifyOptions{Ref: cp.ID}, func(p string) error { return errors.New(p) })
	require.NoError(t, err)
	require.Equal(t, 1, res.Checkpoints)
	require.Equal(t, 2, res.Packs)
	res, err = s.Verify(t.Context(), VerifyOptions{Data: true}, func(p string) error { return errors.New(p) })
	require.NoError(t, err)
	require.Equal(t, 2, res.Checkpoints)
	_, err = s.Verify(t.Context(), VerifyOptions{Ref: "nothing"}, nil)
	require.ErrorIs(t, err, index.ErrCheckpointNotFound)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Verify(ctx, VerifyOptions{Data: true}, func(p string) error { return errors.New(p) })
	require.ErrorIs(t, err, context.Canceled)
}

// TestVerifyFindsWhatDoesNotFit: every object is whole, and together they make no
// checkpoint. Each is published as a program that is wrong would do it.
func TestVerifyFindsWhatDoesNotFit(t *testing.T) {
	links := func(groups ...[]string) func(t *testing.T, rec *index.Record) []cas.Object {
		return func(t *testing.T, rec *index.Record) []cas.Object {
			data, err := tree.EncodeLinks(groups)
			require.NoError(t, err)
			obj := cas.NewObject(cas.Trees, cas.Data, data)
			rec.Links = index.Blob{Hash: obj.Key.Hash, Size: uint64(len(data))}
			return []cas.Object{obj}
		}
	}
	for name, test := range map[string]struct {
		change func(t *testing.T, rec *index.Record) []cas.Object
		want   []string
	}{
		"no such tree":        {func(_ *testing.T, rec *index.Record) []cas.Object { rec.Root.Tree = cas.Hash{1}; return nil }, []string{"tree"}},
		"wrong totals":        {func(_ *testing.T, rec *index.Record) []cas.Object { rec.Totals.Files++; return nil }, []string{"record"}},
		"no such attributes":  {func(_ *testing.T, rec *index.Record) []cas.Object { rec.Root.XAttrs = cas.Hash{1}; return nil }, []string{"extended attributes of the root"}},
		"no such omissions":   {func(_ *testing.T, rec *index.Record) []cas.Object { rec.Omissions.Hash = cas.Hash{1}; return nil }, []string{"omissions"}},
		"no such secrets":     {func(_ *testing.T, rec *index.Record) []cas.Object { rec.Secrets.Hash = cas.Hash{1}; return nil }, []string{"secrets"}},
		"secrets are none":    {badList(func(rec *index.Record, b index.Blob) { rec.Secrets = b }), []string{"secrets"}},
		"no such policy":      {func(_ *testing.T, rec *index.Record) []cas.Object { rec.Policy.Hash = cas.Hash{1}; return nil }, []string{"policy"}},
		"no such links":       {func(_ *testing.T, rec *index.Record) []cas.Object { rec.Links.Hash = cas.Hash{1}; return nil }, []string{"hard links"}},
		"links of missing":    {links([]string{"link1", "nothing"}, []string{"x/y", "z"}), []string{"nothing", "x/y", "z"}},
		"links of a dir":      {links([]string{"link1", "d"}), []string{"d is no file"}},
		"links of two files":  {links([]string{"d/small", "link1"}), []string{"link1"}},
		"links that can be":   {links([]string{"link1", "link2"}), nil},
		"omissions are none":  {badList(func(rec *index.Record, b index.Blob) { rec.Omissions = b }), []string{"omissions"}},
		"links are no links":  {badList(func(rec *index.Record, b index.Blob) { rec.Links = b }), []string{"hard links"}},
		"nothing is changed":  {func(*testing.T, *index.Record) []cas.Object { return nil }, nil},
		"a record of the new": {func(_ *testing.T, rec *index.Record) []cas.Object { rec.Reason = "of tomorrow"; return nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, ws := unsound(t)
			cp := save(t, s, ws, "T")
			rec, err := s.Record(t.Context(), cp)
			require.NoError(t, err)
			rec.ID, rec.Parent = "wrong", cp.ID
			session := begin(t, s, BeginRequest{Thread: "T"})
			if objs := test.change(t, &rec); len(objs) > 0 {
				putObjects(t, s, session, objs...)
			}
			_, err = session.Publish(t.Context(), PublishRequest{Record: putRecord(t, s, session, rec)})
			require.NoError(t, err)
			found := faults(t, s)
			require.Len(t, found, len(test.want), found)
			for i, want := range test.want {
				require.Contains(t, found[i], "checkpoint wrong: ")
				require.Contains(t, found[i], want)
			}
		})
	}
}

// TestVerifyFindsLinksThatChanged: a list of hard links that a checkpoint shares with
// one in which it is right is looked at all the same.
func TestVerifyFindsLinksThatChanged(t *testing.T) {
	s, ws := unsound(t)
	cp := save(t, s, ws, "T")
	write(t, ws, map[string]string{"d/small": "changed"})
	require.NoError(t, os.Remove(filepath.Join(ws, "link2")))
	write(t, ws, map[string]string{"link2": "z"})
	other := save(t, s, ws, "T")
	rec, err := s.Record(t.Context(), cp)
	require.NoError(t, err)
	cut, err := s.Record(t.Context(), other)
	require.NoError(t, err)
	for _, id := range []string{"wrong", "right"} { // the newest is looked at first
		next := rec
		next.ID, next.Parent = id, other.ID
		if id == "wrong" {
			next.Root.Tree, next.Totals = cut.Root.Tree, cut.Totals
		}
		session := begin(t, s, BeginRequest{Thread: "T"})
		_, err = session.Publish(t.Context(), PublishRequest{Record: putRecord(t, s, session, next)})
		require.NoError(t, err)
		require.NoError(t, session.Close())
		other.ID = id
	}
	found := faults(t, s)
	require.Len(t, found, 1)
	require.Contains(t, found[0], "checkpoint wrong: link2: differs from another hard link")
}

// badList puts bytes that are no list at a record's field.
func badList(set func(*index.Record, index.Blob)) func(*testing.T, *index.Record) []cas.Object {
	return func(_ *testing.T, rec *index.Record) []cas.Object {
		data := []byte("no list")
		set(rec, index.Blob{Hash: cas.Data.Sum(data), Size: uint64(len(data))})
		return []cas.Object{cas.NewObject(cas.Trees, cas.Data, data), cas.NewObject(cas.Records, cas.Data, data)}
	}
}

// TestDamageLeavesNoMarker: after a restore that failed the directory is as it
// was, and the next one may use it.
func TestDamageLeavesNoMarker(t *testing.T) {
	s, ws := unsound(t)
	cp := save(t, s, ws, "T")
	rec, err := s.Record(t.Context(), cp)
	require.NoError(t, err)
	rec.ID, rec.Parent, rec.Root.XAttrs = "wrong", cp.ID, cas.Hash{1}
	session := begin(t, s, BeginRequest{Thread: "T"})
	_, err = session.Publish(t.Context(), PublishRequest{Record: putRecord(t, s, session, rec)})
	require.NoError(t, err)
	dir := t.TempDir()
	_, err = s.Restore(t.Context(), "wrong", RestoreOptions{Dir: dir})
	require.ErrorIs(t, err, cas.ErrNotFound)
	require.Len(t, look(t, dir), 1)
	_, err = s.Restore(t.Context(), cp.ID, RestoreOptions{Dir: dir})
	require.NoError(t, err)
	_, err = s.Restore(t.Context(), cp.ID, RestoreOptions{Dir: dir})
	require.ErrorIs(t, err, restore.ErrNotEmpty)
	require.Equal(t, look(t, ws), look(t, dir))
}

// TestVerifyFindsEveryLostPack: whatever a pack alone holds, its loss is found,
// for the store and for the checkpoint that needs it.
func TestVerifyFindsEveryLostPack(t *testing.T) {
	s, ws := unsound(t)
	dir := t.TempDir()
	write(t, dir, map[string]string{"report": "an artifact", "empty": "", "big": strings.Repeat("0123456789abcdef", 90_000), "idle": "no checkpoint has it"})
	owner := map[string]string{} // pack -> thread
	note := func(thread string, err error) {
		require.NoError(t, err)
		for _, path := range packFiles(t, s) {
			if owner[path] == "" {
				owner[path] = thread
			}
		}
	}
	for _, name := range []string{"report", "empty", "big"} {
		_, _, err := s.AddArtifact(t.Context(), "T", ArtifactFile{Path: filepath.Join(dir, name)}, policy.SecretsWarn, SecretsOptions{})
		note("T", err)
	}
	_, _, err := s.AddArtifact(t.Context(), "idle", ArtifactFile{Path: filepath.Join(dir, "idle")}, policy.SecretsWarn, SecretsOptions{})
	note("idle", err)
	res, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "T", Conversation: strings.NewReader("[]")})
	note("T", err)
	require.Len(t, owner, 5)
	require.Empty(t, faults(t, s))
	for path, thread := range owner {
		require.NoError(t, os.Rename(path, path+".away"))
		for _, opt := range []VerifyOptions{{}, {Data: true}, {Ref: res.Checkpoint.ID}} {
			found := 0
			_, err := s.Verify(t.Context(), opt, func(string) error { found++; return nil })
			require.NoError(t, err)
			require.Equal(t, opt.Ref == "" || thread == "T", found > 0, "%+v, pack of %s", opt, thread)
		}
		require.NoError(t, os.Rename(path+".away", path))
	}
}
