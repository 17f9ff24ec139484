package snapshot

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/disk/disktest"
	"github.com/snapfs/snapfs/internal/soak"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// exportedBytes is a checkpoint's archive.
func exportedBytes(t require.TestingT, s *Store, ref string, format ArchiveFormat) []byte {
	var out bytes.Buffer
	_, err := s.Export(context.Background(), ref, &out, format)
	require.NoError(t, err)
	return out.Bytes()
}

// quickStore is a store that no test needs to be durable.
func quickStore(t *testing.T) *Store {
	t.Helper()
	return openStore(t, filepath.Join(disktest.Memory(t), "store"))
}

// full saves a workspace with all that a checkpoint can have.
func full(t *testing.T, s *Store, thread string) Checkpoint {
	t.Helper()
	ws := workspace(t)
	require.NoError(t, os.Truncate(filepath.Join(ws, "sparse.img"), 1<<20)) // enough of a hole
	require.NoError(t, os.Truncate(filepath.Join(ws, "big.db"), 1100<<10))
	write(t, ws, map[string]string{"secret.txt": "token = hunter2hunter2\n", "late.log": "x"})
	art := filepath.Join(t.TempDir(), "art")
	require.NoError(t, os.WriteFile(art, bytes.Repeat([]byte("artifact"), 132_000), 0o600))
	res, err := s.Save(t.Context(), SaveOptions{
		Workspace: ws, Thread: thread, Run: "r1", Message: "about hunter2hunter2", Labels: map[string]string{"k": "hunter2hunter2", "l": "v"},
		Files:        policy.FilesOptions{NoDefaults: true, Exclude: []policy.Rule{{Pattern: "*.log", Source: "--exclude"}}},
		Secrets:      declaredSet(t, "hunter2hunter2"),
		Conversation: strings.NewReader(`[{"text":"hunter2hunter2"}]`),
		Artifacts:    []ArtifactFile{{Path: art, Name: "out/re port.bin", MediaType: "application/x-bin"}, {Path: art, Name: "out/re port.bin"}, {Path: art, Name: ".."}},
	})
	require.NoError(t, err)
	return res.Checkpoint
}

// TestExportImport: an archive gives all back, into another store, packed or not, and
// from there the same files again.
func TestExportImport(t *testing.T) {
	s, other := quickStore(t), quickStore(t)
	cp := full(t, s, "T")
	plain := exportedBytes(t, s, cp.ID, Tar)
	require.Equal(t, plain, exportedBytes(t, s, cp.ID, Tar), "equal bytes each time")
	packed := exportedBytes(t, s, cp.ID, TarZstd)
	require.Less(t, len(packed), len(plain)/4)
	want, err := s.Show(t.Context(), cp.ID)
	require.NoError(t, err)
	wantFiles := look(t, restored(t, s, cp.ID))

	for name, data := range map[string][]byte{"plain": plain, "packed": packed} {
		res, err := other.Import(t.Context(), bytes.NewReader(data), ImportOptions{Thread: name, sortRun: 4 << 10})
		require.NoError(t, err)
		got, err := other.Show(t.Context(), res.Checkpoint.ID)
		require.NoError(t, err)
		require.Equal(t, &Origin{Thread: "T", Checkpoint: cp.ID}, got.Origin)
		require.Equal(t, string(index.Imported), got.Reason)
		require.Empty(t, got.Parent)
		same := got
		same.ID, same.Thread, same.Origin, same.Reason, same.Created, same.Record, same.NewBytes, same.Sequence = want.ID, want.Thread, want.Origin, want.Reason, want.Created, want.Record, want.NewBytes, want.Sequence
		require.Equal(t, want, same)
		require.Positive(t, got.Redactions)
		require.Positive(t, got.Omitted)
		require.Equal(t, wantFiles, look(t, restored(t, other, got.ID)))
		require.Equal(t, below(t, plain, filesFolder+"/"), below(t, exportedBytes(t, other, got.ID, Tar), filesFolder+"/"))

		before, err := s.Artifacts(t.Context(), cp.ID)
		require.NoError(t, err)
		after, err := other.Artifacts(t.Context(), got.ID)
		require.NoError(t, err)
		for i := range after {
			require.NotEqual(t, before[i].ID, after[i].ID)
			after[i].ID = before[i].ID
		}
		require.Equal(t, before, after)

		// Once more into the same thread: nothing new, and no artifact twice.
		again, err := other.Import(t.Context(), bytes.NewReader(data), ImportOptions{Thread: name, Message: "another", Labels: map[string]string{"k": "w"}})
		require.NoError(t, err)
		require.Equal(t, got.ID, again.Checkpoint.Parent)
		require.Equal(t, got.Artifacts, again.Checkpoint.Artifacts)
		require.Equal(t, "another", again.Checkpoint.Message)
		require.Equal(t, map[string]string{"k": "w", "l": "v"}, again.Checkpoint.Labels)
		require.Equal(t, got.Redactions-2, again.Checkpoint.Redactions, "those of the texts that went")
	}
}

