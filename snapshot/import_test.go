package snapshot

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/tree"
)

// tarEntry is an entry of an archive that a test makes.
type tarEntry struct {
	tar.Header
	data string
}

func tarFile(name, data string) tarEntry {
	return tarEntry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Uid: 5, Gid: 6, ModTime: time.Unix(1e9, 0)}, data}
}

func tarDir(name string) tarEntry {
	return tarEntry{Header: tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o750, Uid: 5, Gid: 6, ModTime: time.Unix(2e9, 0)}}
}

func tarLink(kind byte, name, target string) tarEntry {
	return tarEntry{Header: tar.Header{Typeflag: kind, Name: name, Linkname: target, Mode: 0o777, Uid: 5, Gid: 6, ModTime: time.Unix(1e9, 0)}}
}

// tarOf makes an archive.
func tarOf(t require.TestingT, entries ...tarEntry) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		e.Size = int64(len(e.data))
		require.NoError(t, w.WriteHeader(&e.Header))
		_, err := io.WriteString(w, e.data)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

// entriesAt lists a checkpoint.
func entriesAt(t *testing.T, s *Store, ref string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, s.Ls(t.Context(), ref, "", true, func(path string, e tree.Entry) error {
		all[path] = fmt.Sprintf("%s %o %d:%d %d %d %s", e.Kind, e.Mode, e.UID, e.GID, e.MtimeSec, e.Size, e.Target)
		return nil
	}))
	return all
}

// TestImportTar: what a tar of any maker becomes.
func TestImportTar(t *testing.T) {
	s := quickStore(t)
	file := tarFile("./d/su", "x")
	file.Mode = 0o6755
	odd := tarFile("odd", "y")
	odd.Uid, odd.PAXRecords = 9, map[string]string{"SCHILY.xattr.user.a": "b", "SCHILY.xattr.security.selinux": "label", "SNAPFS.flags": "redacted"}
	acl := tarFile("acl", "")
	acl.Mode, acl.PAXRecords = 0o674, map[string]string{"SCHILY.acl.access": "user::rw-\nuser:joe:rwx:1000\ngroup::r--\nmask::rwx\nother::r--\n"}
	fifo := tarLink(tar.TypeFifo, "fifo", "")
	again := tarDir("./d")
	again.Mode = 0o1700
	data := tarOf(t,
		tarEntry{Header: tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "0123456789abcdef"}}},
		tarDir("d/"), file, odd, fifo, tarLink(tar.TypeLink, "twin", "./odd"), tarLink(tar.TypeLink, "d/third", "twin"),
		tarLink(tar.TypeLink, "fifo2", "fifo"), tarLink(tar.TypeSymlink, "out", "../../etc//passwd"), tarLink(tar.TypeLink, "out2", "out"),
		tarFile("no/parents//here", "z"), again, acl, tarFile("large", strings.Repeat("0123456789", 120_000)))
	for name, r := range map[string]io.Reader{
		"plain": bytes.NewReader(data), "gzip": gzipped(t, data), "in pieces": iotest.HalfReader(bytes.NewReader(data)),
	} {
		res, err := s.Import(t.Context(), r, ImportOptions{Thread: name, sortRun: 100})
		require.NoError(t, err)
		require.Equal(t, []int{2, 1}, []int{res.Special, res.Setuid})
		id := res.Checkpoint.ID
		require.Equal(t, map[string]string{
			"acl":             "file 644 5:6 1000000000 0 ",
			"d":               "directory 1700 5:6 2000000000 0 ",
			"d/su":            "file 755 5:6 1000000000 1 ",
			"d/third":         "file 644 9:6 1000000000 1 ",
			"large":           "file 644 5:6 1000000000 1200000 ",
			"no":              "directory 755 5:6 0 0 ",
			"no/parents":      "directory 755 5:6 0 0 ",
			"no/parents/here": "file 644 5:6 1000000000 1 ",
			"odd":             "file 644 9:6 1000000000 1 ",
			"out":             "symlink 777 5:6 1000000000 17 ../../etc//passwd",
			"out2":            "symlink 777 5:6 1000000000 17 ../../etc//passwd",
			"twin":            "file 644 9:6 1000000000 1 ",
		}, entriesAt(t, s, id))
		cp, err := s.Show(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, []Omission{
			{NewPath("d/su"), "setuid and setgid bits dropped"}, {NewPath("fifo"), "fifo"}, {NewPath("fifo2"), "hard link of a special file"},
		}, cp.Omissions)
		require.Equal(t, "snapfs files policy 1\n", cp.Policy)
		require.Nil(t, cp.Origin)
		rec, err := s.Record(t.Context(), cp)
		require.NoError(t, err)
		require.Equal(t, index.Root{Tree: rec.Root.Tree, Mode: 0o755, UID: 5, GID: 6}, rec.Root)
		require.Equal(t, uint64(3), rec.Totals.XAttrs)
		restored := look(t, restored(t, s, id))
		require.Equal(t, restored["d/third"].Link, restored["twin"].Link)
	}
}

