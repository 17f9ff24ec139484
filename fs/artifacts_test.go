package fs_test

import (
	"os"
	"path/filepath"
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

	dir = filepath.Dir(dirOf(m, bare))
	require.Empty(t, list(t, dir+"/artifacts"))
	_, err = os.Stat(dir + "/conversation.json")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NotContains(t, list(t, dir), "conversation.json")
}
