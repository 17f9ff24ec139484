package snapshot

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	iofs "io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/internal/soak"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/restore"
	"github.com/snapfs/snapfs/secrets"
)

const declaredValue = "s3cr3t-value-12345"

// shapedToken is what a detector finds; it is put together here, so that none does here.
var shapedToken = "ghp" + "_" + "k7Qm2ZxV9bTr4LwY8nHc3JdF6sGa1PeK5uXi"

func declaredSet(t require.TestingT, values ...string) SecretsOptions {
	var list []secrets.Value
	for _, v := range values {
		list = append(list, secrets.Value{Bytes: []byte(v), Source: "variable TOKEN"})
	}
	set, err := secrets.NewSet(list)
	require.NoError(t, err)
	return SecretsOptions{Declared: set, Sources: []string{"variable TOKEN"}}
}

// filesWith are the files below dir that have one of some values.
func filesWith(t require.TestingT, dir string, values ...string) (found []string) {
	require.NoError(t, filepath.WalkDir(dir, func(path string, d iofs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		for _, v := range values {
			if bytes.Contains(data, []byte(v)) || strings.Contains(path, v) {
				found = append(found, path)
			}
		}
		return err
	}))
	return found
}

func TestSecretsStayOut(t *testing.T) {
	var log bytes.Buffer
	dir := t.TempDir()
	s, err := Open(t.Context(), filepath.Join(dir, "store"), Options{Create: true, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	require.NoError(t, err)
	defer s.Close()
	ws := filepath.Join(dir, "ws")
	write(t, ws, map[string]string{"conf": "a " + declaredValue + " b", "token.txt": "\n" + shapedToken + "\n", ".snapfsignore": "*.tmp # " + declaredValue + "\n"})
	write(t, dir, map[string]string{"log": "log " + declaredValue + " " + declaredValue, "bin": "\x00\x01" + declaredValue, "leak": shapedToken})
	opt := SaveOptions{
		Workspace: ws, Thread: "t", Secrets: declaredSet(t, declaredValue), Compression: local.Off,
		Message: "with " + declaredValue, Labels: map[string]string{"k": "v" + declaredValue},
		Conversation: strings.NewReader(`[{"role":"user","content":"x ` + declaredValue + ` y"}, "` + shapedToken + `"]`),
		Artifacts:    []ArtifactFile{{Path: filepath.Join(dir, "log")}, {Path: filepath.Join(dir, "bin")}, {Path: filepath.Join(dir, "leak"), Name: "leaks"}},
	}
	res, err := s.Save(t.Context(), opt)
	require.NoError(t, err)
	require.Equal(t, 1, res.Secret)
	require.Equal(t, []string{`artifact bin: a declared secret stands in it, and it is not text`}, res.LeftForSecrets)
	cp, err := s.Show(t.Context(), res.Checkpoint.ID)
	require.NoError(t, err)
	stars := strings.Repeat("*", len(declaredValue))
	require.Equal(t, "with "+stars, cp.Message)
	require.Equal(t, "v"+stars, cp.Labels["k"])
	require.Equal(t, uint64(2), cp.Artifacts)
	require.Equal(t, uint64(7), cp.Redactions)
	require.Equal(t, uint64(3), cp.Findings)
	var where []string
	for _, d := range cp.Secrets {
		where = append(where, fmt.Sprintf("%s %s %d %v", d.In, d.Text, d.Redacted, d.Findings))
	}
	require.Equal(t, []string{
		"file .snapfsignore 1 []", "file conf 1 []", "file token.txt 0 [{2 github-token}]",
		"artifact leaks 0 [{1 github-token}]", "artifact log 2 []", "conversation  1 [{1 github-token}]",
		"record label k 1 []", "record message 1 []",
	}, where)
	require.Contains(t, cp.Policy, "set secrets warn\nredact \"variable TOKEN\"\n")
	var conversation bytes.Buffer
	require.NoError(t, s.Conversation(t.Context(), cp.ID, &conversation))
	require.Equal(t, `[{"role":"user","content":"x `+stars+` y"}, "`+shapedToken+`"]`, conversation.String())
	zeros := strings.Repeat("\x00", len(declaredValue))
	got, err := os.ReadFile(filepath.Join(restored(t, s, cp.ID), "conf"))
	require.NoError(t, err)
	require.Equal(t, "a "+zeros+" b", string(got))
	list, err := s.Artifacts(t.Context(), cp.ID)
	require.NoError(t, err)
	for _, a := range list {
		var content bytes.Buffer
		require.NoError(t, s.ReadArtifact(t.Context(), cp.ID, a.ID, &content))
		if a.Name == "log" {
			require.Equal(t, "log "+zeros+" "+zeros, content.String())
		}
	}
	fork, err := s.Fork(t.Context(), cp.ID, ForkOptions{Thread: "fork"})
	require.NoError(t, err)
	require.Equal(t, uint64(5), fork.Redactions, "without its message and labels")
	again, err := s.Fork(t.Context(), fork.ID, ForkOptions{Thread: "fork of it"})
	require.NoError(t, err)
	for _, f := range []Checkpoint{fork, again} {
		f, err = s.Show(t.Context(), f.ID)
		require.NoError(t, err)
		require.Equal(t, cp.Secrets[:6], f.Secrets)
		require.Equal(t, uint64(3), f.Findings)
	}

	write(t, ws, map[string]string{"!first": shapedToken})
	opt.Settings.Secrets, opt.Conversation = policy.SecretsExclude, strings.NewReader(`["`+shapedToken+`"]`)
	res, err = s.Save(t.Context(), opt)
	require.NoError(t, err)
	require.Equal(t, 5, res.Secret, "two files, two artifacts and the conversation")
	shown, err := s.Show(t.Context(), res.Checkpoint.ID)
	require.NoError(t, err)
	require.True(t, slices.IsSortedFunc(shown.Omissions, func(a, b Omission) int { return strings.Compare(a.Text, b.Text) }))
	require.Len(t, res.LeftForSecrets, 3)
	require.False(t, res.Checkpoint.Conversation)
	require.Equal(t, uint64(1), res.Checkpoint.Files-1, "conf beside the ignore file")

	require.Empty(t, faults(t, s))
	require.NoError(t, s.Close())
	require.Empty(t, filesWith(t, s.dir, declaredValue))
	require.NotContains(t, log.String(), declaredValue)
}

// A text that is shown to everybody and cannot be overwritten is refused before anything
// is written.
func TestDeclaredSecretsInTexts(t *testing.T) {
	s := newStore(t)
	ws := t.TempDir()
	write(t, ws, map[string]string{"a": "a"})
	write(t, ws, map[string]string{"f": "f"})
	for what, change := range map[string]func(opt *SaveOptions){
		"thread id": func(opt *SaveOptions) { opt.Thread = "t-" + declaredValue },
		"id":        func(opt *SaveOptions) { opt.ID = declaredValue },
		"name":      func(opt *SaveOptions) { opt.Name = declaredValue },
		"run id":    func(opt *SaveOptions) { opt.Run = declaredValue },
		"label":     func(opt *SaveOptions) { opt.Labels = map[string]string{declaredValue: "x"} },
		"policy": func(opt *SaveOptions) {
			opt.Files.Exclude = []policy.Rule{{Pattern: "/" + declaredValue, Source: "--exclude"}}
		},
		"artifact's name": func(opt *SaveOptions) { opt.Artifacts = []ArtifactFile{{Path: ws + "/f", Name: declaredValue}} },
		"artifact's media type": func(opt *SaveOptions) {
			opt.Artifacts = []ArtifactFile{{Path: ws + "/f", MediaType: "text/" + declaredValue}}
		},
	} {
		t.Run(what, func(t *testing.T) {
			opt := SaveOptions{Workspace: ws, Thread: "t", Secrets: declaredSet(t, declaredValue)}
			change(&opt)
			_, err := s.Save(t.Context(), opt)
			require.ErrorIs(t, err, ErrRefused)
			require.ErrorContains(t, err, what)
			require.NotContains(t, err.Error()+Hint(err), declaredValue)
			_, err = s.Resolve(t.Context(), "t@latest")
			require.Error(t, err, "nothing was published")
		})
	}
	_, _, err := s.AddArtifact(t.Context(), "t", ArtifactFile{Path: ws + "/f", Name: "x" + declaredValue}, policy.SecretsWarn, declaredSet(t, declaredValue))
	require.ErrorIs(t, err, ErrRefused)
	require.NotContains(t, err.Error(), declaredValue)
	require.Empty(t, filesWith(t, s.dir, declaredValue))
}

func TestArtifactWithSecrets(t *testing.T) {
	s := newStore(t)
	dir := t.TempDir()
	write(t, dir, map[string]string{"text": "a " + declaredValue, "binary": "\x01" + declaredValue, "leak": "x\n" + shapedToken})
	_, found, err := s.AddArtifact(t.Context(), "t", ArtifactFile{Path: dir + "/text"}, policy.SecretsWarn, declaredSet(t, declaredValue))
	require.NoError(t, err)
	require.Equal(t, []FoundSecrets{{Place: InArtifact, Path: "text", Report: secrets.Report{Redacted: []secrets.Range{{Off: 2, Len: int64(len(declaredValue))}}}}}, found)
	_, _, err = s.AddArtifact(t.Context(), "t", ArtifactFile{Path: dir + "/binary"}, policy.SecretsWarn, declaredSet(t, declaredValue))
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorContains(t, err, "not text")
	_, found, err = s.AddArtifact(t.Context(), "t", ArtifactFile{Path: dir + "/leak"}, policy.SecretsWarn, SecretsOptions{})
	require.NoError(t, err)
	require.Equal(t, []secrets.Finding{{Line: 2, Kind: "github-token"}}, found[0].Findings)
	_, _, err = s.AddArtifact(t.Context(), "t", ArtifactFile{Path: dir + "/leak"}, policy.SecretsExclude, SecretsOptions{})
	require.ErrorIs(t, err, ErrRefused)
	_, _, err = s.AddArtifact(t.Context(), "t", ArtifactFile{Path: dir + "/leak"}, policy.SecretsExclude, SecretsOptions{Allowed: []policy.AllowRule{{Pattern: "leak"}}})
	require.NoError(t, err)
	require.Empty(t, filesWith(t, s.dir, declaredValue))
}

// A changed set of secrets has read again what it must, and only that.
func TestSaveReadsForSecrets(t *testing.T) {
	const hit, other, clean = "hit s3cr3t-value-12345", "other-value-678 here", "clean"
	all := int64(len(hit) + len(other) + len(clean))
	first := declaredSet(t, declaredValue, "other-value-678")
	for name, tt := range map[string]struct {
		first, second SaveOptions
		read          int64
	}{
		"the same":                    {SaveOptions{Secrets: first}, SaveOptions{Secrets: declaredSet(t, "other-value-678", declaredValue)}, 0},
		"none, and none":              {SaveOptions{}, SaveOptions{}, 0},
		"one more":                    {SaveOptions{Secrets: declaredSet(t, declaredValue)}, SaveOptions{Secrets: first}, all},
		"one less":                    {SaveOptions{Secrets: first}, SaveOptions{Secrets: declaredSet(t, declaredValue)}, int64(len(hit) + len(other))},
		"none any more":               {SaveOptions{Secrets: first}, SaveOptions{}, int64(len(hit) + len(other))},
		"another":                     {SaveOptions{Secrets: declaredSet(t, declaredValue)}, SaveOptions{Secrets: declaredSet(t, "other-value-678")}, all},
		"looked at, and not":          {SaveOptions{}, SaveOptions{Settings: policy.Settings{Secrets: policy.SecretsOff}}, 0},
		"not looked at, and looked":   {SaveOptions{Settings: policy.Settings{Secrets: policy.SecretsOff}}, SaveOptions{}, all},
		"told, and left out":          {SaveOptions{}, SaveOptions{Settings: policy.Settings{Secrets: policy.SecretsExclude}}, 0},
		"another list of the allowed": {SaveOptions{}, SaveOptions{Secrets: SecretsOptions{Allowed: []policy.AllowRule{{Pattern: "x"}}}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			ws := t.TempDir()
			write(t, ws, map[string]string{"hit": hit, "other": other, "clean": clean})
			time.Sleep(30 * time.Millisecond) // what was just written is not trusted
			tt.first.Workspace, tt.first.Thread = ws, "t"
			tt.second.Workspace, tt.second.Thread = ws, "t"
			readBySave(t, s, tt.first)
			require.Equal(t, tt.read, readBySave(t, s, tt.second))
			cp, err := s.Resolve(t.Context(), "t@latest")
			require.NoError(t, err)
			dir := restored(t, s, cp.ID)
			for file, want := range map[string]string{"hit": hit, "other": other, "clean": clean} {
				for _, r := range tt.second.Secrets.Declared.Find([]byte(want)) {
					want = want[:r.Off] + strings.Repeat("\x00", int(r.Len)) + want[r.End():]
				}
				got, err := os.ReadFile(filepath.Join(dir, file))
				require.NoError(t, err)
				require.Equal(t, want, string(got), file)
			}
			require.Zero(t, readBySave(t, s, tt.second), "and then nothing")
		})
	}
}

// Whatever is declared, whatever the files are and wherever they are cut: no declared
// value is anywhere under the store, in a result or in the log, and all other bytes are
// what they were.
func TestNoDeclaredByteAnywhere(t *testing.T) {
	soak.Checks(t, 30, 800)
	rapid.Check(t, func(t *rapid.T) {
		usable := func(s string) bool {
			_, err := secrets.NewSet([]secrets.Value{{Bytes: []byte(s)}})
			return err == nil
		}
		values := rapid.SliceOfN(rapid.OneOf(
			rapid.StringN(8, 30, 120), rapid.StringMatching(`[ab]{8,10}`), rapid.StringMatching(`[A-Za-z0-9+/=]{8,60}`),
			rapid.Map(rapid.SliceOfN(rapid.ByteRange(1, 255), 8, 40), func(b []byte) string { return string(b) }),
		).Filter(usable), 1, 4).Draw(t, "values")
		// What the store writes of its own accord is no secret.
		for _, v := range values {
			if strings.Contains("ready manual default per-file", v) {
				t.Skip("a word of the store")
			}
		}
		dir, err := os.MkdirTemp("", "secrets")
		require.NoError(t, err)
		defer os.RemoveAll(dir)
		ws := filepath.Join(dir, "ws")
		require.NoError(t, os.Mkdir(ws, 0o755))
		content := map[string]string{}
		part := rapid.OneOf(rapid.SampledFrom(values), rapid.StringN(0, 10, 40), rapid.SampledFrom([]string{
			strings.Repeat(".", 5000), strings.Repeat("0123456789abcdef", 9000), strings.Repeat("x", cas.ChunkedSize-7), strings.Repeat("\x00", 8192), "\n"}))
		for i := range rapid.IntRange(1, 5).Draw(t, "files") {
			name := fmt.Sprintf("f%d", i)
			if rapid.IntRange(0, 9).Draw(t, "in a name") == 0 {
				if v := rapid.SampledFrom(values).Draw(t, "name"); len(v) < 100 { // with a slash, of a directory and a file in it
					name += v
				}
			}
			content[name] = strings.Join(rapid.SliceOfN(part, 0, 8).Draw(t, "parts"), "")
			path := filepath.Join(ws, name)
			if path != ws+"/"+name || os.MkdirAll(filepath.Dir(path), 0o755) != nil || os.WriteFile(path, []byte(content[name]), 0o644) != nil {
				delete(content, name) // no name of a file
				continue
			}
			if v := rapid.SampledFrom(values).Draw(t, "attribute"); rapid.Bool().Draw(t, "has one") {
				require.NoError(t, unix.Setxattr(path, "user.k", []byte("x"+v), 0))
			}
			if v := rapid.SampledFrom(values).Draw(t, "target"); rapid.Bool().Draw(t, "linked") {
				require.NoError(t, os.Symlink("/x/"+v, filepath.Join(ws, fmt.Sprintf("link%d", i))))
			}
		}
		words := func(label string) string { return strings.Join(rapid.SliceOfN(part, 0, 3).Draw(t, label), "") }
		doc, err := json.Marshal([]any{map[string]any{words("key"): []string{words("message")}}})
		require.NoError(t, err)
		artifact := []byte(words("artifact"))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "artifact"), artifact, 0o600))

		var log bytes.Buffer
		s, err := Open(t.Context(), filepath.Join(dir, "store"), Options{Create: true, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		require.NoError(t, err)
		defer s.Close()
		opt := SaveOptions{
			Workspace: ws, Thread: "t", Files: policy.FilesOptions{NoDefaults: true}, Secrets: declaredSet(t, values...), Compression: local.Off,
			Conversation: bytes.NewReader(doc), Artifacts: []ArtifactFile{{Path: filepath.Join(dir, "artifact")}},
		}
		wantDoc, err := io.ReadAll(secrets.Screen{Set: opt.Secrets.Declared}.JSON(bytes.NewReader(doc), nil))
		if err != nil {
			t.Skip("a value that no conversation can do without")
		}
		res, err := s.Save(t.Context(), opt)
		require.NoError(t, err)
		cp, err := s.Show(t.Context(), res.Checkpoint.ID)
		require.NoError(t, err)
		var gotDoc, gotArtifact bytes.Buffer
		require.NoError(t, s.Conversation(t.Context(), cp.ID, &gotDoc))
		require.Equal(t, string(wantDoc), gotDoc.String())
		list, err := s.Artifacts(t.Context(), cp.ID)
		require.NoError(t, err)
		for _, a := range list {
			require.NoError(t, s.ReadArtifact(t.Context(), cp.ID, a.ID, &gotArtifact))
			for _, r := range opt.Secrets.Declared.Find(artifact) {
				clear(artifact[r.Off:r.End()])
			}
			require.True(t, bytes.Equal(artifact, gotArtifact.Bytes()))
		}
		opt.Conversation = nil
		again, err := s.Save(t.Context(), opt)
		require.NoError(t, err)
		require.Equal(t, cp.Tree, again.Checkpoint.Tree)
		shown, err := json.Marshal([]any{res, cp})
		require.NoError(t, err)
		out := filepath.Join(dir, "out")
		_, err = s.Restore(t.Context(), cp.ID, RestoreOptions{Dir: out})
		require.NoError(t, err)
		for name, want := range content {
			masked := opt.Secrets.Declared.Mask(name)
			got, err := os.ReadFile(filepath.Join(out, name))
			if err != nil {
				require.True(t, slices.ContainsFunc(cp.Omissions, func(o Omission) bool { return Within("/"+masked, "/"+o.Raw()) }))
				require.True(t, masked != name || secrets.Binary([]byte(want)), "only what cannot be overwritten is left out")
				continue
			}
			require.NoError(t, err)
			require.Len(t, got, len(want))
			expect := []byte(want)
			for _, r := range opt.Secrets.Declared.Find(expect) {
				clear(expect[r.Off:r.End()])
			}
			require.True(t, bytes.Equal(expect, got), name)
		}
		require.NoError(t, s.Close())
		for _, v := range values {
			require.Empty(t, filesWith(t, filepath.Join(dir, "store"), v), "%q", v)
			require.NotContains(t, string(shown), v)
			require.NotContains(t, log.String(), v)
		}
	})
}

// What is allowed by kind alone, or for conversation.json, is allowed in the conversation.
func TestAllowedInConversation(t *testing.T) {
	s := newStore(t)
	ws := t.TempDir()
	write(t, ws, map[string]string{"a": "a"})
	for _, tt := range []struct {
		rules []policy.AllowRule
		kept  bool
	}{
		{nil, false},
		{[]policy.AllowRule{{Pattern: "a"}, {Pattern: "*", Kind: "private-key"}}, false},
		{[]policy.AllowRule{{Pattern: "*", Kind: "github-token"}}, true},
		{[]policy.AllowRule{{Pattern: "/conversation.json"}}, true},
	} {
		res, err := s.Save(t.Context(), SaveOptions{
			Workspace: ws, Thread: "t", Conversation: strings.NewReader(`["` + shapedToken + `"]`),
			Settings: policy.Settings{Secrets: policy.SecretsExclude}, Secrets: SecretsOptions{Allowed: tt.rules},
		})
		require.NoError(t, err)
		require.Equal(t, tt.kept, res.Checkpoint.Conversation, "%v", tt.rules)
		require.Equal(t, tt.kept, res.Checkpoint.Findings == 0)
	}
}

// What was restored without its secrets, and saved again, still counts as redacted: over
// the original it does not take the secrets away.
func TestRestoredAndSavedAgain(t *testing.T) {
	s := newStore(t)
	ws := t.TempDir()
	content := "token: " + declaredValue + "\n"
	write(t, ws, map[string]string{"conf": content, "other": "1"})
	first, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t", Secrets: declaredSet(t, declaredValue)})
	require.NoError(t, err)
	sandbox := restored(t, s, first.Checkpoint.ID)
	write(t, sandbox, map[string]string{"other": "2"})
	for range 2 {
		again, err := s.Save(t.Context(), SaveOptions{Workspace: sandbox, Thread: "t"})
		require.NoError(t, err)
		require.EqualValues(t, 1, again.Checkpoint.Redactions)
		require.Equal(t, []FoundSecrets{{Path: "conf", Report: secrets.Report{Redacted: []secrets.Range{{Off: 7, Len: int64(len(declaredValue))}}}}}, again.Found)
	}
	_, err = s.Restore(t.Context(), "t@latest", RestoreOptions{Dir: ws, Mode: restore.Overlay})
	require.NoError(t, err)
	for name, want := range map[string]string{"conf": content, "other": "2"} {
		got, err := os.ReadFile(filepath.Join(ws, name))
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	require.Empty(t, faults(t, s))
}

// An id that only looks like what a purge writes in its place goes, too.
func TestPurgeForgetsAnyID(t *testing.T) {
	s := newStore(t)
	ws := t.TempDir()
	write(t, ws, map[string]string{"a": "a"})
	ids := []string{"deleted-Sup3rSecretVal-000123456", "deleted-0123456789abcdef01234567"}
	for _, id := range ids {
		_, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t", ID: id})
		require.NoError(t, err)
	}
	save(t, s, ws, "another")
	for _, id := range ids {
		_, err := s.Delete(t.Context(), id)
		require.NoError(t, err)
	}
	for range 2 {
		res, err := s.GC(t.Context(), GCRequest{Purge: true})
		require.NoError(t, err)
		require.Empty(t, res.Left)
	}
	require.NoError(t, s.Close())
	require.Empty(t, filesWith(t, s.dir, ids...))
}

// A scrub of one thread says that others have what it found, whatever that is in.
func TestScrubTellsOfOthers(t *testing.T) {
	for name, prepare := range map[string]func(ws string, opt *SaveOptions){
		"a file": func(ws string, _ *SaveOptions) { write(t, ws, map[string]string{"f": declaredValue}) },
		"an attribute": func(ws string, _ *SaveOptions) {
			require.NoError(t, unix.Setxattr(ws+"/a", "user.k", []byte(declaredValue), 0))
		},
		"one of the root": func(ws string, _ *SaveOptions) {
			require.NoError(t, unix.Setxattr(ws, "user.k", []byte(declaredValue), 0))
		},
		"an artifact": func(ws string, opt *SaveOptions) {
			write(t, ws+"-beside", map[string]string{"b": declaredValue})
			opt.Artifacts = []ArtifactFile{{Path: ws + "-beside/b"}}
		},
		"a directory's": func(ws string, _ *SaveOptions) {
			require.NoError(t, os.Mkdir(ws+"/d", 0o755))
			require.NoError(t, unix.Setxattr(ws+"/d", "user.k", []byte(declaredValue), 0))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			ws := t.TempDir()
			write(t, ws, map[string]string{"a": "a", "b": "b"})
			opt := SaveOptions{Workspace: ws, Thread: "A"}
			prepare(ws, &opt)
			res, err := s.Save(t.Context(), opt)
			require.NoError(t, err)
			_, err = s.Fork(t.Context(), res.Checkpoint.ID, ForkOptions{Thread: "B"})
			require.NoError(t, err)
			got, err := s.Scrub(t.Context(), declaredSet(t, declaredValue).Declared, ScrubOptions{Thread: "A"}, func(ScrubHit) error { return nil })
			require.NoError(t, err)
			require.Positive(t, got.Hits)
			require.Equal(t, 1, got.Others)
		})
	}
}
