package secrets_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/secrets"
)

// marker stands within each token of the fixtures, so that the files have none.
const marker = "·"

// A sample is one text of the fixtures and the kind that is to be found, "-" for none.
type sample struct {
	kind, name, text string
	file             string
}

// samples reads testdata/detect: lines "== KIND | NAME", each with a text behind it.
func samples(tb testing.TB) []sample {
	tb.Helper()
	files, err := filepath.Glob("testdata/detect/*.txt")
	require.NoError(tb, err)
	var all []sample
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(tb, err)
		for _, part := range strings.Split("\n"+string(data), "\n== ")[1:] {
			head, text, _ := strings.Cut(part, "\n")
			kind, name, ok := strings.Cut(head, " | ")
			require.True(tb, ok, "%s: %q has no name", file, head)
			text = strings.ReplaceAll(text, marker, "")
			text = strings.ReplaceAll(text, `\0`, "\x00")
			all = append(all, sample{kind, name, text, filepath.Base(file)})
		}
	}
	require.NotEmpty(tb, all)
	return all
}

// A score counts samples of one kind.
type score struct{ samples, found, missed, false int }

func (s score) precision() float64 { return ratio(s.found, s.found+s.false) }
func (s score) recall() float64    { return ratio(s.found, s.found+s.missed) }

func ratio(a, b int) float64 {
	if b == 0 {
		return 1
	}
	return float64(a) / float64(b)
}

// TestDetectFixtures computes precision and recall. The numbers are what they are: a
// change of them, for better or worse, is a change of this test and of docs/SECRETS.md.
func TestDetectFixtures(t *testing.T) {
	missed := []string{ // the secrets of hard.txt that are not found
		"github-token: two strings",
		"github-token: in base64, as Kubernetes keeps it",
		"github-token: behind a Unicode escape",
		"github-token: part of a longer word",
		"github-token: UTF-16",
		"aws-secret-key: another name of it",
		"aws-secret-key: in a table",
		"twilio-key: the token, not the id of a key",
		"heroku-key: a UUID, as it was before",
		"square-token: a prefix that base64 has too",
		"azure-shared-key: without a connection string",
		"private-key: lines of 20",
		"private-key: hex, as a wallet has it",
		"openai-key: without the mark, as compatible servers have it",
		"slack-token: a short one of a guide",
		"stripe-key: alphabet in it",
		"github-token: with a line break in it",
	}
	falseAlarms := []string{ // the texts of nothing.txt that are taken for a secret
		"mailgun-key: a name of a cache entry",
		"mailchimp-key: a hash and a region",
		"twilio-key: an order number",
		"github-token: a made-up key of a guide, at random",
		"aws-access-key: a signed URL of a guide",
		"hugging-face-token: a class name that is like a token",
	}
	var total score
	byKind := map[string]*score{}
	for _, k := range secrets.Kinds() {
		byKind[k.Name] = &score{}
	}
	var wrong, gotMissed, gotFalse []string
	for _, s := range samples(t) {
		got := kindsIn([]byte(s.text))
		if s.kind != "-" {
			require.Contains(t, byKind, s.kind, "%s: unknown kind", s.name)
			byKind[s.kind].samples++
			total.samples++
			if i := slices.Index(got, s.kind); i >= 0 {
				byKind[s.kind].found++
				total.found++
				got = slices.Delete(got, i, i+1)
			} else {
				byKind[s.kind].missed++
				total.missed++
				gotMissed = append(gotMissed, s.kind+": "+s.name)
				if s.file != "hard.txt" {
					wrong = append(wrong, fmt.Sprintf("%s %s %s: missed in %q", s.file, s.kind, s.name, s.text))
				}
			}
		}
		for _, k := range got {
			byKind[k].false++
			total.false++
			gotFalse = append(gotFalse, k+": "+s.name)
			if s.kind != "-" {
				wrong = append(wrong, fmt.Sprintf("%s %s %s: also %s in %q", s.file, s.kind, s.name, k, s.text))
			}
		}
	}
	t.Log("\n" + table(byKind, total))
	require.Empty(t, wrong)
	require.Equal(t, missed, gotMissed)
	require.Equal(t, falseAlarms, gotFalse)
	for name, s := range byKind {
		require.GreaterOrEqual(t, s.found, 3, "%s: too few samples", name)
	}
	require.Equal(t, score{samples: 327, found: 310, missed: 17, false: 6}, total)
}

// table prints scores for people.
func table(byKind map[string]*score, total score) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "kind\tsamples\tfound\tmissed\tfalse\tprecision\trecall")
	row := func(name string, s score) {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%.3f\t%.3f\n", name, s.samples, s.found, s.missed, s.false, s.precision(), s.recall())
	}
	for _, k := range secrets.Kinds() {
		row(k.Name, *byKind[k.Name])
	}
	row("all", total)
	w.Flush()
	return out.String()
}

// kindsIn scans a content in one call.
func kindsIn(content []byte) []string {
	var kinds []string
	var s secrets.Scanner
	s.Scan(content, len(content), func(_ int, f secrets.Finding) bool {
		kinds = append(kinds, f.Kind)
		return true
	})
	return kinds
}

// TestDetectFixturesAreSilent: neither the fixtures nor the code have a whole token.
func TestDetectFixturesAreSilent(t *testing.T) {
	for _, pattern := range []string{"*.go", "testdata/detect/*"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Empty(t, kindsIn(data), file)
		}
	}
}