func gzipped(t *testing.T, data []byte) io.Reader {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return &out
}

// TestImportRoot: a tar that has its root gives it that metadata, and the default owner.
func TestImportRoot(t *testing.T) {
	s := quickStore(t)
	root := tarDir("./")
	root.Uid, root.Gid = 1, 2
	res, err := s.Import(t.Context(), bytes.NewReader(tarOf(t, root, tarFile("./f", ""))), ImportOptions{Thread: "t", Name: "v1", Message: "m", Labels: map[string]string{"a": "b"}})
	require.NoError(t, err)
	cp := res.Checkpoint
	require.Equal(t, []any{"v1", "m", map[string]string{"a": "b"}}, []any{cp.Name, cp.Message, cp.Labels})
	rec, err := s.Record(t.Context(), cp)
	require.NoError(t, err)
	require.Equal(t, index.Root{Tree: rec.Root.Tree, Mode: 0o750, UID: 1, GID: 2, MtimeSec: 2e9}, rec.Root)
	require.Equal(t, map[string]string{"f": "file 644 5:6 1000000000 0 "}, entriesAt(t, s, cp.ID))

	empty, err := s.Import(t.Context(), bytes.NewReader(tarOf(t)), ImportOptions{Thread: "t"})
	require.NoError(t, err)
	require.Zero(t, empty.Checkpoint.Files)
	require.Equal(t, cp.ID, empty.Checkpoint.Parent)
}

