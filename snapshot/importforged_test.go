package snapshot

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/soak"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/secrets"
)

// A forgery is an archive of ours that whoever has its tools makes anew: all hashes are
// right.
type forgery struct {
	rec       index.Record
	policy    []byte // nil: none
	left      []capture.Omission
	secrets   []FoundSecrets
	artifacts []index.Artifact
	rest      []tarEntry // conversation, files and artifacts
}

// honest is the archive of a checkpoint with a bit of everything, taken apart.
func honest(t *testing.T, s *Store) forgery {
	t.Helper()
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"secret.txt": "token = hunter2hunter2\n", "late.log": "x", "src/main.go": "package main\n"})
	require.NoError(t, os.Link(filepath.Join(ws, "src/main.go"), filepath.Join(ws, "twin")))
	res, err := s.Save(t.Context(), SaveOptions{
		Workspace: ws, Thread: "T", Run: "r1", Message: "about hunter2hunter2", Labels: map[string]string{"k": "hunter2hunter2", "l": "v"},
		Files:        policy.FilesOptions{Exclude: []policy.Rule{{Pattern: "*.log"}}},
		Secrets:      declaredSet(t, "hunter2hunter2"),
		Conversation: strings.NewReader(`[{"text":"hunter2hunter2"}]`),
		Artifacts:    []ArtifactFile{{Path: filepath.Join(ws, "secret.txt"), Name: "out"}, {Path: filepath.Join(ws, "late.log"), Name: ".."}},
	})
	require.NoError(t, err)
	var f forgery
	for r := tar.NewReader(bytes.NewReader(exportedBytes(t, s, res.Checkpoint.ID, Tar))); ; {
		hdr, err := r.Next()
		if err == io.EOF {
			return f
		}
		require.NoError(t, err)
		data := must(io.ReadAll(r))
		switch hdr.Name {
		case "", archiveHeader, recordFolder + "/":
		case recordName:
			f.rec, err = index.DecodeRecord(data)
		case policyPart:
			f.policy = data
		case omissionsPart:
			f.left, err = decodeOmissions(data)
		case secretsPart:
			f.secrets, err = decodeSecrets(data)
		case artifactsPart:
			f.artifacts, err = decodeArtifacts(data)
		default:
			f.rest = append(f.rest, tarEntry{*hdr, string(data)})
		}
		require.NoError(t, err)
	}
}

// bytes puts the archive together.
func (f forgery) bytes(t require.TestingT) []byte {
	var parts []tarEntry
	part := func(name string, there bool, data []byte, err error) index.Blob {
		require.NoError(t, err)
		if !there {
			return index.Blob{}
		}
		parts = append(parts, tarFile(name, string(data)))
		return index.Blob{Hash: cas.Data.Sum(data), Size: uint64(len(data))}
	}
	f.rec.Policy = part(policyPart, f.policy != nil, f.policy, nil)
	data, err := encodeOmissions(f.left)
	f.rec.Omissions = part(omissionsPart, len(f.left) > 0, data, err)
	data, err = encodeSecrets(f.secrets)
	f.rec.Secrets = part(secretsPart, len(f.secrets) > 0, data, err)
	data, err = encodeArtifacts(f.artifacts)
	f.rec.Artifacts = part(artifactsPart, len(f.artifacts) > 0, data, err)
	data, err = index.Encode(f.rec)
	require.NoError(t, err)
	mark := map[string]string{paxComment: archiveMark + archiveVersion + " " + cas.Data.Sum(data).String()}
	head := []tarEntry{{Header: tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: archiveHeader, PAXRecords: mark}}, tarFile(recordName, string(data))}
	return tarOf(t, slices.Concat(head, parts, f.rest)...)
}

