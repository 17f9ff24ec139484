package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/internal/progress"
)

// TestBar: what is over soon shows nothing; then a bar shows what is known, and is
// gone at the end.
func TestBar(t *testing.T) {
	for name, test := range map[string]struct {
		first, later progress.State
		want         []string
		no           string
	}{
		"known":   {progress.State{AllItems: 5000, AllBytes: 4 << 20}, progress.State{Items: 2345, Bytes: 3 << 20, AllItems: 5000, AllBytes: 4 << 20}, []string{"save: 2345 files", "75%", "3.0/4.0 MiB"}, "-"},
		"unknown": {progress.State{}, progress.State{Items: 1234, Bytes: 3 << 20}, []string{"save: 1234 files", "3.0 MiB"}, "%"},
		"grown":   {progress.State{AllBytes: 1 << 20}, progress.State{Items: 7, Bytes: 3 << 20, AllBytes: 1 << 20}, []string{"save: 7 files", "3.0/3.0 MiB"}, "-"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			b := &bar{w: &out, verb: "save", items: "files"}
			b.show(test.first)
			b.end(progress.State{})
			require.Empty(t, out.String())

			b.start = time.Now().Add(-2 * barPatience)
			b.show(test.later)
			for _, want := range test.want {
				require.Contains(t, out.String(), want)
			}
			require.NotContains(t, out.String(), test.no)

			out.Reset()
			b.end(progress.State{})
			require.NotEmpty(t, out.String())
			require.Empty(t, strings.Trim(out.String(), "\r \x1b[K2"), "the line is blank")
		})
	}
}

func TestJSONLines(t *testing.T) {
	var out bytes.Buffer
	j := &jsonLines{w: &out, verb: "restore", start: time.Now().Add(-2 * time.Second)}
	j.show(progress.State{Items: 3, Bytes: 1000, AllItems: 6, AllBytes: 3000})
	j.end(progress.State{Items: 6, Bytes: 3000, AllItems: 6, AllBytes: 3000})
	dec := json.NewDecoder(&out)
	var doc progressDoc
	require.NoError(t, dec.Decode(&doc))
	require.InDelta(t, 2, doc.Elapsed, 1)
	require.InDelta(t, 4, doc.ETA, 2, "two thirds are left")
	require.InDelta(t, 500, doc.Rate, 200)
	doc.Elapsed, doc.ETA, doc.Rate = 0, 0, 0
	require.Equal(t, progressDoc{Progress: "restore", Items: 3, Bytes: 1000, TotalItems: 6, TotalBytes: 3000}, doc)
	doc = progressDoc{}
	require.NoError(t, dec.Decode(&doc))
	require.True(t, doc.Done)
	require.Zero(t, doc.ETA)
	require.False(t, dec.More())
}
