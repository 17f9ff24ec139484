package policy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// recordedExample has a line of each kind, with bytes that need quotes.
func recordedExample() (Recorded, string) {
	r := Recorded{
		Files: FilesOptions{NoDefaults: true,
			Exclude: []Rule{{"caf\xe9\"", "p.yaml:1"}, {"!é", "--exclude"}},
			Include: []Rule{{"/src ", "--include"}},
		},
		Settings: Settings{GitIgnore: true, ExcludeCaches: true, MaxFileSize: 1 << 20, MaxSize: 1 << 40, SkipOver: true, Secrets: SecretsExclude},
		Allowed:  []AllowRule{{"testdata/", "private-key", "p.yaml:9"}, {"*.pem", "", "p.yaml:7"}},
		Redacted: []string{"variable TOKEN", "secrets in caf\xe9"},
		Ignore:   []IgnoreFile{{Path: ".gitignore", Hash: [32]byte{0xab, 31: 1}}, {Path: "a b\n/.snapfsignore"}},
	}
	return r, `snapfs files policy 1
exclude "caf\xe9\"" "p.yaml:1"
exclude "!\u00e9" "--exclude"
include "/src " "--include"
set gitignore true
set excludeCaches true
set maxFileSize 1048576
set maxSize 1099511627776
set overLimit skip
set secrets exclude
allow "testdata/" "private-key" "p.yaml:9"
allow "*.pem" "" "p.yaml:7"
redact "variable TOKEN"
redact "secrets in caf\xe9"
ignore ".gitignore" ab00000000000000000000000000000000000000000000000000000000000001
ignore "a b\n/.snapfsignore" 0000000000000000000000000000000000000000000000000000000000000000
`
}

func TestRecordedRoundTrip(t *testing.T) {
	want, text := recordedExample()
	require.Equal(t, text, string(want.Encode()))
	got, err := Decode([]byte(text))
	require.NoError(t, err)
	require.Equal(t, want, got)

	for _, opt := range []FilesOptions{{}, {NoDefaults: true}, {Exclude: rules("--exclude", "!.npmrc"), Include: rules("p.yaml:3", "src/")}} {
		files := compile(t, opt)
		got, err := Decode(files.Encode())
		require.NoError(t, err)
		require.Equal(t, files.Record(Settings{}), got)
		again := compile(t, got.Files)
		require.Equal(t, files.Encode(), again.Encode(), "the defaults are not added twice")
	}
}

func TestDecodeRefuses(t *testing.T) {
	const head = "snapfs files policy 1\n"
	hash := strings.Repeat("0", 64)
	for _, tt := range []struct{ text, want string }{
		{"", "first line"},
		{"snapfs files policy 2\n", "first line"},
		{"snapfs files policy 1", "not written"},
		{head + "\n", `line 2: unknown kind ""`},
		{head + "exclude \"a\" \"b\"", "not written"},
		{head + "exclude \"a\"  \"b\"\n", "line 2: want exclude"},
		{head + "exclude `a` \"b\"\n", "not written"},
		{head + "exclude \"\\x61\" \"b\"\n", "not written"},
		{head + "exclude \"é\" \"b\"\n", "not written"},
		{head + "exclude 'a' \"b\"\n", "not written"},
		{head + "exclude a b\n", "line 2: want exclude, a pattern and a source: want a string in quotes"},
		{head + "exclude \"a\"\n", "line 2: want exclude, a pattern and a source"},
		{head + "exclude \"a\" \"b\" \"c\"\n", "line 2: want exclude"},
		{head + "include \"a\" \"b\"\nexclude \"a\" \"b\"\n", "not written"},
		{head + "set gitignore false\n", "not written"},
		{head + "set gitignore yes\n", "line 2: setting gitignore"},
		{head + "set gitignore 1\n", "not written"},
		{head + "set gitignore true\nset gitignore true\n", "not written"},
		{head + "set maxSize 007\n", "not written"},
		{head + "set maxSize -1\n", "negative"},
		{head + "set maxSize 0\n", "not written"},
		{head + "set maxSize 9223372036854775808\n", "line 2: setting maxSize"},
		{head + "set overLimit fail\n", "not written"},
		{head + "set colour red\n", `line 2: unknown setting "colour"`},
		{head + "set maxSize 1\nset maxFileSize 1\n", "not written"},
		{head + "ignore \"a\" " + hash[1:] + "\n", "want ignore, a path and a hash"},
		{head + "ignore \"a\" " + strings.Repeat("x", 64) + "\n", "line 2: hash"},
		{head + "ignore \"a\" " + strings.Repeat("A", 64) + "\n", "not written"},
		{head + "ignore \"b\" " + hash + "\nignore \"a\" " + hash + "\n", "not in order"},
		{head + "ignore \"a\" " + hash + "\nignore \"a\" " + hash + "\n", "not in order"},
		{head + "ignore \"b\" " + hash + "\nset maxSize 1\n", "not written"},
		{head + "else\n", `unknown kind "else"`},
	} {
		_, err := Decode([]byte(tt.text))
		require.ErrorContains(t, err, tt.want, "%q", tt.text)
	}
}

// FuzzDecode: what is read is written as it was.
func FuzzDecode(f *testing.F) {
	_, text := recordedExample()
	f.Add(text)
	for _, line := range strings.SplitAfter(text, "\n") {
		f.Add("snapfs files policy 1\n" + line)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Decode([]byte(text))
		if err != nil {
			require.Equal(t, Recorded{}, r)
			return
		}
		require.Equal(t, text, string(r.Encode()))
		require.True(t, r.Files.NoDefaults)
	})
}
