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
