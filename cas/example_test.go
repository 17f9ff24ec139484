package cas

import (
	"encoding/hex"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWorkedExample: the format page shows the chunk list that the code makes of
// a blob that is 17 blocks of zeros and one line of text.
func TestWorkedExample(t *testing.T) {
	const zeros = ChunkedSize + ZeroBlock
	hello := NewObject(Files, Data, []byte("hello\n"))
	list, err := EncodeList([]Chunk{{Len: zeros}, {Off: zeros, Len: int64(len(hello.Data)), Hash: hello.Key.Hash}})
	require.NoError(t, err)
	name := List.Sum(list)

	blob, err := WriteBlob(t.Context(), &memWriter{objs: map[Key][]byte{}}, Files, io.MultiReader(strings.NewReader(strings.Repeat("\x00", zeros)), strings.NewReader("hello\n")))
	require.NoError(t, err)
	require.Equal(t, Blob{Hash: name, Size: zeros + 6}, blob)

	page, err := os.ReadFile("../docs/FORMAT.md")
	require.NoError(t, err)
	// Comments stand behind three blanks.
	squeezed := ""
	for line := range strings.SplitSeq(string(page), "\n") {
		line, _, _ = strings.Cut(line, "   ")
		squeezed += strings.ReplaceAll(line, " ", "")
	}
	require.True(t, strings.Contains(squeezed, hex.EncodeToString(list)), "the page lacks the list: %x", list)
	require.True(t, strings.Contains(squeezed, name.String()), "the page lacks the list's name: %s", name)
}