// below returns the entries of an archive with a prefix, each with its content.
func below(t *testing.T, data []byte, prefix string) []string {
	t.Helper()
	var all []string
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		hdr, err := r.Next()
		if err == io.EOF {
			return all
		}
		require.NoError(t, err)
		if strings.HasPrefix(hdr.Name, prefix) {
			sum := cas.Data.Sum(must(io.ReadAll(r)))
			all = append(all, fmt.Sprintf("%q %c %o %d %v %v %x", hdr.Name, hdr.Typeflag, hdr.Mode, hdr.Uid, hdr.ModTime.UnixNano(), hdr.PAXRecords, sum))
		}
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

// TestExportOfFork: the part of the files is the same, byte by byte, and names of a
// checkpoint change nothing.
func TestExportOfFork(t *testing.T) {
	s := quickStore(t)
	cp := full(t, s, "T")
	fork, err := s.Fork(t.Context(), cp.ID, ForkOptions{Thread: "F"})
	require.NoError(t, err)
	a, b := exportedBytes(t, s, cp.ID, Tar), exportedBytes(t, s, fork.ID, Tar)
	_, err = s.Rename(t.Context(), cp.ID, "a name")
	require.NoError(t, err)
	require.Equal(t, a, exportedBytes(t, s, cp.ID, Tar))
	part := func(data []byte) []byte {
		in, from := bytes.NewReader(data), 0
		for r := tar.NewReader(in); ; {
			at := (len(data) - in.Len() + tarBlock - 1) / tarBlock * tarBlock // the padding is still to come
			hdr, err := r.Next()
			require.NoError(t, err)
			if hdr.Name == filesFolder+"/" {
				from = at
			}
			if hdr.Name == artifactsFolder+"/" {
				return data[from:at]
			}
			_, err = io.Copy(io.Discard, r)
			require.NoError(t, err)
		}
	}
	require.Greater(t, len(part(a)), 2<<20)
	require.True(t, bytes.Equal(part(a), part(b)))
}

// TestOtherProgramsReadExports: GNU tar makes the same files of an archive, and Python
// finds the same names in it.
func TestOtherProgramsReadExports(t *testing.T) {
	s := quickStore(t)
	cp := full(t, s, "T")
	file := filepath.Join(t.TempDir(), "x.tar")
	require.NoError(t, os.WriteFile(file, exportedBytes(t, s, cp.ID, Tar), 0o600))
	want := look(t, restored(t, s, cp.ID))
	if program, err := exec.LookPath("tar"); err == nil {
		out := filepath.Join(t.TempDir(), "out")
		t.Cleanup(func() { removable(out) })
		require.NoError(t, os.Mkdir(out, 0o700))
		args := []string{"--acls", "--xattrs", "--xattrs-include=*", "-xpf", file, "-C", out}
		said, err := exec.Command(program, args...).CombinedOutput()
		require.NoError(t, err, string(said))
		for line := range strings.Lines(string(said)) {
			require.Regexp(t, `implausibly old time stamp|in the future|Ignoring unknown extended header keyword '(hdrcharset|SNAPFS\.(flags|mode))'`, line)
		}
		got := look(t, filepath.Join(out, filesFolder))
		require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)))
		require.Equal(t, want, got)
		data, err := os.ReadFile(filepath.Join(out, artifactsFolder, "out%2Fre port.bin"))
		require.NoError(t, err)
		require.Len(t, data, 1_056_000)
	}
	if program, err := exec.LookPath("python3"); err == nil {
		script := `import sys, tarfile
for m in tarfile.open(sys.argv[1]):
    if m.name.startswith("files/"):
        sys.stdout.buffer.write(m.name[6:].encode("utf-8", "surrogateescape") + b"\0")`
		cmd := exec.Command(program, "-c", script, file)
		cmd.Env = append(os.Environ(), "PYTHONUTF8=1")
		out, err := cmd.Output()
		require.NoError(t, err)
		names := slices.Collect(maps.Keys(want))
		names = slices.DeleteFunc(names, func(n string) bool { return n == "." })
		require.ElementsMatch(t, names, strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"))
	}
}

