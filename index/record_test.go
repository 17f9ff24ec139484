package index

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
)

func smallRecord() Record {
	return Record{ID: "c", Thread: "t", Reason: Manual, Root: Root{Tree: cas.Data.Sum(nil)}}
}

// fullRecord has every field set.
func fullRecord() Record {
	blob := func(s string) Blob { return Blob{Hash: cas.Data.Sum([]byte(s)), Size: uint64(len(s))} }
	return Record{
		ID: "2026-c1", Thread: "a/..\n", Parent: "2026-c0", Origin: &Origin{Thread: "o", Checkpoint: "oc"}, Reason: Forked,
		Run: "run", Message: "a\nmessage", Labels: map[string]string{"b": "2", "a": "1", "empty": ""},
		Creator: Creator{User: "ada", Org: "default"}, Created: -5,
		Root: Root{
			Tree: cas.Data.Sum([]byte("tree")), Mode: 0o1755, UID: math.MaxUint32, GID: 7,
			MtimeSec: math.MinInt64, MtimeNsec: 999_999_999, XAttrs: cas.Data.Sum([]byte("x")),
		},
		Totals: Totals{Files: 1, Dirs: 2, Bytes: math.MaxInt64, XAttrs: 4, Redacted: 5},
		Links:  blob("links"), Artifacts: blob("artifacts"), Conversation: blob("conversation"), Policy: blob("policy"),
		Omissions: blob(""), OmissionCount: 3, ArtifactCount: 4, NewBytes: math.MaxInt64, Consistency: PerFile, Redactions: 9,
		Secrets: blob("secrets"), FindingCount: 10,
	}
}

func TestRecordRoundTrip(t *testing.T) {
	for _, want := range []Record{smallRecord(), fullRecord()} {
		data, err := Encode(want)
		require.NoError(t, err)
		got, err := DecodeRecord(data)
		require.NoError(t, err)
		require.Equal(t, want, got)
		var fields map[uint64]cbor.RawMessage
		require.NoError(t, cbor.Unmarshal(data, &fields))
		for k := range fields {
			require.True(t, known(k), "key %d", k)
		}
	}
	var fields map[uint64]cbor.RawMessage
	data, err := Encode(fullRecord())
	require.NoError(t, err)
	require.NoError(t, cbor.Unmarshal(data, &fields))
	require.Len(t, fields, lastField, "all fields are set, and lastField is the last")
	require.Equal(t, time.Date(1969, 12, 31, 23, 59, 59, 999_999_995, time.UTC), fullRecord().CreatedAt())
}

// TestRecordBytes pins the encoding: the format must not change by accident.
func TestRecordBytes(t *testing.T) {
	data, err := Encode(smallRecord())
	require.NoError(t, err)
	hash := cas.Data.Sum(nil)
	want := append([]byte{
		0xa4,         // a map of four
		1, 0x61, 'c', // ID
		2, 0x61, 't', // Thread
		5, 0x66, 'm', 'a', 'n', 'u', 'a', 'l', // Reason
		11, 0xa1, 1, 0x58, 32, // Root, of which only Tree
	}, hash[:]...)
	require.Equal(t, want, data)
}

// TestRecordExtra: fields of a newer version survive a copy of the record.
func TestRecordExtra(t *testing.T) {
	data, err := Encode(fullRecord())
	require.NoError(t, err)
	var fields map[uint64]any
	require.NoError(t, decMode.Unmarshal(data, &fields))
	fields[25] = map[uint64]any{1: "later", 2: []byte{1, 2}}
	fields[26] = []any{uint64(1), int64(-5), 1.5, true, nil, "x"}
	fields[1<<40] = false
	fields[0] = "zero"
	newer, err := encMode.Marshal(fields)
	require.NoError(t, err)
	rec, err := DecodeRecord(newer)
	require.NoError(t, err)
	require.Len(t, rec.Extra, 4)
	again, err := Encode(rec)
	require.NoError(t, err)
	require.Equal(t, newer, again)

	rec.ID, rec.Thread, rec.Parent = "fork", "other", ""
	forked, err := Encode(rec)
	require.NoError(t, err)
	got, err := DecodeRecord(forked)
	require.NoError(t, err)
	require.Equal(t, rec, got)

	rec.Extra = map[uint64]cbor.RawMessage{5: {0}}
	_, err = Encode(rec)
	require.ErrorIs(t, err, ErrInvalid)
	rec.Extra = map[uint64]cbor.RawMessage{99: {0x18, 1}} // 1 in two bytes
	_, err = Encode(rec)
	require.ErrorIs(t, err, ErrInvalid)
}

