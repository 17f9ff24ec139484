package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"": 0, "0": 0, "10485760": 10 << 20, "10M": 10 << 20, "10MiB": 10 << 20, "10m": 10 << 20, "1K": 1 << 10, "1.5G": 3 << 29, "2TiB": 2 << 40,
		"10MB": 10_000_000, "7B": 7,
	} {
		got, err := parseBytes(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"much", "-1", "M", "1X", "10 parsecs", "99999999999999999999", "16E", "\n", "1e3M5"} {
		_, err := parseBytes(text)
		require.ErrorContains(t, err, "want a size like", text)
	}
}
