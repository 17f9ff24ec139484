package capture

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/secrets"
	"github.com/snapfs/snapfs/tree"
)

const value = "s3cr3t-value-12345"

// token is one that a detector finds; it is put together here, so that none does here.
var token = "ghp" + "_" + "k7Qm2ZxV9bTr4LwY8nHc3JdF6sGa1PeK5uXi"

// declared makes a screen of declared values.
func declared(t require.TestingT, values ...string) Screen {
	var list []secrets.Value
	for _, v := range values {
		list = append(list, secrets.Value{Bytes: []byte(v), Source: "test"})
	}
	set, err := secrets.NewSet(list)
	require.NoError(t, err)
	return Screen{Declared: set}
}

// leftWhy is why entries were left out, by path.
func leftWhy(got Result) map[string]string {
	why := map[string]string{}
	for _, o := range got.Left {
		why[o.Path] += o.Why
	}
	return why
}

// noTrace fails if the value is in an object, or in a result.
func noTrace(t *testing.T, m *memory, got Result, value string) {
	t.Helper()
	for key, data := range m.objects {
		require.NotContains(t, string(data), value, "%s", key)
	}
	require.NotContains(t, string(got.Known.Encode(nil)), value)
	for _, o := range got.Left {
		require.NotContains(t, o.Path+" "+o.Why, value)
	}
	for _, w := range got.Warnings {
		require.NotContains(t, w, value)
	}
}

func TestDeclaredSecrets(t *testing.T) {
	ws := t.TempDir()
	wal := strings.Repeat("w", 200)
	big := strings.Repeat("0123456789abcdef", 200_000)
	write(t, ws, map[string]string{
		"conf":                   "tok=" + value + " end",
		"big":                    big + value + big,
		"border":                 big[:cas.ChunkedSize-5] + value + big,
		"plain":                  "nothing",
		"elf":                    "\x7fELF\x01\x02 " + value,
		"elf-clean":              "\x7fELF\x01\x02",
		"big-binary":             "\x7fELF\x01\x02" + big + value,
		"many":                   strings.Repeat(value+"\n", secrets.MaxRanges+1),
		"dir/" + value + "/deep": "below",
		"a-part/of-a-path":       "the value stands in two names",
		"a-part/of-another":      "none",
		value + ".txt":           "a name",
		"db":                     header("1") + value,
		"db-wal":                 wal,
		"db2":                    header("1"),
		"db2-wal":                wal + value,
		"attr":                   "a",
		"hidden-name":            "b",
	})
	require.NoError(t, os.Symlink("https://u:"+value+"@host/", ws+"/link"))
	require.NoError(t, os.Symlink("/else", ws+"/other-link"))
	require.NoError(t, os.Link(ws+"/conf", ws+"/conf2"))
	require.NoError(t, os.Link(ws+"/elf", ws+"/elf2"))
	require.NoError(t, unix.Setxattr(ws+"/attr", "user.token", []byte("x "+value), 0))
	require.NoError(t, unix.Setxattr(ws+"/attr", "user.kept", []byte("kept"), 0))
	require.NoError(t, unix.Setxattr(ws+"/hidden-name", "user."+value, []byte("x"), 0))
	require.NoError(t, unix.Setxattr(ws+"/dir", "user.token", []byte(value), 0))
	settle(t, ws)
	m := newMemory()
	opt := Options{Files: rules(t, "/no-such"), Screen: declared(t, value, "a-part/of-a-path")}
	got, err := Tree(t.Context(), ws, m, opt)
	require.NoError(t, err)
	noTrace(t, m, got, value)
	noTrace(t, m, got, "a-part/of-a-path")

	all := m.entries(t, got)
	zeros := strings.Repeat("\x00", len(value))
	for path, want := range map[string]string{
		"conf": "tok=" + zeros + " end", "conf2": "tok=" + zeros + " end", "big": big + zeros + big, "border": big[:cas.ChunkedSize-5] + zeros + big,
	} {
		require.Equal(t, want, m.content(t, all[path]), path)
		require.Equal(t, tree.Redacted, all[path].Flags, path)
	}
	for _, path := range []string{"plain", "elf-clean", "a-part/of-another", "attr", "hidden-name", "dir", "other-link"} {
		require.Contains(t, all, path)
		require.Zero(t, all[path].Flags, path)
	}
	require.Equal(t, uint64(4), got.Root.Totals.Redacted)
	const inPath, notText = "a declared secret stands in its path", "a declared secret stands in it, and it is not text"
	starred := strings.Repeat("*", len(value))
	require.Equal(t, map[string]string{
		"elf": notText, "elf2": notText, "big-binary": notText, "db": notText, "db-wal": notText, "db2": notText, "db2-wal": notText,
		"many": "declared secrets stand in too many places of it", "link": "a declared secret stands in what it links to",
		strings.Repeat("*", len("a-part/of-a-path")): inPath, starred + ".txt": inPath, "dir/" + starred: inPath,
		"attr": hidden, "hidden-name": hidden, "dir": hidden,
	}, leftWhy(got))
	require.Equal(t, len(leftWhy(got)), got.Secret)
	require.Len(t, got.Secrets, 4)
	for _, f := range got.Secrets {
		off := strings.Index(m.content(t, all[f.Path]), zeros)
		require.Equal(t, []secrets.Range{{Off: int64(off), Len: int64(len(value))}}, f.Redacted, f.Path)
	}
	require.Equal(t, [][]string{{"conf", "conf2"}}, m.links(t, got))

	// Nothing of that needs to be read again; what the two captures say is the same.
	opt.Known = known(t, got)
	again, err := Tree(t.Context(), ws, newerMemory(m), opt)
	require.NoError(t, err)
	require.Zero(t, again.Read)
	require.Equal(t, got.Root, again.Root)
	require.Equal(t, got.Left, again.Left)
	require.Equal(t, got.Secrets, again.Secrets)
	require.Equal(t, got.Secret, again.Secret)
}