// rawHeader is the header block of an entry, changed and with a right checksum.
func rawHeader(t *testing.T, e tarEntry, change func(b []byte)) []byte {
	t.Helper()
	b := tarOf(t, e)[:tarBlock]
	change(b)
	copy(b[148:156], "        ")
	sum := 0
	for _, c := range b {
		sum += int(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return b
}

// TestImportRefuses: an archive that no checkpoint can be is refused with the name of what
// is wrong, and leaves nothing.
func TestImportRefuses(t *testing.T) {
	good := tarOf(t, tarFile("a", "content"), tarFile("b", strings.Repeat("x", 2<<20)))
	end := make([]byte, 2*tarBlock)
	header := func(e tarEntry, change func(b []byte)) []byte { return append(rawHeader(t, e, change), end...) }
	long := strings.Repeat("n", 256)
	huge := tarFile("a", "")
	huge.PAXRecords = map[string]string{"SCHILY.xattr.user.a": strings.Repeat("v", 1<<20-100)}
	hugeData := tarOf(t, huge)
	copy(hugeData[124:136], "00010000000\x00") // of the records: 2 MiB
	copy(hugeData[148:], "        ")
	sum := 0
	for _, c := range hugeData[:tarBlock] {
		sum += int(c)
	}
	copy(hugeData[148:], fmt.Sprintf("%06o\x00 ", sum))
	paxed := tarOf(t, withRecord(tarFile("c", ""), "SCHILY.xattr.user.a", "b"))
	records := paxed[:2*tarBlock] // which say something about c
	cases := map[string]struct {
		data []byte
		says string
	}{
		"up":                    {tarOf(t, tarFile("a/../../b", "")), `"?a/\.\./\.\./b"?: its name leads out`},
		"absolute":              {tarOf(t, tarFile("/etc/passwd", "")), "/etc/passwd: its name is absolute"},
		"no name":               {header(tarFile("a", ""), func(b []byte) { b[0] = 0 }), "its name is empty"},
		"long name":             {tarOf(t, tarFile("d/"+long, "")), "255"},
		"long path":             {tarOf(t, tarFile(strings.Repeat("d/", 2100)+"f", "")), "4095"},
		"the root is a file":    {tarOf(t, tarFile(".", "")), "the root is no directory"},
		"missing directories":   {tarOf(t, deepFiles(10, 1000)...), `entry 00004/a/a.*\.\.\.: 5000 directories are missing above it and 4 entries before it`},
		"long attribute":        {tarOf(t, withRecord(tarFile("f", ""), "SCHILY.xattr.user.a", strings.Repeat("v", 64<<10+1))), "entry f: .*65537"},
		"file twice":            {tarOf(t, tarFile("a", "1"), tarFile("b", ""), tarFile("./a", "2")), "entry a: it is there twice"},
		"file and directory":    {tarOf(t, tarFile("a", "1"), tarDir("a/")), "entry a: it is there twice"},
		"directory and file":    {tarOf(t, tarDir("a/"), tarFile("a/b", ""), tarFile("a", "1")), "entry a: it is there twice"},
		"directory and fifo":    {tarOf(t, tarDir("a/"), tarLink(tar.TypeFifo, "a", "")), "entry a: it is there twice"},
		"link twice":            {tarOf(t, tarFile("a", "1"), tarLink(tar.TypeLink, "b", "a"), tarLink(tar.TypeLink, "b", "a")), "entry b: it is there twice"},
		"link over file":        {tarOf(t, tarFile("a", "1"), tarFile("b", "2"), tarLink(tar.TypeLink, "b", "a")), "entry b: it is there twice"},
		"below a file":          {tarOf(t, tarFile("a", "1"), tarFile("a/b/c", "")), "entry a/b/c: a, which it would lie in, is no directory"},
		"below a symlink":       {tarOf(t, tarLink(tar.TypeSymlink, "l", "/tmp"), tarFile("l/x", "")), "entry l/x: l, which"},
		"below, before":         {tarOf(t, tarFile("l/x", ""), tarLink(tar.TypeSymlink, "l", "/tmp")), "entry l/x: l, which"},
		"below a fifo":          {tarOf(t, tarLink(tar.TypeFifo, "p", ""), tarFile("p/x", "")), "entry p/x: p, which"},
		"below a hard link":     {tarOf(t, tarFile("a", ""), tarLink(tar.TypeLink, "l", "a"), tarFile("l/x", "")), "entry l/x: l, which"},
		"link to nothing":       {tarOf(t, tarLink(tar.TypeLink, "l", "a")), "entry l: no file a"},
		"link before":           {tarOf(t, tarLink(tar.TypeLink, "l", "a"), tarFile("a", "")), "entry l: no file a"},
		"link to itself":        {tarOf(t, tarLink(tar.TypeLink, "l", "l")), "entry l: no file l"},
		"link to a directory":   {tarOf(t, tarDir("d"), tarLink(tar.TypeLink, "l", "d")), "entry l: its target d is a directory"},
		"link out":              {tarOf(t, tarLink(tar.TypeLink, "l", "../../etc/passwd")), "entry l: a hard link of"},
		"link to absolute":      {tarOf(t, tarLink(tar.TypeLink, "l", "/etc/passwd")), "entry l: a hard link of"},
		"link to the root":      {tarOf(t, tarLink(tar.TypeLink, "l", ".")), "entry l: a hard link of"},
		"symlink to nothing":    {tarOf(t, tarLink(tar.TypeSymlink, "l", "")), "entry l: a symlink"},
		"long target":           {tarOf(t, tarLink(tar.TypeSymlink, "l", strings.Repeat("t", 5000))), "entry l: a symlink"},
		"unknown kind":          {tarOf(t, tarLink('Q', "q", "")), "entry q: a kind"},
		"owner that is none":    {tarOf(t, tarEntry{Header: tar.Header{Typeflag: tar.TypeReg, Name: "f", Uid: 1<<32 - 1}}), "entry f: its owner"},
		"size beyond the end":   {header(tarFile("a", ""), func(b []byte) { copy(b[124:], "77777777777\x00") }), "entry a: it ends too early"},
		"small beyond the end":  {header(tarFile("a", ""), func(b []byte) { copy(b[124:], "00000010000\x00") }), "entry a: it ends too early"},
		"negative size":         {header(tarFile("a", ""), func(b []byte) { copy(b[124:], "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff") }), "no tar|damaged"},
		"records without limit": {hugeData, "more than a megabyte"},
		"checksum":              {append(append([]byte{}, good[:2*tarBlock]...), flipped(good[2*tarBlock:])...), "behind entry a: it is damaged"},
		"no end":                {good[:len(good)-2*tarBlock], "behind entry b: it ends too early"},
		"half an end":           {good[:len(good)-tarBlock], "behind entry b: it ends too early"},
		"cut in a content":      {good[:len(good)-1<<20], "entry b: it ends too early"},
		"cut in a small one":    {good[:tarBlock+3], "entry a: it ends too early"},
		"cut in a header":       {good[:2*tarBlock+100], "it ends too early"},
		"cut behind records":    {append(append([]byte{}, records...), make([]byte, 2*tarBlock)...), "it ends too early"},
		"cut before the entry":  {append(append(append([]byte{}, good[:2*tarBlock]...), records...), make([]byte, 2*tarBlock)...), "behind entry a: it ends too early"},
		"cut behind no records": {append(rawHeader(t, tarFile("x", ""), func(b []byte) { b[156] = 'x' })[:tarBlock], make([]byte, 2*tarBlock)...), "it ends too early"},
		"cut behind a name":     {append(append(rawHeader(t, tarFile("././@LongLink", "name"), func(b []byte) { b[156] = 'L' })[:tarBlock], padded("name")...), make([]byte, 2*tarBlock)...), "it ends too early"},
		"label and no end":      {append(rawHeader(t, tarFile("v", ""), func(b []byte) { b[156] = 'V'; copy(b[124:], "00000010000\x00") })[:tarBlock], make([]byte, 8*tarBlock)...), "entry v: a volume label"},
		"something behind":      {append(append([]byte{}, good...), 'x'), "something follows its end"},
		"two archives":          {append(append([]byte{}, good...), good...), "something follows its end"},
		"nothing":               {nil, "there is nothing in it"},
		"garbage":               {bytes.Repeat([]byte("garbage "), 1000), "it is no tar archive"},
		"xz":                    {[]byte("\xfd7zXZ\x00 and so on"), "packed with xz"},
		"bzip2":                 {[]byte("BZh91AY&SY"), "packed with bzip2"},
		"zip":                   {[]byte("PK\x03\x04"), "packed with zip"},
		"gzip of garbage":       {must(io.ReadAll(gzipped(t, []byte("garbage")))), "it is no tar archive"},
		"gzip of nothing":       {must(io.ReadAll(gzipped(t, nil))), "there is nothing in it"},
		"cut gzip":              {must(io.ReadAll(io.LimitReader(gzipped(t, good), 200))), "it ends too early"},
		"gzip with a tail":      {append(must(io.ReadAll(gzipped(t, good))), "tail"...), "it is damaged|ends too early"},
		"newer":                 {tarOf(t, tarEntry{Header: tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "snapfs archive 2"}}}), "version 2"},
		"ours without a record": {tarOf(t, tarEntry{Header: tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "snapfs archive 1 " + cas.Hash{1}.String()}}}), "no record"},
		"ours without a hash":   {tarOf(t, tarEntry{Header: tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "snapfs archive 1"}}}), "its mark snapfs archive 1: it was damaged"},
		"ours without a mark":   {tarOf(t, tarEntry{Header: tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "snapfs_archive", PAXRecords: map[string]string{"comment": "snap"}}}), "its mark snap: it was damaged"},
	}
	s := quickStore(t)
	first, err := s.Import(t.Context(), bytes.NewReader(good), ImportOptions{Thread: "t"})
	require.NoError(t, err)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := s.Import(t.Context(), bytes.NewReader(c.data), ImportOptions{Thread: "t", sortRun: 200})
			require.ErrorIs(t, err, ErrBadArchive)
			require.Regexp(t, c.says, err.Error())
			require.NotEmpty(t, Hint(err))
			cp, err := s.Resolve(t.Context(), "t@latest")
			require.NoError(t, err)
			require.Equal(t, first.Checkpoint.ID, cp.ID)
		})
	}
	left, err := os.ReadDir(filepath.Join(s.dir, "tmp"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// padded is a content with what fills its last block up.
func padded(data string) []byte {
	return append([]byte(data), make([]byte, (tarBlock-len(data)%tarBlock)%tarBlock)...)
}

// flipped is data with its first byte changed.
func flipped(data []byte) []byte {
	data = bytes.Clone(data)
	data[0] ^= 1
	return data
}

// TestImportRefusesAltered: an archive of ours with anything changed is refused, also
// where the change is a good tar.
func TestImportRefusesAltered(t *testing.T) {
	s := quickStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"a": "secret hunter2hunter2", "b": "2", "d/c": "3", "x.log": ""})
	require.NoError(t, os.Link(filepath.Join(ws, "b"), filepath.Join(ws, "twin")))
	require.NoError(t, os.WriteFile(filepath.Join(t.TempDir(), "art"), nil, 0o600))
	_, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t", Conversation: strings.NewReader(`[1]`), Secrets: declaredSet(t, "hunter2hunter2"),
		Artifacts: []ArtifactFile{{Path: filepath.Join(ws, "b"), Name: "art"}}})
	require.NoError(t, err)
	var entries []tarEntry
	for r := tar.NewReader(bytes.NewReader(exportedBytes(t, s, "t@latest", Tar))); ; {
		hdr, err := r.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		entries = append(entries, tarEntry{*hdr, string(must(io.ReadAll(r)))})
	}
	other := quickStore(t)
	imported := func(t *testing.T, change func(n int, e tarEntry) []tarEntry) error {
		var list []tarEntry
		for n, e := range entries {
			list = append(list, change(n, e)...)
		}
		_, err := other.Import(t.Context(), bytes.NewReader(tarOf(t, list...)), ImportOptions{Thread: "t"})
		return err
	}
	require.NoError(t, imported(t, func(_ int, e tarEntry) []tarEntry { return []tarEntry{e} }))
	for at, victim := range entries {
		if at == 0 {
			continue
		}
		// What is there for people alone need not be there.
		free := victim.Name == checkpointName || victim.Typeflag == tar.TypeDir && !strings.HasPrefix(victim.Name, filesFolder)
		for what, change := range map[string]func(e tarEntry) []tarEntry{
			"left out": func(tarEntry) []tarEntry { return nil },
			"twice":    func(e tarEntry) []tarEntry { return []tarEntry{e, e} },
			"mode":     func(e tarEntry) []tarEntry { e.Mode ^= 0o010; return []tarEntry{e} },
			"flags": func(e tarEntry) []tarEntry {
				e.PAXRecords = map[string]string{"mtime": e.PAXRecords["mtime"], "SNAPFS.flags": "torn"}
				return []tarEntry{e}
			},
			"content": func(e tarEntry) []tarEntry {
				e.data = strings.Replace(e.data, e.data[:min(1, len(e.data))], "~", 1)
				return []tarEntry{e}
			},
			"with extra": func(e tarEntry) []tarEntry { return []tarEntry{e, tarFile("files/extra", "")} },
			"beside":     func(e tarEntry) []tarEntry { return []tarEntry{e, tarFile("other/extra", "")} },
		} {
			inTree := strings.HasPrefix(victim.Name, filesFolder)
			switch {
			case what != "with extra" && what != "beside" && free && !(what == "twice" && victim.Name == checkpointName),
				what == "content" && victim.data == "",
				(what == "mode" || what == "flags") && (!inTree || victim.Typeflag == tar.TypeLink),
				what == "twice" && victim.Typeflag == tar.TypeDir:
				continue
			}
			err := imported(t, func(n int, e tarEntry) []tarEntry {
				if n == at {
					return change(e)
				}
				return []tarEntry{e}
			})
			require.ErrorIs(t, err, ErrBadArchive, "%s %s", victim.Name, what)
		}
	}
}

