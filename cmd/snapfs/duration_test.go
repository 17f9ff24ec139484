package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "2m": 2 * time.Minute, "36h": 36 * time.Hour, "7d": 7 * 24 * time.Hour, "0": 0, "0d": 0, "1h30m": 90 * time.Minute,
		"250ms": 250 * time.Millisecond, "106751d": 106751 * 24 * time.Hour,
	} {
		got, err := parseDuration(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "5", "d", "-1s", "-1d", "+1d", "1.5d", "1d2h", "7D", "106752d", "99999999999999999999d", "two", "2 m", " 2m"} {
		_, err := parseDuration(text)
		require.ErrorContains(t, err, "90s, 2m, 36h or 7d", text)
	}
}
