package snapshot

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/secrets"
)

func TestConversation(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Store) {
		ws := filepath.Join(t.TempDir(), "ws")
		write(t, ws, map[string]string{"f": "x"})
		put := func(text string) (Checkpoint, error) {
			res, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t", Conversation: strings.NewReader(text)})
			return res.Checkpoint, err
		}
		for _, text := range []string{`[{"role":"user","text":"héllo\u0000","text":"again"}]`, "\r\n [ ]\t", "[null,1,[\"\xff\"]]\n"} {
			cp, err := put(text)
			require.NoError(t, err, text)
			require.True(t, cp.Conversation)
			var got bytes.Buffer
			require.NoError(t, s.Conversation(t.Context(), cp.ID, &got))
			require.Equal(t, text, got.String(), "byte by byte")
		}
		before, err := s.Thread(t.Context(), "t")
		require.NoError(t, err)
		for _, text := range []string{"", "  ", "{", `[] trailing`, "\xff", "null", `{"a":1}`, "{\"a\":1}\n{\"b\":2}\n", "[1]\n[2]", "[1"} {
			_, err := put(text)
			require.ErrorIs(t, err, index.ErrInvalid, "%q", text)
			require.NotEmpty(t, Hint(err), "%q", text)
		}
		after, err := s.Thread(t.Context(), "t")
		require.NoError(t, err)
		require.Equal(t, before, after, "nothing was published")
		require.ErrorIs(t, s.Conversation(t.Context(), save(t, s, ws, "t").ID, &bytes.Buffer{}), ErrNoConversation)
	})
}

// TestConversationLimit: a byte too many is refused, of a file before it is read.
func TestConversationLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "talk")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Truncate(MaxConversation+1))
	_, err = ReadConversation(f)
	require.ErrorIs(t, err, cas.ErrTooLarge)
	require.ErrorContains(t, err, "at most 268435456 can be kept")
	require.NotEmpty(t, Hint(err))

	n, err := checkMessages(strings.NewReader("[ 12 ]"), 6)
	require.NoError(t, err)
	require.EqualValues(t, 6, n)
	for _, text := range []string{"[ 12 ] ", "[ 123 ]", "[ 12 ]\n\n\n"} {
		_, err = checkMessages(strings.NewReader(text), 6)
		require.ErrorIs(t, err, cas.ErrTooLarge)
	}
}

// TestConversationReadTwice: what was looked through is what is stored, or nothing is.
func TestConversationReadTwice(t *testing.T) {
	s := newStore(t)
	ws := t.TempDir()
	write(t, ws, map[string]string{"f": "x"})
	path := filepath.Join(t.TempDir(), "talk")
	const text = `[{"role":"user","content":"hello"}]`
	for name, change := range map[string]func(f *os.File) error{
		"appended":   func(f *os.File) error { _, err := f.WriteAt([]byte(" "), int64(len("skipped"+text))); return err },
		"cut":        func(f *os.File) error { return f.Truncate(int64(len(text))) },
		"no array":   func(f *os.File) error { _, err := f.WriteAt([]byte("{"), int64(len("skipped"))); return err },
		"other text": func(f *os.File) error { _, err := f.WriteAt([]byte("HELLO"), int64(len("skipped"+text)-9)); return err },
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(path, []byte("skipped"+text), 0o600))
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			require.NoError(t, err)
			_, err = f.Seek(int64(len("skipped")), io.SeekStart)
			require.NoError(t, err)
			talk, err := ReadConversation(f)
			require.NoError(t, err)
			defer talk.Close()
			opt := SaveOptions{Workspace: ws, Thread: "t", Conversation: talk}
			res, err := s.Save(t.Context(), opt)
			require.NoError(t, err)
			var got bytes.Buffer
			require.NoError(t, s.Conversation(t.Context(), res.Checkpoint.ID, &got))
			require.Equal(t, text, got.String(), "from where the file stood")

			require.NoError(t, change(f))
			require.NoError(t, os.Chtimes(path, time.Time{}, talk.stat.ModTime().Add(time.Hour)))
			_, err = s.Save(t.Context(), opt)
			require.ErrorIs(t, err, ErrRefused)
			require.ErrorContains(t, err, "conversation: it changed while it was read")
			head, err := s.Resolve(t.Context(), "t@latest")
			require.NoError(t, err)
			require.Equal(t, res.Checkpoint.ID, head.ID)
		})
	}
}

