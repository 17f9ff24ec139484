package fs_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/policy"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/snapshot"
)

// TestArtifactsAndConversation: a checkpoint shows what was saved beside its
// files, under names that tell repeated ones apart.
func TestArtifactsAndConversation(t *testing.T) {
	d := start(t)
	m := d.mount()
	ws := write(t, map[string]string{"f": "x"})
	files := write(t, map[string]string{"small": "one", "large": strings.Repeat("0123456789", 300_000)})
	require.Empty(t, list(t, m+"/threads"))
	add := func(file, name string) snapshot.Artifact {
		a, _, err := d.store.AddArtifact(t.Context(), "t", snapshot.ArtifactFile{Path: filepath.Join(files, file), Name: name}, policy.SecretsWarn, snapshot.SecretsOptions{})
		require.NoError(t, err)
		return a
	}
	first := add("small", "report")
	require.Equal(t, []string{"t"}, list(t, m+"/threads"), "an artifact made the thread")
	second := add("large", "report")
	add("small", "a/b")
	const messages = `[{"role":"user"}]`
	cp := d.save(snapshot.SaveOptions{Workspace: ws, Thread: "t", Conversation: strings.NewReader(messages)})
	bare := d.save(snapshot.SaveOptions{Workspace: ws, Thread: "u"})

	dir := filepath.Dir(dirOf(m, cp))
	require.ElementsMatch(t, []string{"artifacts", "checkpoint.json", "conversation.json", "files"}, list(t, dir))
	got, err := os.ReadFile(dir + "/conversation.json")
	require.NoError(t, err)
	require.Equal(t, messages, string(got))
	if second.ID < first.ID { // the first by id has the name to itself
		first, second = second, first
	}
	require.ElementsMatch(t, []string{"report", "report~" + second.ID, snapshot.EncodeName("a/b")}, list(t, dir+"/artifacts"))
	for name, size := range map[string]uint64{"report": first.Size, "report~" + second.ID: second.Size, snapshot.EncodeName("a/b"): 3} {
		data, err := os.ReadFile(dir + "/artifacts/" + name)
		require.NoError(t, err)
		require.Len(t, data, int(size))
		st := stat(t, dir+"/artifacts/"+name)
		require.EqualValues(t, 0o444, st.Mode&0o777)
		require.EqualValues(t, size, st.Size)
	}
	_, err = os.Stat(dir + "/artifacts/absent")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = os.Stat(dir + "/artifacts/" + "report~" + first.ID)
	require.ErrorIs(t, err, os.ErrNotExist)

	dir = filepath.Dir(dirOf(m, bare))
	require.Empty(t, list(t, dir+"/artifacts"))
	_, err = os.Stat(dir + "/conversation.json")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NotContains(t, list(t, dir), "conversation.json")
}

// TestArtifactsOfAnyName: each is found under the name that is listed, and nowhere else.
func TestArtifactsOfAnyName(t *testing.T) {
	d := start(t)
	m := d.mount()
	ws := write(t, map[string]string{"f": "x"})
	long := strings.Repeat("l/\u00e9", 1000)
	names := []string{"a", "a", "a~", "a/b", "a%2Fb", "..", ".", "...", "latest", "new\nline", "\x01", "\u00e9", "e\u0301", "A", " ", "~", long, long, long + "x", long + "y"}
	opt := snapshot.SaveOptions{Workspace: ws, Thread: "t"}
	for i, name := range names {
		file := write(t, map[string]string{"f": strconv.Itoa(i)})
		opt.Artifacts = append(opt.Artifacts, snapshot.ArtifactFile{Path: file + "/f", Name: name})
	}
	first := d.save(opt)
	saved, err := d.store.Artifacts(t.Context(), first.ID)
	require.NoError(t, err)
	taken := map[string]string{} // a name that somebody else's suffix could make
	for i, a := range saved {
		taken[a.Name+"~"+a.ID] = strconv.Itoa(len(names) + i)
	}
	opt.Artifacts = nil
	for name, content := range taken {
		if len(name) <= 4096 {
			opt.Artifacts = append(opt.Artifacts, snapshot.ArtifactFile{Path: write(t, map[string]string{"f": content}) + "/f", Name: name})
		}
	}
	cp := d.save(opt)
	saved, err = d.store.Artifacts(t.Context(), cp.ID)
	require.NoError(t, err)
	dir := filepath.Join(filepath.Dir(dirOf(m, cp)), "artifacts")
	want := map[string]string{}
	for i, name := range snapshot.ArtifactNames(saved) {
		var content bytes.Buffer
		require.NoError(t, d.store.ReadArtifact(t.Context(), cp.ID, saved[i].ID, &content))
		want[name] = content.String()
		data, err := os.ReadFile(filepath.Join(dir, name)) // before it was listed
		require.NoError(t, err)
		require.Equal(t, content.String(), string(data))
	}
	require.Len(t, want, len(saved))
	require.ElementsMatch(t, slices.Collect(maps.Keys(want)), list(t, dir))
	for name, content := range want {
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, content, string(data), "%q", name)
	}
	for _, name := range []string{"%61", "a%2fb", "a~~", strings.Repeat("l%2F", 50) + "%h" + strings.Repeat("0", 32)} {
		_, err := os.Lstat(filepath.Join(dir, name))
		require.ErrorIs(t, err, os.ErrNotExist, "%q", name)
	}
}
