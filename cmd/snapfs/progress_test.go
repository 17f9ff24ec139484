package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/internal/progress"
)

// TestBar: what is over soon shows nothing; then a bar shows what is known, and is
// gone at the end.
func TestBar(t *testing.T) {
	for name, test := range map[string]struct {
		state progress.State
		want  string
	}{
		"known":   {progress.State{Items: 2345, Bytes: 3 << 20, AllItems: 5000, AllBytes: 4 << 20}, "save: 2,345 files, 3.0 MiB of 4.0 MiB (75%), 1.5 MiB/s, 1s left"},
		"unknown": {progress.State{Items: 7, Bytes: 5 << 20}, "save: 7 files, 5.0 MiB, 2.5 MiB/s"},
		"grown":   {progress.State{Items: 7, Bytes: 5 << 20, AllBytes: 1 << 20}, "save: 7 files, 5.0 MiB, 2.5 MiB/s"},
		"nothing": {progress.State{AllBytes: 1 << 20}, "save: 0 files, 0 B of 1.0 MiB (0%), 0 B/s"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			b := &bar{w: &out, verb: "save", items: "files", start: time.Now()}
			b.show(test.state)
			b.end(progress.State{})
			require.Empty(t, out.String(), "it has only begun")

			b.start = time.Now().Add(-2 * time.Second)
			b.show(test.state)
			require.Equal(t, clearLine+test.want, out.String())
			b.end(progress.State{})
			require.Equal(t, clearLine+test.want+clearLine, out.String())
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
