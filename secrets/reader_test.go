package secrets

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/internal/soak"
)

// pieces yields a content in pieces, of which some are holes.
type pieces struct {
	data []byte
	off  int64
	next func(most int) int
	hole func() bool
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.off == int64(len(p.data)) {
		return 0, io.EOF
	}
	n := copy(b, p.data[p.off:][:p.next(min(len(b), len(p.data)-int(p.off)))])
	p.off += int64(n)
	return n, nil
}

func (p *pieces) SkipHole() (int64, error) {
	if !p.hole() {
		return 0, nil
	}
	rest := p.data[p.off:]
	n := len(rest) - len(bytes.TrimLeft(rest, "\x00"))
	if n < len(rest) {
		n -= n % HoleBlock
	}
	p.off += int64(n)
	return int64(n), nil
}

// A reader returns what the whole content becomes, however it comes and is taken.
func TestReaderAny(t *testing.T) {
	soak.Checks(t, 40, 500)
	rapid.Check(t, func(t *rapid.T) {
		set, all := values(t)
		var data []byte
		for range rapid.IntRange(0, 4).Draw(t, "stretches") {
			data = append(data, bytes.Repeat([]byte("."), rapid.SampledFrom([]int{0, 1, 5000, 100_000, stretch - 3, stretch}).Draw(t, "dots"))...)
			data = append(data, texts(all).Draw(t, "text")...)
			data = append(data, make([]byte, rapid.SampledFrom([]int{0, 0, 8, HoleBlock, 2*HoleBlock + 7, stretch}).Draw(t, "zeros"))...)
			if rapid.Bool().Draw(t, "aligned") {
				data = append(data, make([]byte, (HoleBlock-len(data)%HoleBlock)%HoleBlock)...)
			}
		}
		for Binary(data) { // what of it is not text in the beginning
			data = append([]byte(strings.Repeat(".", binaryHead)), data...)
		}
		want := bytes.Clone(data)
		screen := Screen{Set: set, Detect: rapid.Bool().Draw(t, "detect")}
		report, err := screen.Screen(want, nil)
		require.NoError(t, err)
		require.Equal(t, set.Find(data), report.Redacted)
		for _, r := range report.Redacted {
			require.Equal(t, make([]byte, r.Len), want[r.Off:r.End()])
			copy(want[r.Off:r.End()], data[r.Off:])
		}
		require.True(t, bytes.Equal(data, want), "all other bytes are as they were")
		for _, r := range report.Redacted {
			clear(want[r.Off:r.End()])
		}

		small := rapid.IntRange(1, 3000).Draw(t, "piece")
		src := &pieces{data: data, next: func(most int) int { return min(most, small) }}
		src.hole = func() bool { return rapid.Bool().Draw(t, "hole") }
		if rapid.Bool().Draw(t, "whole") {
			src.next = func(most int) int { return most }
		}
		r := screen.Reader(src, nil)
		defer r.Close()
		var got []byte
		skipping := rapid.Bool().Draw(t, "skips")
		buf := make([]byte, 16*HoleBlock)
		for {
			if skipping && len(got)%HoleBlock == 0 {
				n, err := r.SkipHole()
				require.NoError(t, err)
				got = append(got, make([]byte, n)...)
			}
			n, err := io.ReadFull(r, buf)
			got = append(got, buf[:n]...)
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				break
			}
			require.NoError(t, err)
		}
		require.True(t, bytes.Equal(want, got), "%d and %d bytes", len(want), len(got))
		require.Equal(t, report, r.Report())
	})
}

func TestReaderOfHoles(t *testing.T) {
	src := &pieces{data: append(make([]byte, 50*stretch), "value-in-the-end value"...), next: func(most int) int { return most }, hole: func() bool { return true }}
	r := Screen{Set: setOf(t, "value-in-the-end")}.Reader(src, nil)
	defer r.Close()
	n, err := r.SkipHole()
	require.NoError(t, err)
	require.Equal(t, int64(50*stretch), n)
	rest, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00 value", string(rest))
	require.Equal(t, []Range{{50 * stretch, 16}}, r.Report().Redacted)
}

