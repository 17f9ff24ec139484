package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHeld: what fits is held back until its end, and what does not is written as it
// comes.
func TestHeld(t *testing.T) {
	var out bytes.Buffer
	h := held{out: &out, most: 10}
	write := func(s string) {
		t.Helper()
		n, err := io.WriteString(&h, s)
		require.NoError(t, err)
		require.Equal(t, len(s), n)
	}
	write("12345")
	write("67890")
	require.Zero(t, out.Len())
	write("more")
	require.Equal(t, "1234567890", out.String())
	require.NoError(t, h.flush())
	require.Equal(t, "1234567890more", out.String())

	long := strings.Repeat("line\n", 1<<20)
	for range 3 {
		write(long)
		require.LessOrEqual(t, h.buf.Len(), len(long), "no more than was given at once")
	}
	require.NoError(t, h.flush())
	require.Equal(t, "1234567890more"+long+long+long, out.String())
}

// TestInLine: what somebody else wrote tells a terminal nothing.
func TestInLine(t *testing.T) {
	require.Equal(t, `excluded by "x/" (--exclude)`, inLine(`excluded by "x/" (--exclude)`))
	require.Equal(t, `"excluded by \033]0;x\007"`, inLine("excluded by \x1b]0;x\a"))
	require.Equal(t, `"a\nb"`, inLine("a\nb"))
}