// TestExportImportIsTheIdentity: on trees at random.
func TestExportImportIsTheIdentity(t *testing.T) {
	s, other := quickStore(t), quickStore(t)
	top := t.TempDir()
	t.Cleanup(func() { removable(top) })
	program, _ := exec.LookPath("tar")
	soak.Checks(t, 15, 500)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		ws := filepath.Join(top, fmt.Sprint(n), "ws")
		defer func() {
			removable(filepath.Dir(ws))
			require.NoError(rt, os.RemoveAll(filepath.Dir(ws)))
		}()
		require.NoError(rt, os.MkdirAll(ws, 0o700))
		var files []string
		growTree(rt, ws, 3, &files)
		want := look(t, ws)
		saved, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "T", Files: policy.FilesOptions{NoDefaults: true}})
		require.NoError(rt, err)
		data := exportedBytes(rt, s, saved.Checkpoint.ID, Tar)
		res, err := other.Import(t.Context(), bytes.NewReader(data), ImportOptions{Thread: "T", sortRun: rapid.SampledFrom([]int{1, 300, 1 << 20}).Draw(rt, "run")})
		require.NoError(rt, err)
		require.Equal(rt, saved.Checkpoint.Tree, res.Checkpoint.Tree)
		if program != "" && n%4 == 0 {
			out := filepath.Join(filepath.Dir(ws), "out")
			require.NoError(rt, os.Mkdir(out, 0o700))
			cmd := exec.Command(program, "--acls", "--xattrs", "--xattrs-include=*", "-xpf", "-", "-C", out)
			cmd.Stdin = bytes.NewReader(data)
			said, err := cmd.CombinedOutput()
			require.NoError(rt, err, string(said))
			require.Equal(rt, want, look(t, filepath.Join(out, filesFolder)))
		}
	})
}

// TestExportOfACLs: a file whose ACL lets more people in than its group has no more rights
// where a program does not restore that, and the same ones where one does.
func TestExportOfACLs(t *testing.T) {
	needRoot(t)
	s, other := quickStore(t), quickStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"f": "1", "d/g": "2"})
	const user, joe, group, mask, rest = "02000000" + "01000600ffffffff", "02000700d2040000", "04000000ffffffff", "10000700ffffffff", "20000000ffffffff"
	for _, name := range []string{"f", "d/g"} {
		setXattr(t, filepath.Join(ws, name), tree.ACLAccess, user+joe+group+mask+rest)
	}
	setXattr(t, filepath.Join(ws, "d"), tree.ACLDefault, user+joe+group+mask+rest)
	setXattr(t, filepath.Join(ws, "d"), tree.ACLAccess, user+joe+group+mask+rest)
	want := look(t, ws)
	if len(want["f"].XAttrs) == 0 {
		t.Skip("no ACLs here")
	}
	cp := save(t, s, ws, "t")
	data := exportedBytes(t, s, cp.ID, Tar)
	entries := strings.Join(below(t, data, filesFolder+"/"), "\n")
	for _, has := range []string{`"files/f" 0 600 `, `"files/d/" 5 600 `, `SCHILY.acl.access:user::rw-,user:1234:rwx,group::---,mask::rwx,other::---`, `SCHILY.acl.default:user::rw-`, `SNAPFS.mode:670`} {
		require.Contains(t, entries, has)
	}
	res, err := other.Import(t.Context(), bytes.NewReader(data), ImportOptions{Thread: "t"})
	require.NoError(t, err)
	require.Equal(t, cp.Tree, res.Checkpoint.Tree)
	require.Equal(t, want, look(t, restored(t, other, res.Checkpoint.ID)))
	wrong := bytes.ReplaceAll(data, []byte("SNAPFS.mode=670"), []byte("SNAPFS.mode=678"))
	_, err = other.Import(t.Context(), bytes.NewReader(wrong), ImportOptions{Thread: "t"})
	require.ErrorIs(t, err, ErrBadArchive)
	require.ErrorContains(t, err, "mode 678")

	program, err := exec.LookPath("tar")
	if err != nil {
		return
	}
	for _, args := range [][]string{{"--acls", "--xattrs", "--xattrs-include=*"}, {"--acls"}, {}} {
		out := t.TempDir()
		cmd := exec.Command(program, append(args, "-xpf", "-", "-C", out)...)
		cmd.Stdin = bytes.NewReader(data)
		said, err := cmd.CombinedOutput()
		require.NoError(t, err, string(said))
		got := look(t, filepath.Join(out, filesFolder))
		if len(args) > 0 {
			require.Equal(t, want, got, args)
			continue
		}
		for _, name := range []string{"f", "d", "d/g"} {
			require.Zero(t, got[name].Mode&0o070, name)
		}
	}
}

