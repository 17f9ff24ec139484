package snapshot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/restore"
	"github.com/snapfs/snapfs/secrets"
	"github.com/snapfs/snapfs/tree"
)

const (
	withSecret = "TOKEN=0123456789\n"
	noSecret   = "TOKEN=\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\n"
)

// redactedFile is the entry of a file of which the bytes 6 to 16 were a secret.
func (c *crafter) redactedFile(name string) tree.Entry {
	e := c.file(name, noSecret)
	e.Flags = tree.Redacted
	return e
}

// inFile is what a list says of it.
func inFile(path string, off, length int64) FoundSecrets {
	return FoundSecrets{InFile, path, secrets.Report{Redacted: []secrets.Range{{Off: off, Len: length}}}}
}

// redactedTree is a tree of two redacted files, ".env" and "d/.env", and another one.
func redactedTree(c *crafter, rec *index.Record, list ...FoundSecrets) {
	d, below := c.dir("d", nil, c.redactedFile(".env"))
	root, totals := c.dir("", map[string]tree.Totals{"d": below}, c.redactedFile(".env"), d, c.file("f", "content"))
	rooted(rec, root, totals)
	rec.Policy = c.blob(cas.Records, policy.Recorded{}.Encode())
	if len(list) > 0 {
		c.withSecrets(rec, list...)
	}
}

// TestVerifySecrets: a list of secrets that is not that of the tree is damage.
func TestVerifySecrets(t *testing.T) {
	one, two := inFile(".env", 6, 10), inFile("d/.env", 6, 10)
	finding := FoundSecrets{InFile, "f", secrets.Report{Findings: []secrets.Finding{{Line: 1, Kind: "k"}}}}
	const missing = "secrets: values were overwritten in 2 files of the tree, and "
	for name, c := range map[string]struct {
		list []FoundSecrets
		want []string
	}{
		"all":           {[]FoundSecrets{one, two, finding}, nil},
		"left out, too": {[]FoundSecrets{one, two, inFile("d/gone", 1, 99), inFile("gone/too", 1, 99), inFile("z", 1, 9)}, nil},
		"no list":       {nil, []string{missing + "0 of them"}},
		"one is not":    {[]FoundSecrets{one}, []string{missing + "1 of them"}},
		"a finding":     {[]FoundSecrets{one, {InFile, "d/.env", finding.Report}}, []string{missing + "1 of them"}},
		"too long":      {[]FoundSecrets{one, inFile("d/.env", 6, 12)}, []string{"d/.env: values of it were overwritten up to byte 18, and it has 17"}},
		"not marked":    {[]FoundSecrets{one, two, inFile("f", 0, 7)}, []string{"f: values of it were overwritten, and it is not marked so"}},
		"a directory":   {[]FoundSecrets{one, inFile("d", 0, 8), two}, []string{"d: a directory of which"}},
		"another place": {[]FoundSecrets{one, {InArtifact, "d/.env", two.Report}}, []string{missing + "1 of them"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), filepath.Join(t.TempDir(), "store"), Options{Create: true})
			require.NoError(t, err)
			defer s.Close()
			for _, id := range []string{"one", "two"} { // with the same list and tree
				craft(t, s, id, func(cr *crafter, rec *index.Record) { redactedTree(cr, rec, c.list...) })
			}
			found := faults(t, s)
			require.Len(t, found, 2*len(c.want), found)
			for i, problem := range found {
				require.Contains(t, problem, c.want[i%len(c.want)])
			}
		})
	}
}

