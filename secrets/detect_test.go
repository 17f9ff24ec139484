package secrets_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/secrets"
)

// A place is a finding and where it is.
type place struct {
	Off     int64
	Finding secrets.Finding
}

// scanCut scans content in pieces that end at cuts.
func scanCut(content []byte, cuts []int) []place {
	var all []place
	var s secrets.Scanner
	at := 0
	for _, cut := range append(slices.Clone(cuts), len(content)) {
		s.Scan(content[at:min(len(content), cut+secrets.ScanAhead)], cut-at, func(off int, f secrets.Finding) bool {
			all = append(all, place{int64(at + off), f})
			return true
		})
		at = cut
	}
	return all
}

// token is invented, and whole only when the tests run.
func token(body string) string { return "gh" + "p_" + body }

const body = "Zb7QmX2kLw9TcVr4Ns8HyJd3Gf6PaEu1KoWi"

func TestScannerLines(t *testing.T) {
	for _, tt := range []struct {
		name, content string
		want          []place
	}{
		{"empty", "", nil},
		{"none", strings.Repeat("nothing to be found in here\n", 100), nil},
		{"first byte", token(body), []place{{0, finding(1)}}},
		{"third line", "a\nb\n t=" + token(body) + "\n", []place{{7, finding(3)}}},
		{"two of a line", token(body) + " " + token(body) + "\n", []place{{0, finding(1)}, {41, finding(1)}}},
		{"binary", "\x00\n\n" + token(body), []place{{3, finding(3)}}},
		{"zero byte behind the head", strings.Repeat("\n", 8<<10) + "\x00" + token(body), []place{{8193, finding(8193)}}},
		{"escaped", `{"a":"x\n` + token(body) + `"}`, []place{{9, finding(1)}}},
		{"percent", "a%3D" + token(body) + "%26", []place{{4, finding(1)}}},
		{"color", "\x1b[38;5;196m" + token(body) + "\x1b[0m", []place{{11, finding(1)}}},
		{"end of a word", "my" + token(body), nil},
		{"longer", token(body) + "_", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			content := []byte(tt.content)
			require.Equal(t, tt.want, scanCut(content, nil))
			for cut := range min(len(content), 64) {
				require.Equal(t, tt.want, scanCut(content, []int{cut}), "cut at %d", cut)
			}
		})
	}
}

func finding(line int64) secrets.Finding {
	return secrets.Finding{Line: line, Kind: "github-token"}
}

func TestScannerStops(t *testing.T) {
	content := []byte(strings.Repeat(token(body)+"\n", 5))
	var s secrets.Scanner
	calls := 0
	more := s.Scan(content, len(content), func(int, secrets.Finding) bool {
		calls++
		return calls < 3
	})
	require.False(t, more)
	require.Equal(t, 3, calls)
}

// TestScannerAllocatesNothing on a content without secrets.
func TestScannerAllocatesNothing(t *testing.T) {
	content, err := os.ReadFile("detect_test.go")
	require.NoError(t, err)
	content = bytes.Repeat(content, 8)
	var s secrets.Scanner
	found := func(int, secrets.Finding) bool { return true }
	require.Zero(t, testing.AllocsPerRun(10, func() { s.Scan(content, len(content), found) }))
}

// pieces are what the contents of the property test are made of: all samples, and what
// comes near to them.
func pieces(tb testing.TB) []string {
	all := []string{"\n", "\r\n", " ", "=", "\"", "\\n", "%3D", "-", "_", "/", "\x00", "\x7f", "é", "-----", "abcdefghijklmnopqrstuvwx", "T3BlbkFJ", strings.Repeat("+/", 40), strings.Repeat("deadbeef", 40), strings.Repeat("- ", 300)}
	for _, s := range samples(tb) {
		all = append(all, s.text)
		if len(s.text) > 40 {
			all = append(all, s.text[:len(s.text)/2], s.text[len(s.text)/3:])
		}
	}
	return all
}

// TestScannerCuts: what is found does not depend on how the content is cut.
func TestScannerCuts(t *testing.T) {
	piece := rapid.SampledFrom(pieces(t))
	rapid.Check(t, func(t *rapid.T) {
		content := []byte(strings.Join(rapid.SliceOfN(piece, 0, 12).Draw(t, "pieces"), ""))
		cuts := rapid.SliceOfN(rapid.IntRange(0, len(content)), 0, 8).Draw(t, "cuts")
		slices.Sort(cuts)
		want := scanCut(content, nil)
		require.Equal(t, want, scanCut(content, cuts))
		require.True(t, slices.IsSortedFunc(want, func(a, b place) int { return int(a.Off - b.Off) }))
	})
}

// TestScannerFindsAnywhere: each sample is found at every offset of a window, behind
// text and behind random bytes.
func TestScannerFindsAnywhere(t *testing.T) {
	random := make([]byte, 200)
	r := rand.NewChaCha8([32]byte{7})
	_, err := r.Read(random)
	require.NoError(t, err)
	for _, s := range samples(t) {
		if s.kind == "-" || s.file == "hard.txt" {
			continue
		}
		for _, before := range []string{strings.Repeat("x y ", 50), string(random), strings.Repeat("long-run-of-words-", 10)} {
			for skip := range 26 {
				content := before[skip:] + "\n" + s.text
				require.Contains(t, kindsIn([]byte(content)), s.kind, "%s behind %q", s.name, before[skip:])
			}
		}
	}
}

// FuzzScanner: nothing panics, and what is found does not depend on one cut.
func FuzzScanner(f *testing.F) {
	for i, s := range samples(f) {
		f.Add([]byte(s.text), uint16(i))
	}
	f.Fuzz(func(t *testing.T, content []byte, cut uint16) {
		want := scanCut(content, nil)
		at := min(int(cut), len(content))
		require.Equal(t, want, scanCut(content, []int{at}))
		require.Equal(t, want, scanCut(content, []int{at / 2, at}))
		known := secrets.Kinds()
		for _, p := range want {
			require.True(t, slices.ContainsFunc(known, func(k secrets.Kind) bool { return k.Name == p.Finding.Kind }))
		}
	})
}

func TestKinds(t *testing.T) {
	kinds := secrets.Kinds()
	require.True(t, slices.IsSortedFunc(kinds, func(a, b secrets.Kind) int { return strings.Compare(a.Name, b.Name) }))
	name := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	seen := map[string]bool{}
	for _, k := range kinds {
		require.Regexp(t, name, k.Name)
		require.NotEmpty(t, k.Description)
		require.False(t, seen[k.Name], k.Name)
		seen[k.Name] = true
	}
	kinds[0].Name = "changed"
	require.NotEqual(t, kinds, secrets.Kinds(), "callers share one slice")
}

// TestKindsAreDocumented: the table of docs/SECRETS.md has the kinds, and only them.
func TestKindsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../docs/SECRETS.md")
	require.NoError(t, err)
	var want []string
	for _, k := range secrets.Kinds() {
		want = append(want, fmt.Sprintf("| `%s` | %s |", k.Name, k.Description))
	}
	row := regexp.MustCompile("(?m)^\\| `[a-z0-9-]+` \\| [^|]+ \\|")
	require.Equal(t, want, row.FindAllString(string(doc), -1))
}