func TestBinary(t *testing.T) {
	for name, tt := range map[string]struct {
		head string
		want bool
	}{
		"empty":                    {"", false},
		"text":                     {"a\tb\r\nc \x1b[0m é \xff", false},
		"a zero byte":              {"a\x00b", true},
		"UTF-16":                   {"a\x00b\x00c\x00", true},
		"a control byte":           {"a\x01b", true},
		"a redacted value":         {"tok=\x00\x00\x00\x00\x00\x00\x00\x00 end", false},
		"a short run of zeros":     {"tok=\x00\x00\x00\x00\x00\x00\x00 end", true},
		"zeros at the end":         {"abc\x00\x00", false},
		"SQLite":                   {"SQLite format 3\x00\x10\x00", true},
		"behind what is looked at": {strings.Repeat("a", binaryHead) + "\x00b", false},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tt.want, Binary([]byte(tt.head))) })
	}
}

func TestScreenRefuses(t *testing.T) {
	set := setOf(t, "s3cr3t-value")
	for name, tt := range map[string]struct {
		data string
		want error
	}{
		"binary with a value": {"\x7fELF\x02\x01 s3cr3t-value", ErrBinary},
		"binary without":      {"\x7fELF\x02\x01 s3cr3t", nil},
		"too many":            {strings.Repeat("s3cr3t-value ", MaxRanges+1), ErrTooMany},
		"as many as can be":   {strings.Repeat("s3cr3t-value ", MaxRanges), nil},
		"binary, far behind":  {"\x7fELF\x02\x01" + strings.Repeat(".", 3*stretch) + "s3cr3t-value", ErrBinary},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Screen{Set: set}.Screen([]byte(tt.data), nil)
			require.ErrorIs(t, err, tt.want)
			r := Screen{Set: set}.Reader(strings.NewReader(tt.data), nil)
			defer r.Close()
			out, err := io.ReadAll(r)
			require.ErrorIs(t, err, tt.want)
			require.NotContains(t, string(out), "s3cr3t-value")
		})
	}
}

// What is found in a content that is no text has no line.
func TestFindingsInBinary(t *testing.T) {
	token := "gh" + "p_" + "k7Qm2ZxV9bTr4LwY8nHc3JdF6sGa1PeK5uXi"
	for content, line := range map[string]int64{
		"\n\n" + token + " ":                                         3,
		"\n\n" + token + "\x00b":                                     0,
		token + strings.Repeat("\n", 2000) + "\x01":                  0,
		"\x00\x00\x00\x00\x00\x00\x00\x00\n" + token + " is here":    2,
		strings.Repeat("\n", binaryHead) + "\x01" + token:            binaryHead + 1,
		"\x01" + strings.Repeat("\n", 3*stretch) + token + " far on": 0,
	} {
		report, err := Screen{Detect: true}.Screen([]byte(content), nil)
		require.NoError(t, err)
		require.Equal(t, []Finding{{Line: line, Kind: "github-token"}}, report.Findings)
		r := Screen{Detect: true}.Reader(strings.NewReader(content), nil)
		_, err = io.Copy(io.Discard, r)
		require.NoError(t, err)
		require.Equal(t, report, r.Report())
		r.Close()
	}
}

// However many there are of one kind, none of another is lost.
func TestManyFindings(t *testing.T) {
	token := "gh" + "p_" + "k7Qm2ZxV9bTr4LwY8nHc3JdF6sGa1PeK5uXi\n"
	other := "gl" + "pat-" + "k7Qm2ZxV9bTr4LwY8nHc "
	report, err := Screen{Detect: true}.Screen([]byte(strings.Repeat(token, 2*MaxFindings)+other), nil)
	require.NoError(t, err)
	require.Equal(t, MaxFindings, report.Count("github-token"))
	require.Equal(t, Finding{Line: 2*MaxFindings + 1, Kind: "gitlab-token"}, report.Findings[MaxFindings])
	require.Equal(t, MaxFindings, report.More)
}
