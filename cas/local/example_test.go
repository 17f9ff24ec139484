package local

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
)

// TestWorkedExample: the format page shows the pack that the code makes.
func TestWorkedExample(t *testing.T) {
	pack := appendPackHeader(nil)
	var objects []cas.Located
	for _, o := range []cas.Object{
		cas.NewObject(cas.Files, cas.Data, []byte("hello\n")),
		cas.NewObject(cas.Trees, cas.Data, []byte("sfd\x01\x00\x00")),
	} {
		r := record{key: o.Key, kind: o.Kind, encoding: cas.Raw, plain: uint32(len(o.Data)), payload: o.Data}
		objects = append(objects, r.located(cas.PackID{}, int64(len(pack))))
		pack = r.append(pack)
	}
	pack = appendFooter(pack, objects)

	page, err := os.ReadFile("../../docs/FORMAT.md")
	require.NoError(t, err)
	// Comments stand behind three blanks.
	squeezed := ""
	for line := range strings.SplitSeq(string(page), "\n") {
		line, _, _ = strings.Cut(line, "   ")
		squeezed += strings.ReplaceAll(line, " ", "")
	}
	require.True(t, strings.Contains(squeezed, hex.EncodeToString(pack)), "the page lacks the pack: %x", pack)
}