// TestConversationFromAnywhere: what can be read once only is kept in memory, whole, in
// whatever pieces it comes.
func TestConversationFromAnywhere(t *testing.T) {
	s := newStore(t)
	ws := t.TempDir()
	write(t, ws, map[string]string{"f": "x"})
	text := "[" + strings.Repeat(`"a message of `+declaredValue+`",`, 80_000) + "0]"
	want := strings.ReplaceAll(text, declaredValue, strings.Repeat("*", len(declaredValue)))
	for name, r := range map[string]io.Reader{
		"memory":      strings.NewReader(text),
		"pieces":      iotest.HalfReader(strings.NewReader(text)),
		"end of data": iotest.DataErrReader(strings.NewReader(text)),
		"parts":       io.MultiReader(strings.NewReader(text[:10]), strings.NewReader(text[10:1<<20]), strings.NewReader(text[1<<20:])),
	} {
		res, err := s.Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t", Conversation: r, Secrets: declaredSet(t, declaredValue)})
		require.NoError(t, err, name)
		require.EqualValues(t, 80_000, res.Checkpoint.Redactions)
		var got bytes.Buffer
		require.NoError(t, s.Conversation(t.Context(), res.Checkpoint.ID, &got))
		require.True(t, want == got.String(), name)
	}
	require.Empty(t, faults(t, s))
	require.NoError(t, s.Close())
	require.Empty(t, filesWith(t, s.dir, declaredValue))

	_, err := ReadConversation(iotest.ErrReader(io.ErrClosedPipe))
	require.ErrorIs(t, err, io.ErrClosedPipe)
	_, err = ReadConversation(io.MultiReader(strings.NewReader("[1,"), iotest.ErrReader(io.ErrClosedPipe)))
	require.ErrorIs(t, err, io.ErrClosedPipe)
}

// TestOlderConversations: documents that stand one after the other, which saves took
// before, are read, sound and searched.
func TestOlderConversations(t *testing.T) {
	s := newStore(t)
	ws := t.TempDir()
	write(t, ws, map[string]string{"f": "x"})
	cp := save(t, s, ws, "t")
	for id, text := range map[string]string{
		"lines": "{\"m\":\"\\u0063onversation\"}\n{\"m\":2}\n", "one": "  null  ", "bytes": "no JSON conversation\x00",
	} {
		session, err := s.holder.Begin(t.Context(), BeginRequest{Thread: id, ID: id})
		require.NoError(t, err)
		w, end, err := s.newWriter(t.Context(), session, local.Off)
		require.NoError(t, err)
		rec, err := s.Record(t.Context(), cp)
		require.NoError(t, err)
		rec.ID, rec.Thread = id, id
		blob, err := cas.WriteBlob(t.Context(), w, cas.Conversations, strings.NewReader(text))
		require.NoError(t, err)
		rec.Conversation = blobRef(blob)
		_, err = publish(t.Context(), session, w, rec, PublishRequest{})
		require.NoError(t, err)
		end()
		require.NoError(t, session.Close())
		var got bytes.Buffer
		require.NoError(t, s.Conversation(t.Context(), id, &got))
		require.Equal(t, text, got.String())
	}
	require.Empty(t, faults(t, s))
	set, err := secrets.NewSet([]secrets.Value{{Bytes: []byte("conversation")}})
	require.NoError(t, err)
	found := map[string]int{}
	_, err = s.Scrub(t.Context(), set, ScrubOptions{}, func(h ScrubHit) error {
		require.Equal(t, HitConversation, h.In)
		found[h.Checkpoint] += h.Values
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, map[string]int{"lines": 1, "bytes": 1}, found)
}
