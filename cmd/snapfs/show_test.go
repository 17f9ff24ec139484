package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/snapshot"
)

// TestShowSecrets: each place is a line for its values and one for each finding; where
// nothing was found, nothing is said.
func TestShowSecrets(t *testing.T) {
	cp := snapshot.Checkpoint{Redactions: 5, Findings: 1004, Secrets: []snapshot.SecretDoc{
		{In: "file", Path: snapshot.NewPath("src/a\nb"), Redacted: 1, Findings: []snapshot.FindingDoc{{Line: 3, Kind: "private key"}, {Kind: "token\x1b"}}, MoreFindings: 1001},
		{In: "artifact", Path: snapshot.NewPath("report.txt"), Redacted: 1, Findings: []snapshot.FindingDoc{{Line: 1, Kind: "token"}}},
		{In: "conversation", Redacted: 2},
		{In: "record", Path: snapshot.NewPath("label a b"), Redacted: 1},
	}}
	var out bytes.Buffer
	showSecrets(&out, cp)
	require.Equal(t, `redactions  5 values
findings    1,004
  "src/a\nb": 1 value redacted
  "src/a\nb":3: private key
  "src/a\nb": "token\033"
  "src/a\nb": 1,001 more findings
  artifact report.txt: 1 value redacted
  artifact report.txt:1: token
  conversation: 2 values redacted
  record label a b: 1 value redacted
`, out.String())
	out.Reset()
	showSecrets(&out, snapshot.Checkpoint{})
	require.Empty(t, out.String())
}
