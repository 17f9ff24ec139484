package index

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
)

func TestValid(t *testing.T) {
	tests := []struct {
		s                        string
		thread, checkpoint, name bool
	}{
		{"a", true, true, true},
		{"", false, false, false},
		{"/", false, false, true},
		{"//", true, true, true},
		{"..", true, true, true},
		{"latest", true, true, false},
		{"Latest", true, true, true},
		{" ", true, true, true},
		{"👩‍👩‍👧", true, true, true},
		{"a\x00", false, false, false},
		{"a\nb", true, false, false},
		{"a\x7f", true, false, false},
		{"a\u0085", true, false, false},
		{"\xff", false, false, false},
		{"\xed\xa0\x80", false, false, false}, // a surrogate
		{strings.Repeat("x", 255), true, true, true},
		{strings.Repeat("x", 256), true, true, false},
		{strings.Repeat("é", 255), true, true, true},
		{strings.Repeat("x", 512), true, true, false},
		{strings.Repeat("x", 513), false, false, false},
		{strings.Repeat("é", 257), false, false, false},
	}
	for _, test := range tests {
		for what, got := range map[string]struct {
			err  error
			want bool
		}{
			"thread":     {ValidID("thread id", test.s), test.thread},
			"checkpoint": {ValidCheckpointID(test.s), test.checkpoint},
			"name":       {ValidName(test.s), test.name},
		} {
			if got.want {
				require.NoError(t, got.err, "%s %q", what, test.s)
				continue
			}
			require.ErrorIs(t, got.err, ErrInvalid, "%s %q", what, test.s)
			require.Less(t, len(got.err.Error()), 400)
			require.NotContains(t, got.err.Error(), "\n")
		}
	}
	require.EqualError(t, ValidID("thread id", "a\x00"), `invalid thread id "a\x00": it contains a NUL byte`)
	require.ErrorContains(t, ValidID("thread id", strings.Repeat("é", 300)), `"`+strings.Repeat("é", 32)+`"...: 600 bytes`)
}

func TestValidArtifact(t *testing.T) {
	for name, ok := range map[string]bool{
		"": false, " ": true, ".": true, "..": true, "a/../b": true, "/": true, "new\nline \x00\x7f": true, "\U0001F600": true, "latest": true,
		"\xff": false, strings.Repeat("x", MaxArtifactName): true, strings.Repeat("x", MaxArtifactName+1): false,
	} {
		a := Artifact{ID: "id", Name: name, Blob: Blob{Hash: cas.Hash{1}}}
		if err := a.Validate(); ok {
			require.NoError(t, err, "%q", name)
		} else {
			require.ErrorIs(t, err, ErrInvalid, "%q", name)
		}
	}
	require.NoError(t, ValidArtifact("a", strings.Repeat("x", MaxMediaType)))
	require.ErrorIs(t, ValidArtifact("a", strings.Repeat("x", MaxMediaType+1)), ErrInvalid)
	require.ErrorIs(t, ValidArtifact("a", "\xff"), ErrInvalid)
}
