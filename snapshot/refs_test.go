package snapshot

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/index"
)

// saveAs saves a workspace under an id and a name.
func saveAs(t *testing.T, s *Store, ws, thread, id, name string) Checkpoint {
	t.Helper()
	res, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: thread, ID: id, Name: name})
	require.NoError(t, err)
	return res.Checkpoint
}

// TestReferences: an exact id before THREAD@NAME, tried at each @ from the
// right, before a prefix.
func TestReferences(t *testing.T) {
	s := newStore(t)
	ws := t.TempDir()
	for _, c := range [][3]string{ // thread, id, name
		{"a", "20260101-000000-aabbccdd", "first"},
		{"a", "20260101-000001-aabbccee", ""},
		{"a", "abcdefgh", "x@y"},
		{"a@x", "in-a-at-x", "y"},
		{"mail@host", "cp@2", "v@1"},
		{"a", "a@latest-but-an-id", "2"},
		{"b", "a@first", ""},
		{"b", "\u00e9\u00e8\u00e0\u00fc\u00f6\u00df-id", ""},
		{"b", "twinned-twinned", ""},
		{"odd \n/thr\u00e9ad", "odd", "n\u00e4me"},
	} {
		saveAs(t, s, ws, c[0], c[1], c[2])
	}
	for ref, want := range map[string]string{
		"20260101-000000-aabbccdd":             "20260101-000000-aabbccdd",
		"aabbccdd":                             "20260101-000000-aabbccdd",
		"20260101-000001":                      "20260101-000001-aabbccee",
		"abcdef":                               "abcdefgh",
		"a@latest":                             "a@latest-but-an-id",
		"b@latest":                             "twinned-twinned",
		"twinned":                              "twinned-twinned", // both parts of one id
		"\u00e9\u00e8\u00e0\u00fc\u00f6\u00df": "\u00e9\u00e8\u00e0\u00fc\u00f6\u00df-id",
		"a@first":                              "a@first", // the exact id comes first
		"a@2":                                  "a@latest-but-an-id",
		"a@x@y":                                "in-a-at-x", // the rightmost @ first
		"a@x@latest":                           "in-a-at-x",
		"mail@host@v@1":                        "cp@2",
		"mail@host@latest":                     "cp@2",
		"cp@2":                                 "cp@2",
		"a@latest-but":                         "a@latest-but-an-id", // a prefix that has an @
		"odd \n/thr\u00e9ad@n\u00e4me":         "odd",
		"odd \n/thr\u00e9ad@" + "latest":       "odd",
	} {
		cp, err := s.Resolve(t.Context(), ref)
		require.NoErrorf(t, err, "%q", ref)
		require.Equalf(t, want, cp.ID, "%q", ref)
	}
	for ref, want := range map[string]struct {
		err  error
		hint string
	}{
		"20260101":                       {ErrAmbiguous, "20260101-000000-aabbccdd, 20260101-000001-aabbccee"},
		"aabbcc":                         {ErrAmbiguous, "aabbccee"},
		"aabbc":                          {index.ErrCheckpointNotFound, "snapfs list"}, // too short
		"\u00e9\u00e8\u00e0\u00fc\u00f6": {index.ErrCheckpointNotFound, "snapfs list"}, // 5 characters, 10 bytes
		"a":                              {index.ErrCheckpointNotFound, "a@latest"},
		"mail@host":                      {index.ErrCheckpointNotFound, "mail@host@latest"},
		"a@nothing":                      {index.ErrCheckpointNotFound, "snapfs list a "},
		"nobody@latest":                  {index.ErrCheckpointNotFound, "snapfs list"},
		"":                               {index.ErrCheckpointNotFound, "snapfs list"},
		"@":                              {index.ErrCheckpointNotFound, "snapfs list"},
		"@latest":                        {index.ErrCheckpointNotFound, "snapfs list"},
		"a@":                             {index.ErrCheckpointNotFound, ""},
		"\xff\xfe@latest":                {index.ErrCheckpointNotFound, "snapfs list"},
		strings.Repeat("long", 500):      {index.ErrCheckpointNotFound, "snapfs list"},
		"aabbccdd\x00":                   {index.ErrCheckpointNotFound, "snapfs list"},
		"../../../etc/x":                 {index.ErrCheckpointNotFound, "snapfs list"},
	} {
		_, err := s.Resolve(t.Context(), ref)
		require.ErrorIsf(t, err, want.err, "%q", ref)
		require.Containsf(t, Hint(err), want.hint, "%q", ref)
	}
}

// TestManyCandidates: an ambiguous reference shows some of what it may mean.
func TestManyCandidates(t *testing.T) {
	s := newStore(t)
	ws := t.TempDir()
	for _, c := range "0123456789ab" {
		saveAs(t, s, ws, "T", "prefix-"+string(c), "")
	}
	_, err := s.Resolve(t.Context(), "prefix")
	require.ErrorIs(t, err, ErrAmbiguous)
	require.Equal(t, 10, strings.Count(Hint(err), "prefix-"))
	require.Contains(t, Hint(err), "...")
}

// TestHostileIDs: any id is a label and never a path.
func TestHostileIDs(t *testing.T) {
	s := newStore(t)
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, ws, map[string]string{"x": "1"})
	for _, id := range []string{"x/../../PWNED", "..", ".", "latest", "-rf", " ", "\n", "\U0001f600", strings.Repeat("i", 512)} {
		cp := save(t, s, ws, id)
		got, err := s.Resolve(t.Context(), id+"@latest")
		require.NoError(t, err)
		require.Equal(t, cp.ID, got.ID)
		if id != "\n" {
			require.Equal(t, "cp"+id[:min(len(id), 510)], saveAs(t, s, ws, id, "cp"+id[:min(len(id), 510)], "").ID)
		}
	}
	for _, id := range []string{"/", "\x00", "a\xff", strings.Repeat("i", 513)} {
		_, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: id})
		require.ErrorIsf(t, err, index.ErrInvalid, "%q", id)
	}
	for _, id := range []string{"a\nb", "a\xff", strings.Repeat("i", 513)} {
		_, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "T", ID: id})
		require.ErrorIsf(t, err, index.ErrInvalid, "%q", id)
	}
	for _, name := range []string{"latest", "a\nb", "a\xff", strings.Repeat("i", 256)} {
		_, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "T", Name: name})
		require.ErrorIsf(t, err, index.ErrInvalid, "%q", name)
	}
	_, err := s.Thread(t.Context(), "T")
	require.ErrorIs(t, err, index.ErrThreadNotFound)
}
