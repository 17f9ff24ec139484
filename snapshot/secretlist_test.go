package snapshot

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/secrets"
)

// someSecrets is a list with all that one can have.
func someSecrets() []FoundSecrets {
	return []FoundSecrets{
		{InFile, "a/b\xff", secrets.Report{Redacted: []secrets.Range{{Off: 0, Len: 8}, {Off: 8, Len: 300}, {Off: math.MaxInt64 - 1, Len: 1}}}},
		{InFile, "c", secrets.Report{Findings: []secrets.Finding{{Line: 0, Kind: "private key"}, {Line: 7, Kind: "x"}, {Line: 7, Kind: "a"}}, More: 5}},
		{InArtifact, "report.txt", secrets.Report{Redacted: []secrets.Range{{Off: 5, Len: 9}}}},
		{InArtifact, "report.txt", secrets.Report{Redacted: []secrets.Range{{Off: 1, Len: 9}}}},
		{InConversation, "", secrets.Report{Redacted: []secrets.Range{{Off: 5, Len: 9}}, Findings: []secrets.Finding{{Line: math.MaxInt64, Kind: "k"}}}},
		{InRecord, "label " + strings.Repeat("k", index.MaxLabel), secrets.Report{Redacted: []secrets.Range{{Off: 5, Len: 9}}}},
		{InRecord, "message", secrets.Report{Redacted: []secrets.Range{{Off: 5, Len: 9}}}},
	}
}

// TestSecretList: a list is read back as it was, sorted, whatever its order was.
func TestSecretList(t *testing.T) {
	want := someSecrets()
	data, err := encodeSecrets(want)
	require.NoError(t, err)
	got, err := decodeSecrets(data)
	require.NoError(t, err)
	require.Equal(t, want, got)
	mixed := []FoundSecrets{want[6], want[2], want[4], want[1], want[3], want[0], want[5]}
	again, err := encodeSecrets(mixed)
	require.NoError(t, err)
	require.Equal(t, data, again)
	require.Equal(t, want[6], mixed[0], "the caller's list stays as it is")

	many := make([]FoundSecrets, 200_000)
	for i := range many {
		many[i] = FoundSecrets{InFile, fmt.Sprintf("src/%06d", i), secrets.Report{Redacted: []secrets.Range{{Off: int64(i), Len: 20}}}}
	}
	data, err = encodeSecrets(many)
	require.NoError(t, err)
	got, err = decodeSecrets(data)
	require.NoError(t, err)
	require.Equal(t, many, got)
}

// TestSecretListBytes pins the encoding: the format must not change by accident.
func TestSecretListBytes(t *testing.T) {
	data, err := encodeSecrets([]FoundSecrets{
		{InFile, "a", secrets.Report{Redacted: []secrets.Range{{Off: 3, Len: 8}, {Off: 300, Len: 200}}}},
		{InConversation, "", secrets.Report{Findings: []secrets.Finding{{Line: 2, Kind: "k"}}, More: 1}},
	})
	require.NoError(t, err)
	require.Equal(t, []byte{
		0x82,
		0xa3, 1, 0, 2, 0x41, 'a', 3, 0x46, 3, 8, 0xa1, 0x02, 0xc8, 0x01,
		0xa4, 1, 2, 2, 0x40, 4, 0x81, 0x82, 2, 0x61, 'k', 5, 1,
	}, data)
}