// newerMemory is a store that has what another has.
func newerMemory(m *memory) *memory {
	n := newMemory()
	for k, v := range m.objects {
		n.objects[k] = v
	}
	return n
}

// A capture for fewer secrets reads what had the others, and nothing else.
func TestFewerDeclaredSecrets(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{"both": value + " other-value", "one": value, "none": "nothing", "binary": "\x01" + value})
	settle(t, ws)
	m := newMemory()
	got, err := Tree(t.Context(), ws, m, Options{Files: rules(t), Screen: declared(t, value, "other-value")})
	require.NoError(t, err)
	screen := declared(t, "other-value")
	screen.Fewer = true
	again, err := Tree(t.Context(), ws, m, Options{Files: rules(t), Screen: screen, Known: known(t, got)})
	require.NoError(t, err)
	require.Equal(t, int64(len(value+" other-value")+len(value)+1+len(value)), again.Read)
	all := m.entries(t, again)
	require.Equal(t, value+" "+strings.Repeat("\x00", 11), m.content(t, all["both"]))
	require.Equal(t, value, m.content(t, all["one"]))
	require.Zero(t, all["one"].Flags)
	require.Equal(t, "\x01"+value, m.content(t, all["binary"]))
	require.Empty(t, again.Left)
}

func TestFindings(t *testing.T) {
	ws := t.TempDir()
	big := strings.Repeat("some text\n", 200_000)
	write(t, ws, map[string]string{
		"src/a.go":      "package a\n\nvar t = \"" + token + "\"\n",
		"src/clean.go":  "package a\n",
		"big.log":       big + "token: " + token + "\n" + big,
		"allowed/a.txt": token, "x.pem": token,
		"db": header("x") + " " + token + " ",
	})
	require.NoError(t, os.Link(ws+"/src/a.go", ws+"/src/b.go"))
	settle(t, ws)
	allowed, err := policy.CompileAllowed([]policy.AllowRule{{Pattern: "allowed/"}, {Pattern: "*.pem", Kind: "github-token"}, {Pattern: "src/", Kind: "private-key"}})
	require.NoError(t, err)
	m := newMemory()
	opt := Options{Files: rules(t), Screen: Screen{Mode: policy.SecretsWarn, Allowed: allowed}}
	got, err := Tree(t.Context(), ws, m, opt)
	require.NoError(t, err)
	at := func(line int64) secrets.Report {
		return secrets.Report{Findings: []secrets.Finding{{Line: line, Kind: "github-token"}}}
	}
	want := []SecretFile{{"big.log", at(200_001)}, {"db", at(0)}, {"src/a.go", at(3)}, {"src/b.go", at(3)}}
	require.Equal(t, want, got.Secrets)
	require.Empty(t, got.Left)
	require.Contains(t, m.entries(t, got), "src/a.go")

	// The list of what is allowed may change without a file being read.
	opt.Known, opt.Screen.Allowed = known(t, got), nil
	again, err := Tree(t.Context(), ws, m, opt)
	require.NoError(t, err)
	require.Zero(t, again.Read)
	require.Len(t, again.Secrets, 6)
	opt.Screen.Mode = policy.SecretsOff
	again, err = Tree(t.Context(), ws, m, opt)
	require.NoError(t, err)
	require.Zero(t, again.Read)
	require.Empty(t, again.Secrets)

	// What is left out is neither read nor stored.
	opt.Screen = Screen{Mode: policy.SecretsExclude, Allowed: allowed}
	for _, k := range []*Known{opt.Known, nil} {
		opt.Known = k
		clean := newMemory()
		into := clean
		if k != nil {
			into = newerMemory(m)
		}
		again, err = Tree(t.Context(), ws, into, opt)
		require.NoError(t, err)
		if k != nil {
			require.Zero(t, again.Read)
		} else {
			for key, data := range clean.objects {
				if string(data) != token { // which is allowed
					require.NotContains(t, string(data), token, "%s", key)
				}
			}
		}
		why := "it has what looks like a secret"
		require.Equal(t, map[string]string{"big.log": why, "src/a.go": why, "src/b.go": why, "db": why}, leftWhy(again))
		require.Equal(t, want, again.Secrets, "it is told where")
		require.NotContains(t, into.entries(t, again), "src/a.go")
		require.Contains(t, into.entries(t, again), "allowed/a.txt")
	}
	// What was left out for it is read when it no longer is.
	opt.Known, opt.Screen.Mode = known(t, again), policy.SecretsWarn
	back, err := Tree(t.Context(), ws, m, opt)
	require.NoError(t, err)
	require.Equal(t, got.Root, back.Root)
	require.Equal(t, int64(len("package a\n\nvar t = \"\"\n")+2*len(big)+len("token: \n")+len(header("x"))+2+3*len(token)), back.Read)
}