// TestExportOfDamage: an archive with a damaged object ends without an end.
func TestExportOfDamage(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(disktest.Memory(t), "store"), Options{Create: true})
	require.NoError(t, err)
	defer s.Close()
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"a": "first", "b": strings.Repeat("0123456789abcdef", 8<<10), "c": "last"})
	res, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "T", Compression: local.Off})
	require.NoError(t, err)
	cp := res.Checkpoint
	packs, err := filepath.Glob(filepath.Join(s.dir, "packs", "*", "*.pack"))
	require.NoError(t, err)
	for _, pack := range packs {
		data, err := os.ReadFile(pack)
		require.NoError(t, err)
		at := bytes.Index(data, []byte("0123456789abcdef"))
		if at < 0 {
			continue
		}
		data[at] ^= 1
		require.NoError(t, os.Chmod(pack, 0o600))
		require.NoError(t, os.WriteFile(pack, data, 0o600))
	}
	for _, format := range []ArchiveFormat{Tar, TarZstd} {
		var out bytes.Buffer
		_, err = s.Export(t.Context(), cp.ID, &out, format)
		require.ErrorIs(t, err, cas.ErrCorrupt)
		require.ErrorContains(t, err, "b")
		_, err = quickStore(t).Import(t.Context(), &out, ImportOptions{Thread: "T"})
		require.ErrorIs(t, err, ErrBadArchive)
		require.Regexp(t, "ends too early|nothing in it", err.Error())
	}
}

// TestExportOfOddEntries: what no file system gives, but a tree can have, comes back.
func TestExportOfOddEntries(t *testing.T) {
	s := quickStore(t)
	session, err := s.holder.Begin(t.Context(), BeginRequest{Thread: "T", PID: os.Getpid()})
	require.NoError(t, err)
	w, end, err := s.newWriter(t.Context(), session, local.Auto)
	require.NoError(t, err)
	blob, err := cas.WriteBlob(t.Context(), w, cas.Files, strings.NewReader("x"))
	require.NoError(t, err)
	set, err := tree.EncodeXAttrs([]tree.XAttr{{Name: "user.a=b%3D%", Value: []byte("\x00=\n\xff")}, {Name: "user.empty"}})
	require.NoError(t, err)
	maker := &treeMaker{ctx: t.Context(), w: w, root: tree.Entry{Kind: tree.Dir, Mode: 0o700, UID: 7, GID: 8, MtimeSec: -1 << 62, MtimeNsec: 1}}
	require.NoError(t, w.Put(t.Context(), set))
	for n, e := range []imported{
		{key: "a", Entry: tree.Entry{UID: 4294967294, GID: 4294967294, MtimeSec: -62135596800, Flags: tree.Torn}},
		{key: "b", Entry: tree.Entry{UID: 7, GID: 8, MtimeSec: -1, MtimeNsec: 999_999_999}, owned: true},
		{key: "c", Entry: tree.Entry{UID: 7, GID: 8, MtimeSec: 1<<63 - 1, MtimeNsec: 5, XAttrs: set.Key.Hash}},
		{key: "d", Entry: tree.Entry{UID: 7, GID: 9, MtimeSec: -1 << 63, MtimeNsec: 5}},
		{key: "e\x00f", Entry: tree.Entry{UID: 7, GID: 8, MtimeSec: 1 << 40}},
	} {
		e.seq, e.Kind, e.Size, e.Hash = uint64(n), tree.File, 1, blob.Hash
		require.NoError(t, maker.put(&e))
	}
	rec := index.Record{ID: "odd", Thread: "T", Reason: index.Manual, Consistency: index.PerFile}
	rec.Policy, err = putSmall(t.Context(), w, noPolicy().Encode())
	require.NoError(t, err)
	rec.Root, rec.Totals, err = maker.done()
	require.NoError(t, err)
	cp, err := publish(t.Context(), session, w, rec, PublishRequest{})
	require.NoError(t, err)
	end()
	require.NoError(t, session.Close())

	data := exportedBytes(t, s, cp.ID, TarZstd)
	require.Equal(t, data, exportedBytes(t, s, cp.ID, TarZstd), "packed, too, they are equal each time")
	res, err := quickStore(t).Import(t.Context(), bytes.NewReader(data), ImportOptions{Thread: "T"})
	require.NoError(t, err)
	require.Equal(t, cp.Tree, res.Checkpoint.Tree)
}