// TestImportFindsFlippedBits: whichever byte of the mark or the record is another one than
// it was, the archive is refused.
func TestImportFindsFlippedBits(t *testing.T) {
	s := OpenMemory()
	defer s.Close()
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"a": "1"})
	fork, err := s.Fork(t.Context(), save(t, s, ws, "t").ID, ForkOptions{Thread: "f"})
	require.NoError(t, err)
	data := exportedBytes(t, s, fork.ID, Tar)
	rec, err := s.Record(t.Context(), fork)
	require.NoError(t, err)
	record := must(index.Encode(rec))
	from := bytes.Index(data, record)
	require.Positive(t, from)
	flips := 0
	for at, b := range data[:from+len(record)] {
		// Not zeros that fill a block up, nor a checksum, which can be spelled in several
		// ways, nor what is between the mark and the record.
		if b == 0 || at >= 148 && at < 156 || at >= 2*tarBlock && at < from {
			continue
		}
		flips++
		wrong := bytes.Clone(data)
		wrong[at] ^= 1 << (at % 8)
		_, err := s.Import(t.Context(), bytes.NewReader(wrong), ImportOptions{Thread: "wrong"})
		require.ErrorIs(t, err, ErrBadArchive, "byte %d", at)
	}
	require.Greater(t, flips, 300)
}