// Whatever was found in a file, the next capture gets it as it was.
func TestScreenedRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := screened{left: reason(rapid.IntRange(0, int(looksLike)).Draw(t, "left")), hides: rapid.Bool().Draw(t, "hides")}
		at := int64(0)
		for range rapid.IntRange(0, 5).Draw(t, "ranges") {
			r := secrets.Range{Off: at + rapid.Int64Range(0, 1<<40).Draw(t, "gap"), Len: rapid.Int64Range(1, 1<<20).Draw(t, "len")}
			s.report.Redacted, at = append(s.report.Redacted, r), r.End()
		}
		for range rapid.IntRange(0, 3).Draw(t, "findings") {
			s.report.Findings = append(s.report.Findings, secrets.Finding{Line: rapid.Int64Range(0, 1<<40).Draw(t, "line"), Kind: rapid.StringN(0, 20, 40).Draw(t, "kind")})
		}
		s.report.More = rapid.IntRange(0, 5).Draw(t, "more")
		got, err := decodeScreened(s.encode())
		require.NoError(t, err)
		if s.empty() {
			s = screened{}
		}
		require.Equal(t, s, got)
		_, _ = decodeScreened(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "noise")) // does not panic
	})
}

// Files with holes are looked through without reading these, and values beside holes are
// found.
func TestSecretsBesideHoles(t *testing.T) {
	require.EqualValues(t, cas.ZeroBlock, secrets.HoleBlock)
	ws := t.TempDir()
	f, err := os.Create(ws + "/sparse")
	require.NoError(t, err)
	defer f.Close()
	const end = 1<<30 + 4096
	require.NoError(t, f.Truncate(end))
	want := map[int64]string{}
	for _, off := range []int64{1 << 20, 5<<20 - 7, 100<<20 + 4096, end - int64(len(value))} {
		_, err := f.WriteAt([]byte("x " + value)[2:], off)
		require.NoError(t, err)
		want[off] = value
	}
	settle(t, ws)
	m := newMemory()
	got, err := Tree(t.Context(), ws, m, Options{Files: rules(t), Screen: declared(t, value)})
	require.NoError(t, err)
	require.Less(t, got.Read, int64(4<<20), "holes are not read")
	require.Len(t, got.Secrets, 1)
	require.Len(t, got.Secrets[0].Redacted, len(want))
	for _, r := range got.Secrets[0].Redacted {
		require.Contains(t, want, r.Off)
		require.EqualValues(t, len(value), r.Len)
	}
	for key, data := range m.objects {
		require.NotContains(t, string(data), value, "%s", key)
	}
	e := m.entries(t, got)["sparse"]
	require.EqualValues(t, end, e.Size)
	chunks, err := cas.Chunks(t.Context(), m, cas.Files, cas.Blob{Hash: e.Hash, Size: end})
	require.NoError(t, err)
	for _, c := range chunks {
		require.True(t, c.Zeros(), "zero bytes instead of the values make holes of the rest")
	}
}