// TestSecretListRefuses: neither written nor read is what says nothing, what is out of
// order, and what is no stretch or finding.
func TestSecretListRefuses(t *testing.T) {
	one := []secrets.Range{{Off: 0, Len: 8}}
	ranges := func(all ...secrets.Range) []FoundSecrets {
		return []FoundSecrets{{InFile, "a", secrets.Report{Redacted: all}}}
	}
	finding := func(line int64, kind string) FoundSecrets {
		return FoundSecrets{InFile, "a", secrets.Report{Findings: []secrets.Finding{{Line: line, Kind: kind}}}}
	}
	in := func(place SecretPlace, path string) FoundSecrets {
		return FoundSecrets{place, path, secrets.Report{Redacted: one}}
	}
	more := func(n int, found ...secrets.Finding) FoundSecrets {
		return FoundSecrets{InFile, "a", secrets.Report{Redacted: one, Findings: found, More: n}}
	}
	for name, list := range map[string][]FoundSecrets{
		"nothing found":         {{InFile, "a", secrets.Report{}}},
		"more only":             {{InFile, "a", secrets.Report{More: 3}}},
		"more than none":        {more(1)},
		"fewer than none":       {more(-1, secrets.Finding{Line: 1, Kind: "k"})},
		"another place":         {in(4, "a")},
		"no path":               {in(InFile, "")},
		"no artifact":           {in(InArtifact, "")},
		"no field":              {in(InRecord, "")},
		"a conversation's path": {in(InConversation, "a")},
		"path above":            {in(InFile, "../a")},
		"absolute path":         {in(InFile, "/a")},
		"path with NUL":         {in(InFile, "a\x00")},
		"long path":             {in(InArtifact, strings.Repeat("x", maxPlace+1))},
		"twice":                 {in(InFile, "a"), in(InFile, "a")},
		"two conversations":     {in(InConversation, ""), in(InConversation, "")},
		"empty stretch":         ranges(secrets.Range{Off: 1}),
		"negative stretch":      ranges(secrets.Range{Off: -1, Len: 3}),
		"negative length":       ranges(secrets.Range{Off: 5, Len: -3}),
		"overlapping":           ranges(secrets.Range{Off: 1, Len: 8}, secrets.Range{Off: 8, Len: 8}),
		"descending":            ranges(secrets.Range{Off: 20, Len: 8}, secrets.Range{Off: 1, Len: 8}),
		"beyond all":            ranges(secrets.Range{Off: math.MaxInt64, Len: 1}),
		"negative line":         {finding(-1, "k")},
		"no kind":               {finding(1, "")},
		"long kind":             {finding(1, strings.Repeat("k", maxKind+1))},
		"kind of two lines":     {finding(1, "a\nb")},
		"kind not ASCII":        {finding(1, "é")},
		"lines out of order":    {more(0, secrets.Finding{Line: 2, Kind: "k"}, secrets.Finding{Line: 1, Kind: "k"})},
	} {
		_, err := encodeSecrets(list)
		require.Error(t, err, name)
		stored := make([]foundSecrets, len(list))
		for i, f := range list {
			stored[i] = foundSecrets{Place: f.Place, Path: cbor.ByteString(f.Path), Ranges: cbor.ByteString(secrets.PackRanges(f.Redacted)), More: uint64(f.More)}
			for _, o := range f.Findings {
				stored[i].Findings = append(stored[i].Findings, foundFinding{Line: uint64(o.Line), Kind: o.Kind})
			}
		}
		data, err := secretEnc.Marshal(stored)
		require.NoError(t, err)
		_, err = decodeSecrets(data)
		require.ErrorIs(t, err, cas.ErrCorrupt, name)
	}
	_, err := encodeSecrets(make([]FoundSecrets, maxFoundSecrets+1))
	require.ErrorIs(t, err, cas.ErrTooLarge)
	_, err = encodeSecrets([]FoundSecrets{{InFile, "a", secrets.Report{Redacted: make([]secrets.Range, maxRanges+1)}}})
	require.ErrorIs(t, err, cas.ErrTooLarge)
}