// forgeries are what can be wrong with a record and its lists, and what is said of it; "":
// it may well be.
var forgeries = []struct {
	name   string
	change func(f *forgery)
	says   string
}{
	{"nothing", func(f *forgery) {}, ""},
	{"other texts", func(f *forgery) { f.rec.Message += " and more"; f.rec.Run = "r2"; f.rec.Labels["m"] = "n" }, ""},
	{"another origin", func(f *forgery) { f.rec.ID, f.rec.Thread, f.rec.Parent = "x", "y", "z" }, ""},
	{"one more omission", func(f *forgery) {
		f.left = append(f.left, capture.Omission{Path: "zzz", Why: "fifo"})
		f.rec.OmissionCount++
	}, ""},
	{"findings of an omission", func(f *forgery) { f.find(InFile, "late.log"); f.rec.FindingCount++ }, ""},
	{"findings below an omission", func(f *forgery) { f.find(InFile, "late.log/x"); f.rec.FindingCount++ }, ""},
	{"no policy", func(f *forgery) { f.policy = nil }, "names no policy"},
	{"no text of a policy", func(f *forgery) { f.policy = []byte("anything") }, "policy.txt: "},
	{"a pattern that is none", func(f *forgery) {
		f.policy = bytes.ReplaceAll(f.policy, []byte("*.log"), []byte("[z-"))
	}, "policy.txt: "},
	{"another consistency", func(f *forgery) { f.rec.Consistency = "none" }, "a consistency none"},
	{"omissions miscounted", func(f *forgery) { f.rec.OmissionCount++ }, "omissions"},
	{"omissions without a list", func(f *forgery) { f.left = nil }, "omissions"},
	{"an omission out of it", func(f *forgery) { f.left[0].Path = "../x" }, "no path below"},
	{"an absolute omission", func(f *forgery) { f.left[0].Path = "/x" }, "no path below"},
	{"an omission without a reason", func(f *forgery) { f.left[0].Why = "" }, "no reason"},
	{"artifacts miscounted", func(f *forgery) { f.rec.ArtifactCount-- }, "artifacts"},
	{"redactions miscounted", func(f *forgery) { f.rec.Redactions = 0 }, "overwritten values"},
	{"findings miscounted", func(f *forgery) { f.rec.FindingCount++ }, "findings"},
	{"no secrets", func(f *forgery) { f.secrets = nil; f.rec.Redactions, f.rec.FindingCount = 0, 0 }, "marked as redacted"},
	{"secrets of a directory", func(f *forgery) { f.overwrite(InFile, "src", 1) }, "a directory of which values"},
	{"findings of a directory", func(f *forgery) { f.find(InFile, "src"); f.rec.FindingCount++ }, "a directory in which secrets"},
	{"secrets of a clean file", func(f *forgery) { f.overwrite(InFile, "src/main.go", 1) }, "not marked so"},
	{"secrets of nothing", func(f *forgery) { f.overwrite(InFile, "src/nothing", 1) }, "file src/nothing: it is not there"},
	{"findings of nothing", func(f *forgery) { f.find(InFile, "src/nothing"); f.rec.FindingCount++ }, "file src/nothing: it is not there"},
	{"secrets below a file", func(f *forgery) { f.overwrite(InFile, "secret.txt/x", 1) }, "it is not there"},
	{"secrets behind the end", func(f *forgery) { f.secrets[0].Redacted[0].Off = 1000 }, "up to byte 1014"},
	{"secrets of no artifact", func(f *forgery) { f.overwrite(InArtifact, "none", 1) }, "artifact none: it is not there"},
	{"secrets behind an artifact", func(f *forgery) { f.overwrite(InArtifact, "..", 2_000_000) }, "up to byte 2000001"},
	{"secrets of no field", func(f *forgery) { f.overwrite(InRecord, "thread", 1) }, "record thread: it is not there"},
	{"secrets of no label", func(f *forgery) { f.overwrite(InRecord, "label none", 1) }, "up to byte 2, and it has 0"},
	{"secrets of no conversation", func(f *forgery) {
		f.rec.Conversation = index.Blob{}
		f.rest = slices.DeleteFunc(f.rest, func(e tarEntry) bool { return e.Name == conversationName })
	}, "conversation .*: it is not there"},
}

// overwrite adds values to the list of secrets.
func (f *forgery) overwrite(in SecretPlace, path string, at int64) {
	f.secrets = append(f.secrets, FoundSecrets{Place: in, Path: path, Report: secrets.Report{Redacted: []secrets.Range{{Off: at, Len: 1}}}})
	f.rec.Redactions++
}

// find adds a finding to the list of secrets; who calls it counts it.
func (f *forgery) find(in SecretPlace, path string) {
	f.secrets = append(f.secrets, FoundSecrets{Place: in, Path: path, Report: secrets.Report{Findings: []secrets.Finding{{Line: 1, Kind: "private key"}}}})
}