// What is allowed for one name of a file says nothing of its other names, whichever of
// them is met first; those that stay are one file.
func TestAllowedNames(t *testing.T) {
	ws := t.TempDir()
	files := map[string]string{}
	for i := range 20 {
		files[fmt.Sprintf("ok/f%d", i)] = fmt.Sprintf("%d %s", i, token)
	}
	files["ok/clean"] = "clean"
	write(t, ws, files)
	require.NoError(t, os.Mkdir(ws+"/other", 0o755))
	for name := range files {
		require.NoError(t, os.Link(ws+"/"+name, ws+"/other/"+name[3:]))
		require.NoError(t, os.Link(ws+"/"+name, ws+"/ok/second-"+name[3:]))
	}
	settle(t, ws)
	allowed, err := policy.CompileAllowed([]policy.AllowRule{{Pattern: "ok/"}})
	require.NoError(t, err)
	opt := Options{Files: rules(t), Screen: Screen{Mode: policy.SecretsExclude, Allowed: allowed}}
	m := newMemory()
	for range 5 {
		got, err := Tree(t.Context(), ws, m, opt)
		require.NoError(t, err)
		all := m.entries(t, got)
		groups := m.links(t, got)
		require.Len(t, groups, len(files))
		require.Contains(t, groups, []string{"ok/clean", "ok/second-clean", "other/clean"})
		for name := range files {
			require.Contains(t, all, name)
			require.Contains(t, all, "ok/second-"+name[3:])
			if name != "ok/clean" {
				require.NotContains(t, all, "other/"+name[3:])
				require.Contains(t, groups, []string{name, "ok/second-" + name[3:]})
			}
		}
		require.Equal(t, 20, got.Secret)
		opt.Known = known(t, got)
	}
}

// A file that is what it was when declared values were overwritten in it still lacks them.
func TestStillOverwritten(t *testing.T) {
	ws := t.TempDir()
	write(t, ws, map[string]string{"same": "a\x00\x00\x00\x00\x00\x00\x00\x00b", "changed": "A\x00\x00\x00\x00\x00\x00\x00\x00b", "elsewhere": "a\x00\x00\x00\x00\x00\x00\x00\x00b"})
	settle(t, ws)
	m := newMemory()
	ranges := []secrets.Range{{Off: 1, Len: 8}}
	was := Overwritten{Hash: cas.Data.Sum([]byte("a\x00\x00\x00\x00\x00\x00\x00\x00b")), Ranges: ranges}
	opt := Options{Files: rules(t), Screen: Screen{Before: map[string]Overwritten{"same": was, "changed": was}}}
	for range 2 {
		got, err := Tree(t.Context(), ws, m, opt)
		require.NoError(t, err)
		require.Equal(t, []SecretFile{{"same", secrets.Report{Redacted: ranges}}}, got.Secrets)
		all := m.entries(t, got)
		require.Equal(t, tree.Redacted, all["same"].Flags)
		require.Zero(t, all["changed"].Flags)
		require.Zero(t, all["elsewhere"].Flags)
		opt.Known = known(t, got)
	}
}