// TestVerifySecretsThatChanged: a list that a checkpoint shares with one in which it is
// right is looked at all the same, where the trees differ.
func TestVerifySecretsThatChanged(t *testing.T) {
	for name, c := range map[string]struct {
		change func(c *crafter, rec *index.Record)
		want   []string
	}{
		"another file changed": {func(c *crafter, rec *index.Record) {
			d, below := c.dir("d", nil, c.redactedFile(".env"))
			root, totals := c.dir("", map[string]tree.Totals{"d": below}, c.redactedFile(".env"), d, c.file("f", "other"))
			rooted(rec, root, totals)
		}, nil},
		"it changed": {func(c *crafter, rec *index.Record) {
			d, below := c.dir("d", nil, c.file(".env", noSecret))
			root, totals := c.dir("", map[string]tree.Totals{"d": below}, c.redactedFile(".env"), d, c.file("f", "content"))
			rooted(rec, root, totals)
		}, []string{"d/.env: values of it were overwritten, and it is not marked so"}},
		"its directory is gone": {func(c *crafter, rec *index.Record) {
			root, totals := c.dir("", nil, c.redactedFile(".env"), c.file("f", "content"))
			rooted(rec, root, totals)
		}, nil},
		"another file has one": {func(c *crafter, rec *index.Record) {
			d, below := c.dir("d", nil, c.redactedFile(".env"))
			root, totals := c.dir("", map[string]tree.Totals{"d": below}, c.redactedFile(".env"), d, c.redactedFile("f"))
			rooted(rec, root, totals)
		}, []string{"secrets: values were overwritten in 3 files of the tree, and 2 of them are in the list"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), filepath.Join(t.TempDir(), "store"), Options{Create: true})
			require.NoError(t, err)
			defer s.Close()
			both := []FoundSecrets{inFile(".env", 6, 10), inFile("d/.env", 6, 10)}
			// The newest is looked at first.
			for _, id := range []string{"right", "changed", "right too"} {
				craft(t, s, id, func(cr *crafter, rec *index.Record) {
					redactedTree(cr, rec, both...)
					if id == "changed" {
						c.change(cr, rec)
					}
				})
			}
			found := faults(t, s)
			require.Len(t, found, len(c.want), found)
			for i, want := range c.want {
				require.True(t, strings.HasPrefix(found[i], "checkpoint changed: "), found[i])
				require.Contains(t, found[i], want)
			}
		})
	}
}

// TestRestoreKeepsSecrets: what a live directory has in place of what was overwritten
// stays, also when nobody knows any more where that was.
func TestRestoreKeepsSecrets(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "store"), Options{Create: true})
	require.NoError(t, err)
	defer s.Close()
	craft(t, s, "good", func(c *crafter, rec *index.Record) {
		redactedTree(c, rec, inFile(".env", 6, 10), inFile("d/.env", 6, 10))
	})
	craft(t, s, "bad", func(c *crafter, rec *index.Record) {
		redactedTree(c, rec)
		rec.Secrets = c.blob(cas.Records, []byte("no list"))
	})
	craft(t, s, "none", func(c *crafter, rec *index.Record) { redactedTree(c, rec) })
	dir := t.TempDir()
	write(t, dir, map[string]string{".env": withSecret, "f": "changed"})
	read := func(dir, name string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(data)
	}

	_, err = s.Restore(t.Context(), "bad", RestoreOptions{Dir: dir, Mode: restore.Overlay, Force: true})
	require.ErrorIs(t, err, cas.ErrCorrupt)
	require.ErrorContains(t, err, "where secrets were overwritten")
	require.Contains(t, Hint(err), "into a new directory")
	require.Equal(t, "changed", read(dir, "f"))

	res, err := s.Restore(t.Context(), "good", RestoreOptions{Dir: dir, Mode: restore.Overlay, Force: true})
	require.NoError(t, err)
	require.Equal(t, withSecret, read(dir, ".env"))
	require.Equal(t, noSecret, read(dir, "d/.env"))
	require.Equal(t, "content", read(dir, "f"))
	require.Equal(t, []string{"d/.env"}, res.Redacted)
	require.EqualValues(t, 1, res.RedactedFiles)

	for _, ref := range []string{"good", "bad", "none"} {
		fresh := filepath.Join(t.TempDir(), "new")
		res, err = s.Restore(t.Context(), ref, RestoreOptions{Dir: fresh})
		require.NoError(t, err, ref)
		require.Equal(t, noSecret, read(fresh, ".env"))
		require.Equal(t, []string{".env", "d/.env"}, res.Redacted)
	}

	res, err = s.Restore(t.Context(), "none", RestoreOptions{Dir: dir, Mode: restore.Overlay, Force: true})
	require.NoError(t, err)
	require.Equal(t, noSecret, read(dir, ".env"), "no list says that it has a secret")
	require.Equal(t, []string{".env"}, res.Redacted)
}