// again is a copy that can be changed.
func (f forgery) again() forgery {
	labels := map[string]string{}
	for k, v := range f.rec.Labels {
		labels[k] = v
	}
	f.rec.Labels = labels
	f.policy, f.left, f.artifacts = bytes.Clone(f.policy), slices.Clone(f.left), slices.Clone(f.artifacts)
	f.rest, f.secrets = slices.Clone(f.rest), slices.Clone(f.secrets)
	for n := range f.secrets {
		f.secrets[n].Redacted = slices.Clone(f.secrets[n].Redacted)
	}
	return f
}

// TestImportForged: an archive of ours in which all hashes are right, but what it says is
// not true, is refused, or what comes of it is as good as what a save makes.
func TestImportForged(t *testing.T) {
	s, other := OpenMemory(), OpenMemory()
	defer s.Close()
	defer other.Close()
	good := honest(t, s)
	for _, c := range forgeries {
		t.Run(c.name, func(t *testing.T) {
			f := good.again()
			c.change(&f)
			res, err := other.Import(t.Context(), bytes.NewReader(f.bytes(t)), ImportOptions{Thread: "t"})
			if c.says == "" {
				require.NoError(t, err)
				wellMade(t, other, res.Checkpoint.ID)
				return
			}
			require.ErrorIs(t, err, ErrBadArchive)
			require.Regexp(t, c.says, err.Error())
			require.NotEmpty(t, Hint(err))
		})
	}
	require.Empty(t, faults(t, other))
}

// TestImportForgedAtRandom: whatever several of these make together, what is accepted is
// good.
func TestImportForgedAtRandom(t *testing.T) {
	s, other := OpenMemory(), OpenMemory()
	defer s.Close()
	defer other.Close()
	good := honest(t, s)
	soak.Checks(t, 20, 1000)
	rapid.Check(t, func(rt *rapid.T) {
		f := good.again()
		for range rapid.IntRange(0, 2).Draw(rt, "changes") {
			c := rapid.SampledFrom(forgeries).Draw(rt, "change")
			if len(f.left) > 0 && len(f.secrets) > 0 {
				c.change(&f)
			}
		}
		for range rapid.IntRange(0, 1).Draw(rt, "places") {
			place := SecretPlace(rapid.IntRange(0, 3).Draw(rt, "place"))
			f.overwrite(place, rapid.SampledFrom([]string{"src", "secret.txt", "message", "label l", "label k", "..", "late.log"}).Draw(rt, "path"), int64(rapid.IntRange(0, 8).Draw(rt, "at")))
		}
		if _, err := encodeSecrets(f.secrets); err != nil {
			return // no list at all
		}
		res, err := other.Import(t.Context(), bytes.NewReader(f.bytes(rt)), ImportOptions{Thread: "t"})
		if err != nil {
			require.ErrorIs(rt, err, ErrBadArchive)
			return
		}
		wellMade(rt, other, res.Checkpoint.ID)
	})
	require.Empty(t, faults(t, other))
}

// wellMade looks whether a checkpoint can be verified, shown, compared, exported, and what
// a mirror needs of it be read; and that it says nothing of what it does not have.
func wellMade(t require.TestingT, s *Store, ref string) {
	ctx := context.Background()
	var found []string
	_, err := s.Verify(ctx, VerifyOptions{Ref: ref, Data: true}, func(problem string) error {
		found = append(found, problem)
		return nil
	})
	require.NoError(t, err)
	require.Empty(t, found)
	cp, err := s.Show(ctx, ref)
	require.NoError(t, err)
	require.Len(t, cp.Omissions, int(cp.Omitted))
	values := uint64(0)
	for _, doc := range cp.Secrets {
		values += doc.Redacted
	}
	require.Equal(t, cp.Redactions, values)
	rec, err := s.Record(ctx, cp)
	require.NoError(t, err)
	_, err = s.coverage(ctx, rec)
	require.NoError(t, err)
	_, err = s.Import(ctx, bytes.NewReader(exportedBytes(t, s, ref, Tar)), ImportOptions{Thread: "again"})
	require.NoError(t, err)
}