func TestDecodeRefuses(t *testing.T) {
	good, err := Encode(smallRecord())
	require.NoError(t, err)
	body := good[1:]
	join := func(head byte, parts ...[]byte) []byte { return append([]byte{head}, bytes.Join(parts, nil)...) }
	id, rest := body[:3], body[3:]
	reason := body[6:14]
	tests := map[string][]byte{
		"empty":               {},
		"not a map":           {0x80},
		"null":                {0xf6},
		"empty map":           {0xa0},
		"trailing byte":       append(bytes.Clone(good), 0),
		"cut":                 good[:len(good)-1],
		"duplicate key":       join(0xa5, id, id, rest),
		"duplicate unknown":   join(0xa6, body, []byte{0x18, 25, 0, 0x18, 25, 0}),
		"unsorted":            join(0xa4, body[3:6], id, body[6:]),
		"indefinite map":      append(join(0xbf, body), 0xff),
		"long length":         join(0xb8, []byte{4}, body),
		"long key":            join(0xa4, []byte{0x18, 1}, body[1:]),
		"long string":         join(0xa4, []byte{1, 0x78, 1, 'c'}, rest),
		"indefinite string":   join(0xa4, []byte{1, 0x7f, 0x61, 'c', 0xff}, rest),
		"byte string id":      join(0xa4, []byte{1, 0x41, 'c'}, rest),
		"null id":             join(0xa4, []byte{1, 0xf6}, rest),
		"id not UTF-8":        join(0xa4, []byte{1, 0x61, 0xff}, rest),
		"string key":          join(0xa5, body, []byte{0x61, 'k', 0}),
		"negative key":        join(0xa5, body, []byte{0x20, 0}),
		"explicit zero":       join(0xa5, id, body[3:6], reason, []byte{10, 0}, body[14:]),
		"float for a number":  join(0xa5, id, body[3:6], reason, []byte{10, 0xf9, 0x3c, 0}, body[14:]),
		"null origin":         join(0xa5, id, body[3:6], []byte{4, 0xf6}, body[6:]),
		"empty labels":        join(0xa5, id, body[3:6], reason, []byte{8, 0xa0}, body[14:]),
		"short hash":          join(0xa4, id, body[3:6], reason, []byte{11, 0xa1, 1, 0x41, 9}),
		"hash as array":       join(0xa4, id, body[3:6], reason, []byte{11, 0xa1, 1, 0x81, 9}),
		"unknown key inside":  join(0xa4, id, body[3:6], reason, []byte{11, 0xa2}, body[16:], []byte{9, 0}),
		"tag":                 append([]byte{0xd9, 0xd9, 0xf7}, good...),
		"extra not canonical": join(0xa5, body, []byte{0x18, 25, 0x18, 1}),
		"extra duplicate":     join(0xa5, body, []byte{0x18, 25, 0xa2, 1, 0, 1, 0}),
		"no id":               join(0xa3, rest),
		"deep":                append(join(0xa5, body, []byte{0x18, 25}), append(bytes.Repeat([]byte{0x81}, 100), 0)...),
		"huge":                make([]byte, MaxRecord+1),
	}
	for name, data := range tests {
		_, err := DecodeRecord(data)
		require.ErrorIs(t, err, ErrInvalid, name)
	}
}

