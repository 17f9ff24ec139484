package journal

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
)

// TestWorkedExample: the format page shows the journal that the code makes of
// one publish.
func TestWorkedExample(t *testing.T) {
	payload, err := encodePayload(Entry{Seq: 1, Time: time.Unix(1_700_000_000, 5), Event: Publish{
		Org: "default", Checkpoint: "cp-1", Thread: "t", Record: cas.Data.Sum([]byte("hello\n")), Name: "n",
	}})
	require.NoError(t, err)
	file := appendFrame(fileHeader(1), payload)

	page, err := os.ReadFile("../../docs/FORMAT.md")
	require.NoError(t, err)
	// Comments stand behind three blanks.
	squeezed := ""
	for line := range strings.SplitSeq(string(page), "\n") {
		line, _, _ = strings.Cut(line, "   ")
		squeezed += strings.ReplaceAll(line, " ", "")
	}
	require.True(t, strings.Contains(squeezed, hex.EncodeToString(file)), "the page lacks the journal: %x", file)
}