// TestImportLimits: contents beyond the caller's limit, and a sparse file that a few bytes
// stand for, end with the code for what is too large.
func TestImportLimits(t *testing.T) {
	s := quickStore(t)
	data := tarOf(t, tarFile("a", "12345"), tarFile("b", "67890"))
	_, err := s.Import(t.Context(), bytes.NewReader(data), ImportOptions{Thread: "t", MaxSize: 9})
	require.ErrorIs(t, err, cas.ErrTooLarge)
	require.ErrorContains(t, err, "entry b")
	require.Equal(t, "--max-size raises the limit", Hint(err))
	_, err = s.Import(t.Context(), bytes.NewReader(data), ImportOptions{Thread: "t", MaxSize: 10})
	require.NoError(t, err)

	// A gibibyte in a megabyte: it is read no further than the limit.
	var bomb bytes.Buffer
	z, err := local.NewStreamWriter(&bomb)
	require.NoError(t, err)
	block := rawHeader(t, tarFile("bomb", ""), func(b []byte) { copy(b[124:], "10000000000\x00") })
	_, err = z.Write(block)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	_, err = s.Import(t.Context(), &bomb, ImportOptions{Thread: "t", MaxSize: 1 << 20})
	require.ErrorIs(t, err, cas.ErrTooLarge)

	sparse := tarFile("s", "1\n0\n512\n"+strings.Repeat("\x00", 504)+strings.Repeat("x", 512))
	sparse.Format = tar.FormatPAX
	sparse.PAXRecords = map[string]string{}
	paxed := tarOf(t, sparse)
	// Go writes no such records: they stand in a header of their own before the entry.
	records := ""
	for _, kv := range []string{"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=s", "GNU.sparse.realsize=9000000000000000"} {
		n := len(kv) + 3
		for len(fmt.Sprintf("%d %s\n", n, kv)) != n {
			n++
		}
		records += fmt.Sprintf("%d %s\n", n, kv)
	}
	x := rawHeader(t, tarFile("x", records), func(b []byte) { b[156] = 'x' })
	all := append(append(append([]byte{}, x...), records...), make([]byte, tarBlock-len(records))...)
	_, err = s.Import(t.Context(), bytes.NewReader(append(all, paxed...)), ImportOptions{Thread: "t"})
	require.ErrorIs(t, err, cas.ErrTooLarge)
	require.Equal(t, "--max-size 9000000000000000 takes it", Hint(err))
}