func TestRecordRules(t *testing.T) {
	tests := map[string]func(*Record){
		"id":             func(r *Record) { r.ID = "" },
		"id control":     func(r *Record) { r.ID = "a\nb" },
		"thread":         func(r *Record) { r.Thread = "/" },
		"parent":         func(r *Record) { r.Parent = "a\x7f" },
		"own parent":     func(r *Record) { r.Parent = r.ID },
		"origin":         func(r *Record) { r.Origin = &Origin{Thread: "t"} },
		"origin thread":  func(r *Record) { r.Origin = &Origin{Checkpoint: "t"} },
		"no reason":      func(r *Record) { r.Reason = "" },
		"long reason":    func(r *Record) { r.Reason = Reason(strings.Repeat("x", 65)) },
		"message":        func(r *Record) { r.Message = strings.Repeat("x", MaxMessage+1) },
		"message UTF-8":  func(r *Record) { r.Message = "\xff" },
		"label key":      func(r *Record) { r.Labels = map[string]string{"": "x"} },
		"label value":    func(r *Record) { r.Labels = map[string]string{"k": strings.Repeat("x", MaxLabel+1)} },
		"user":           func(r *Record) { r.Creator.User = "\xc3" },
		"no tree":        func(r *Record) { r.Root.Tree = cas.Hash{} },
		"setuid":         func(r *Record) { r.Root.Mode = 0o4755 },
		"nanoseconds":    func(r *Record) { r.Root.MtimeNsec = 1e9 },
		"new bytes":      func(r *Record) { r.NewBytes = -1 },
		"blob":           func(r *Record) { r.Policy.Size = 3 },
		"blob's size":    func(r *Record) { r.Policy = Blob{Hash: cas.Hash{1}, Size: 1 << 63} },
		"files":          func(r *Record) { r.Totals.Files = 1 << 63 },
		"files and dirs": func(r *Record) { r.Totals.Files, r.Totals.Dirs = 1<<62, 1<<62 },
		"bytes":          func(r *Record) { r.Totals.Bytes = math.MaxUint64 },
		"attributes":     func(r *Record) { r.Totals.XAttrs = 1 << 63 },
		"redacted":       func(r *Record) { r.Totals.Redacted = 1 << 63 },
		"omissions":      func(r *Record) { r.OmissionCount = 1 << 63 },
		"artifacts":      func(r *Record) { r.ArtifactCount = 1 << 63 },
		"redactions":     func(r *Record) { r.Redactions = 1 << 63 },
		"secrets":        func(r *Record) { r.Secrets.Size = 3 },
		"secrets' size":  func(r *Record) { r.Secrets = Blob{Hash: cas.Hash{1}, Size: 1 << 63} },
		"findings":       func(r *Record) { r.FindingCount = 1 << 63 },
		"total too long": func(r *Record) { r.Labels = manyLabels(40, MaxLabel) },
		"many labels":    func(r *Record) { r.Labels = manyLabels(MaxLabels+1, 1) },
	}
	for name, change := range tests {
		r := smallRecord()
		change(&r)
		_, err := Encode(r)
		require.ErrorIs(t, err, ErrInvalid, name)
	}
}

func manyLabels(n, size int) map[string]string {
	labels := make(map[string]string)
	for i := range n {
		labels[strings.Repeat("k", i+1)] = strings.Repeat("v", size)
	}
	return labels
}

func FuzzDecodeRecord(f *testing.F) {
	for _, r := range []Record{smallRecord(), fullRecord()} {
		data, err := Encode(r)
		require.NoError(f, err)
		f.Add(data)
		f.Add(append([]byte{data[0] + 1}, append(bytes.Clone(data[1:]), 0x18, 25, 0x61, 'x')...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeRecord(data)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		again, err := Encode(r)
		require.NoError(t, err)
		require.Equal(t, data, again)
	})
}

func BenchmarkDecodeRecord(b *testing.B) {
	data, err := Encode(fullRecord())
	require.NoError(b, err)
	for b.Loop() {
		if _, err := DecodeRecord(data); err != nil {
			b.Fatal(err)
		}
	}
}
