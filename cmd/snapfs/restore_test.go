package main

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/restore"
)

// TestReportRedacted: a warning names ten files at most, and none where none is.
func TestReportRedacted(t *testing.T) {
	var out bytes.Buffer
	reportRedacted(&out, restore.Result{})
	require.Empty(t, out.String())
	reportRedacted(&out, restore.Result{Redacted: []string{"a\nb"}, RedactedFiles: 1})
	require.Equal(t, "warning: 1 file has zero bytes where declared secrets were; put those back before they are used:\n  \"a\\nb\"\n", out.String())
	out.Reset()
	res := restore.Result{RedactedFiles: 1234}
	want := "warning: 1,234 files have zero bytes where declared secrets were; put those back before they are used:\n"
	for i := range 20 {
		res.Redacted = append(res.Redacted, fmt.Sprintf("%02d", i))
		if i < 10 {
			want += fmt.Sprintf("  %02d\n", i)
		}
	}
	reportRedacted(&out, res)
	require.Equal(t, want+"  and 1,224 more, which snapfs show lists\n", out.String())
}

// TestPlanLine: a change is a line, whatever its path is.
func TestPlanLine(t *testing.T) {
	for want, c := range map[string]restore.Change{
		"keep a (differs only where secrets were)":                   {Op: restore.Keep, Path: "a", Why: "differs only where secrets were"},
		`create "a\nb" with zero bytes where secrets were`:           {Op: restore.Create, Path: "a\nb", Redacted: true},
		"replace a (its content) with zero bytes where secrets were": {Op: restore.Replace, Path: "a", Why: "its content", Redacted: true},
		"delete a": {Op: restore.Delete, Path: "a"},
	} {
		require.Equal(t, want, planLine(c))
	}
}