// TestImportSparse: GNU tar's sparse files are what they stand for.
func TestImportSparse(t *testing.T) {
	program, err := exec.LookPath("tar")
	if err != nil {
		t.Skip("no tar")
	}
	s := quickStore(t)
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "s"))
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("data"), 500<<10)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(800<<10))
	require.NoError(t, f.Close())
	require.NoError(t, os.Mkdir(filepath.Join(dir, "d"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "d", strings.Repeat("long", 60)), []byte("x"), 0o600))
	want := look(t, dir)
	for _, format := range []string{"gnu", "posix", "v7", "ustar", "oldgnu"} {
		args := []string{"--format=" + format, "-cf", "-", "-C", dir}
		if format != "v7" && format != "ustar" {
			args = append(args, "-S")
		}
		if format == "v7" || format == "ustar" {
			args = append(args, "--exclude=long*") // which they cannot have
		}
		cmd := exec.Command(program, append(args, ".")...)
		data, err := cmd.Output()
		require.NoError(t, err)
		res, err := s.Import(t.Context(), bytes.NewReader(data), ImportOptions{Thread: format})
		require.NoError(t, err, format)
		got := look(t, restored(t, s, res.Checkpoint.ID))
		if format == "posix" {
			require.Equal(t, want, got)
		}
		require.Equal(t, want["s"].Sum, got["s"].Sum, format)
	}
}