// TestSecretListOfAnotherForm: bytes that encodeSecrets does not write are damage.
func TestSecretListOfAnotherForm(t *testing.T) {
	data, err := encodeSecrets(someSecrets())
	require.NoError(t, err)
	entry := "\xa3\x01\x00\x02\x41a\x03"
	for name, bad := range map[string][]byte{
		"empty":              nil,
		"cut":                data[:len(data)-1],
		"longer":             append(bytes.Clone(data), 0),
		"indefinite":         []byte("\x9f\xff"),
		"long head":          []byte("\x98\x01" + entry + "\x42\x00\x01"),
		"long string":        []byte("\x81" + entry + "\x58\x02\x00\x01"),
		"unsorted keys":      []byte("\x81\xa3\x02\x41a\x01\x00\x03\x42\x00\x01"),
		"another key":        []byte("\x81\xa4\x01\x00\x02\x41a\x03\x42\x00\x01\x06\x00"),
		"explicitly none":    []byte("\x81\xa4\x01\x00\x02\x41a\x03\x42\x00\x01\x05\x00"),
		"long number":        []byte("\x81" + entry + "\x43\x80\x00\x01"),
		"half a stretch":     []byte("\x81" + entry + "\x41\x00"),
		"cut number":         []byte("\x81" + entry + "\x42\x00\x81"),
		"number of 65 bits":  []byte("\x81" + entry + "\x4b\x00" + strings.Repeat("\xff", 9) + "\x02"),
		"end of 64 bits":     []byte("\x81" + entry + "\x4a\x01" + strings.Repeat("\xff", 8) + "\x7f"),
		"more than there is": []byte("\x9b\x7f\xff\xff\xff\xff\xff\xff\xff"),
		"one too many":       []byte("\x82" + entry + "\x42\x00\x01"),
		"out of order":       []byte("\x82\xa3\x01\x00\x02\x41b\x03\x42\x00\x01" + entry + "\x42\x00\x01"),
		"line of 64 bits":    []byte("\x81\xa3\x01\x00\x02\x41a\x04\x81\x82\x1b\xff\xff\xff\xff\xff\xff\xff\xff\x61k"),
		"more of 64 bits":    []byte("\x81\xa4\x01\x00\x02\x41a\x04\x81\x82\x01\x61k\x05\x1b\xff\xff\xff\xff\xff\xff\xff\xff"),
	} {
		_, err := decodeSecrets(bad)
		require.ErrorIs(t, err, cas.ErrCorrupt, name)
	}
	_, err = decodeSecrets([]byte("\x81" + entry + "\x42\x00\x01"))
	require.NoError(t, err, "what the others are made from")
}

// TestSecretListProperty: any list is read back.
func TestSecretListProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		paths := rapid.SliceOfDistinct(rapid.StringMatching(`[a-c/é]{1,6}`).Filter(func(s string) bool {
			return !strings.HasPrefix(s, "/") && !strings.HasSuffix(s, "/") && !strings.Contains(s, "//")
		}), rapid.ID).Draw(t, "paths")
		var list []FoundSecrets
		for _, path := range paths {
			f := FoundSecrets{Place: rapid.SampledFrom([]SecretPlace{InFile, InArtifact, InRecord}).Draw(t, "place"), Path: path}
			end, line := int64(0), int64(0)
			for range rapid.IntRange(0, 5).Draw(t, "ranges") {
				r := secrets.Range{Off: end + rapid.Int64Range(0, 1<<40).Draw(t, "gap"), Len: rapid.Int64Range(1, 1<<40).Draw(t, "length")}
				f.Redacted, end = append(f.Redacted, r), r.End()
			}
			for range rapid.IntRange(0, 3).Draw(t, "findings") {
				line += rapid.Int64Range(0, 1<<40).Draw(t, "line")
				f.Findings = append(f.Findings, secrets.Finding{Line: line, Kind: rapid.StringMatching(`[ -~]{1,64}`).Draw(t, "kind")})
			}
			if len(f.Findings) > 0 {
				f.More = rapid.IntRange(0, math.MaxInt).Draw(t, "more")
			}
			if !f.Empty() {
				list = append(list, f)
			}
		}
		data, err := encodeSecrets(list)
		require.NoError(t, err)
		got, err := decodeSecrets(data)
		require.NoError(t, err)
		slices.SortFunc(list, comparePlaces)
		require.Equal(t, len(list), len(got))
		for i := range list {
			require.Equal(t, list[i], got[i])
		}
	})
}

// FuzzDecodeSecrets: what is accepted has one form, and stretches that can be.
func FuzzDecodeSecrets(f *testing.F) {
	for _, list := range [][]FoundSecrets{nil, someSecrets()[:5], someSecrets()[3:4]} {
		data, err := encodeSecrets(list)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte("\x9b\x00\x00\x00\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := decodeSecrets(data)
		if err != nil {
			require.ErrorIs(t, err, cas.ErrCorrupt)
			return
		}
		for _, found := range list {
			require.False(t, found.Empty())
			end := int64(0)
			for _, r := range found.Redacted {
				require.True(t, r.Off >= end && r.Len > 0 && r.End() > 0, "%v", r)
				end = r.End()
			}
		}
		again, err := encodeSecrets(list)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, again), "another form is accepted")
	})
}
