package secrets

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPackRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ranges []Range
		at := int64(0)
		for range rapid.IntRange(0, 5).Draw(t, "ranges") {
			r := Range{Off: at + rapid.Int64Range(0, 1<<40).Draw(t, "gap"), Len: rapid.Int64Range(1, 1<<40).Draw(t, "length")}
			ranges, at = append(ranges, r), r.End()
		}
		packed := PackRanges(ranges)
		got, err := UnpackRanges(packed, 5)
		require.NoError(t, err)
		require.Equal(t, ranges, got)
		if len(ranges) > 0 {
			_, err = UnpackRanges(packed, len(ranges)-1)
			require.ErrorContains(t, err, "more than")
		}
		noise := rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "noise")
		if got, err := UnpackRanges(noise, 20); err == nil && len(noise) > 0 {
			require.Equal(t, noise, PackRanges(got))
		}
	})
	for name, bad := range map[string][]byte{
		"no length": {5}, "an empty stretch": {5, 0}, "a long zero": {0x80, 0, 1}, "beyond the end": {0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1}, "cut": {5, 0x80},
	} {
		_, err := UnpackRanges(bad, 10)
		require.Error(t, err, name)
	}
}