// TestImportGit: what git archive makes is what git checks out.
func TestImportGit(t *testing.T) {
	program, err := exec.LookPath("git")
	if err != nil {
		t.Skip("no git")
	}
	repo := t.TempDir()
	git := func(args ...string) []byte {
		t.Helper()
		cmd := exec.Command(program, append([]string{"-C", repo, "-c", "user.name=n", "-c", "user.email=e@example.org"}, args...)...)
		out, err := cmd.Output()
		require.NoError(t, err)
		return out
	}
	git("init", "-q")
	write(t, repo, map[string]string{"run.sh": "#!/bin/sh\n", "src/deep/er/main.go": "package main\n", "\u00e9": "odd"})
	require.NoError(t, os.Chmod(filepath.Join(repo, "run.sh"), 0o755))
	require.NoError(t, os.Symlink("src/deep", filepath.Join(repo, "link")))
	git("add", "-A")
	git("commit", "-q", "-m", "first")
	s := quickStore(t)
	for _, format := range []string{"tar", "tar.gz"} {
		res, err := s.Import(t.Context(), bytes.NewReader(git("archive", "--format="+format, "HEAD")), ImportOptions{Thread: "t"})
		require.NoError(t, err)
		require.Equal(t, uint64(4), res.Checkpoint.Files)
		out, err := exec.Command("diff", "-r", "--no-dereference", "--exclude=.git", repo, restored(t, s, res.Checkpoint.ID)).CombinedOutput()
		require.NoError(t, err, string(out))
		got := entriesAt(t, s, res.Checkpoint.ID)
		require.Contains(t, got["run.sh"], "file 7")
		require.Contains(t, got["src/deep/er/main.go"], "file 6")
	}
}

// TestImportEnds: a reader that fails, and a caller that goes away, leave nothing.
func TestImportEnds(t *testing.T) {
	s := quickStore(t)
	data := tarOf(t, tarFile("a", strings.Repeat("x", 3<<20)))
	broken := io.MultiReader(bytes.NewReader(data[:1<<20]), iotest.ErrReader(os.ErrDeadlineExceeded))
	_, err := s.Import(t.Context(), broken, ImportOptions{Thread: "t"})
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NotErrorIs(t, err, ErrBadArchive)

	ctx, cancel := context.WithCancel(t.Context())
	_, err = s.Import(ctx, io.MultiReader(bytes.NewReader(data[:1<<20]), readerFunc(func([]byte) (int, error) { cancel(); return 0, ctx.Err() })), ImportOptions{Thread: "t"})
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.Thread(t.Context(), "t")
	require.ErrorIs(t, err, index.ErrThreadNotFound)
	left, err := os.ReadDir(filepath.Join(s.dir, "tmp"))
	require.NoError(t, err)
	require.Empty(t, left)
}

