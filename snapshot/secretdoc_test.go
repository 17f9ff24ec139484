package snapshot

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/secrets"
)

// withSecrets gives a record of the crafter a list of secrets.
func (c *crafter) withSecrets(rec *index.Record, list ...FoundSecrets) {
	c.t.Helper()
	data, err := encodeSecrets(list)
	require.NoError(c.t, err)
	rec.Secrets, rec.Redactions, rec.FindingCount = c.blob(cas.Records, data), 0, 0
	for _, f := range list {
		rec.Redactions += uint64(len(f.Redacted))
		rec.FindingCount += uint64(len(f.Findings) + f.More)
	}
}

// TestSecretsOfACheckpoint: show tells where secrets were, list only how many, and so
// does a fork; a collection keeps the list, also for a fork whose origin is gone.
func TestSecretsOfACheckpoint(t *testing.T) {
	s := newStore(t)
	list := []FoundSecrets{
		{InFile, "gone\xff", secrets.Report{Findings: []secrets.Finding{{Line: 7, Kind: "private key"}, {Line: 0, Kind: "k"}}[:1], More: 3}},
		{InArtifact, "report.txt", secrets.Report{Redacted: []secrets.Range{{Off: 5, Len: 9}}}},
		{InConversation, "", secrets.Report{Redacted: []secrets.Range{{Off: 1, Len: 8}, {Off: 20, Len: 8}}}},
		{InRecord, "label a", secrets.Report{Redacted: []secrets.Range{{Off: 0, Len: 8}}}},
	}
	craft(t, s, "one", func(c *crafter, rec *index.Record) { c.withSecrets(rec, list...) })
	want := []SecretDoc{
		{In: "file", Path: NewPath("gone\xff"), Findings: []FindingDoc{{7, "private key"}}, MoreFindings: 3},
		{In: "artifact", Path: NewPath("report.txt"), Redacted: 1, Ranges: [][2]int64{{5, 9}}},
		{In: "conversation", Redacted: 2, Ranges: [][2]int64{{1, 8}, {20, 8}}},
		{In: "record", Path: NewPath("label a"), Redacted: 1, Ranges: [][2]int64{{0, 8}}},
	}
	look := func(ref string) {
		t.Helper()
		cp, err := s.Show(t.Context(), ref)
		require.NoError(t, err)
		require.Equal(t, want, cp.Secrets)
		require.EqualValues(t, 4, cp.Redactions)
		require.EqualValues(t, 4, cp.Findings)
		doc, err := json.Marshal(cp)
		require.NoError(t, err)
		require.Contains(t, string(doc), `"redactions":4,"findings":4,"secrets":[{"in":"file","path":"gone`)
		require.Contains(t, string(doc), `{"in":"artifact","path":"report.txt","redacted":1,"ranges":[[5,9]]}`)
		var again Checkpoint
		require.NoError(t, json.Unmarshal(doc, &again))
		require.Equal(t, want, again.Secrets)
		cp, err = s.Resolve(t.Context(), ref)
		require.NoError(t, err)
		require.Empty(t, cp.Secrets)
		require.EqualValues(t, 4, cp.Findings)
	}
	look("one")
	fork, err := s.Fork(t.Context(), "one", ForkOptions{Thread: "other"})
	require.NoError(t, err)
	_, err = s.Delete(t.Context(), "one")
	require.NoError(t, err)
	_, err = s.GC(t.Context(), GCRequest{})
	require.NoError(t, err)
	look(fork.ID)
	require.Empty(t, faults(t, s))
}

// TestDescriptionOfManySecrets: a mount keeps a description that is short, and says of
// each place in it how much there was.
func TestDescriptionOfManySecrets(t *testing.T) {
	s := newStore(t)
	many := make([]secrets.Range, describedDetails-1)
	for i := range many {
		many[i] = secrets.Range{Off: int64(i) * 100, Len: 8}
	}
	list := []FoundSecrets{{InArtifact, "0", secrets.Report{Redacted: many}}, {InArtifact, "1", secrets.Report{Redacted: many}},
		{InArtifact, "2", secrets.Report{Findings: []secrets.Finding{{Line: 1, Kind: "k"}}}},
		{InArtifact, "3", secrets.Report{Findings: []secrets.Finding{{Line: 1, Kind: "k"}}, More: 2}}}
	for i := range describedSecrets {
		list = append(list, FoundSecrets{InArtifact, fmt.Sprintf("a%06d", i), secrets.Report{Redacted: many[:1]}})
	}
	craft(t, s, "many", func(c *crafter, rec *index.Record) { c.withSecrets(rec, list...) })
	full, err := s.Show(t.Context(), "many")
	require.NoError(t, err)
	require.Len(t, full.Secrets, len(list))
	require.Len(t, full.Secrets[1].Ranges, len(many))
	data, err := s.Describe(t.Context(), full)
	require.NoError(t, err)
	require.Less(t, len(data), 4<<20)
	var doc Checkpoint
	require.NoError(t, json.Unmarshal(data, &doc))
	require.Len(t, doc.Secrets, describedSecrets)
	require.Equal(t, full.Secrets[0], doc.Secrets[0])
	require.Equal(t, SecretDoc{In: "artifact", Path: NewPath("1"), Redacted: uint64(len(many))}, doc.Secrets[1])
	require.Equal(t, full.Secrets[2], doc.Secrets[2])
	require.Equal(t, SecretDoc{In: "artifact", Path: NewPath("3"), MoreFindings: 3}, doc.Secrets[3])
	require.Empty(t, doc.Secrets[4].Ranges)
	require.Equal(t, full.Redactions, doc.Redactions)
}