type readerFunc func(b []byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// TestImportConflicts: an import is refused as a save is, before it reads anything.
func TestImportConflicts(t *testing.T) {
	s := quickStore(t)
	data := tarOf(t, tarFile("a", ""))
	_, err := s.Import(t.Context(), bytes.NewReader(data), ImportOptions{Thread: "t", ID: "cp", Name: "v1"})
	require.NoError(t, err)
	lease, err := s.AcquireWriter(t.Context(), "leased", LeaseOptions{})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		opt ImportOptions
		err error
	}{
		"id":      {ImportOptions{Thread: "t", ID: "cp"}, index.ErrDuplicateID},
		"name":    {ImportOptions{Thread: "t", Name: "v1"}, index.ErrDuplicateName},
		"latest":  {ImportOptions{Thread: "t", Name: "latest"}, index.ErrInvalid},
		"thread":  {ImportOptions{Thread: "/"}, index.ErrInvalid},
		"message": {ImportOptions{Thread: "t", Message: "\xff"}, index.ErrInvalid},
		"leased":  {ImportOptions{Thread: "leased"}, index.ErrWriterConflict},
	} {
		_, err := s.Import(t.Context(), iotest.ErrReader(fmt.Errorf("%s: it was read", name)), c.opt)
		require.ErrorIs(t, err, c.err, name)
	}
	_, err = s.Import(t.Context(), bytes.NewReader(data), ImportOptions{Thread: "leased", Lease: lease.Token})
	require.NoError(t, err)

	// Somebody saves into the thread while the archive is read.
	stale := readerFunc(func(b []byte) (int, error) {
		_, err := s.Import(t.Context(), bytes.NewReader(data), ImportOptions{Thread: "t"})
		require.ErrorIs(t, err, ErrBusy)
		return 0, io.EOF
	})
	_, err = s.Import(t.Context(), io.MultiReader(stale, bytes.NewReader(data)), ImportOptions{Thread: "t"})
	require.NoError(t, err)
}

// TestSorter: entries come in the order of a tree's walk, whatever the runs are.
func TestSorter(t *testing.T) {
	for name, s := range map[string]*Store{"on a disk": quickStore(t), "in memory": OpenMemory()} {
		for _, most := range []int{1, 1000, 1 << 20} {
			sorter := &entrySorter{ctx: t.Context(), store: s, most: most}
			paths := []string{"a", "a/b", "a/b/c", "a.b", "a0", "b/\xff", "b/\x01"}
			want := []string{"a", "a/b", "a/b/c", "a.b", "a0", "b/\x01", "b/\xff"}
			for _, n := range rand.Perm(len(paths)) {
				e := &imported{key: keyOf(paths[n]), seq: uint64(n), owned: n%2 == 0, Entry: tree.Entry{Kind: tree.Dir, Size: uint64(n), MtimeSec: -1 << 63, Target: paths[n], Hash: cas.Hash{byte(n)}}}
				require.NoError(t, sorter.add(e))
			}
			for range 2 {
				var got []string
				require.NoError(t, sorter.each(func(e *imported) error {
					got = append(got, pathOf(e.key))
					n := int(e.seq)
					require.Equal(t, imported{key: keyOf(paths[n]), seq: e.seq, owned: n%2 == 0, Entry: tree.Entry{Kind: tree.Dir, Size: uint64(n), MtimeSec: -1 << 63, Target: paths[n], Hash: cas.Hash{byte(n)}}}, *e)
					return nil
				}))
				require.Equal(t, want, got, "%s, %d", name, most)
			}
			sorter.close()
		}
	}
}
