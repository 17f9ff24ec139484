package badger

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/index/indextest"
)

// artifacts makes a number of artifacts with names of a length in bytes.
func artifacts(n, length int) (all []index.Artifact) {
	for i := range n {
		id := fmt.Sprintf("a-%06d", i)
		all = append(all, index.Artifact{ID: id, Name: id + strings.Repeat("n", max(0, length-len(id))), Blob: index.Blob{Hash: cas.Data.Sum(nil), Size: 1}})
	}
	return all
}

// TestMoreThanATransaction: what one transaction of Badger cannot take is applied, applied
// when the index is opened after a kill, and in a rebuild.
func TestMoreThanATransaction(t *testing.T) {
	long := func(prefix string, i int) string {
		id := fmt.Sprintf("%s-%d-", prefix, i)
		return id + strings.Repeat("x", 512-len(id))
	}
	publish := func(s *store, thread, id, parent, name string, with []index.Artifact) {
		s.Helper()
		hash := indextest.Store(s, s.ix, s.packs, indextest.Record(thread, id, parent))
		_, err := s.ix.Publish(s.Context(), index.Publish{Org: "acme", Record: hash, ExpectedHead: parent, Name: name, Artifacts: with})
		require.NoError(s, err)
	}
	tests := map[string]func(s *store){
		"many artifacts":          func(s *store) { publish(s, "t", "c", "", "", artifacts(6000, 10)) },
		"artifacts of long names": func(s *store) { publish(s, "t", "c", "", "", artifacts(700, 1000)) },
		"just not many":           func(s *store) { publish(s, "t", "c", "", "", artifacts(batch, 1000)) },
		"just many, between others": func(s *store) {
			publish(s, "t", "c-0", "", "", nil)
			publish(s, "t", "c", "c-0", "", artifacts(batch+1, 1000))
			publish(s, "u", "c-2", "", "", artifacts(2, 10))
		},
		"a few artifacts of many": func(s *store) {
			for i := range 260 {
				publish(s, fmt.Sprint("t", i), fmt.Sprint("c", i), "", "", artifacts(20, 100))
			}
		},
		"long ids": func(s *store) {
			parent := ""
			for i := range 300 {
				id := long("c", i)
				publish(s, long("t", 0), id, parent, strings.Repeat("n", 240)+fmt.Sprint(i), nil)
				parent = id
			}
		},
		"a thread of long ids that is deleted": func(s *store) {
			parent := ""
			for i := range 300 {
				id := long("c", i)
				publish(s, long("t", 0), id, parent, strings.Repeat("n", 240)+fmt.Sprint(i), artifacts(1, 1000)[:1-min(i, 1)])
				parent = id
			}
			publish(s, "other", "kept", "", "", nil)
			require.NoError(s, s.ix.DeleteThread(s.Context(), "acme", long("t", 0)))
		},
	}
	for name, fill := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			fill(s)
			want := s.dump()
			require.NoError(t, s.ix.Close())

			// The database as it was before, but for the objects' places.
			behind := &store{T: t, dir: t.TempDir(), packs: s.packs}
			behind.ix = behind.open("boot-1")
			for objects, err := range s.packs.All(t.Context()) {
				require.NoError(t, err)
				require.NoError(t, behind.ix.AddLocations(t.Context(), objects))
			}
			require.NoError(t, behind.ix.Close())
			require.NoError(t, os.RemoveAll(s.path("index")))
			require.NoError(t, os.Rename(behind.path("index"), s.path("index")))
			s.ix = s.open("boot-1")
			require.Empty(t, s.ix.Rebuilt())
			require.Equal(t, want, s.dump(), "applied when opened")
			require.NoError(t, s.ix.Close())

			require.NoError(t, os.RemoveAll(s.path("index")))
			s.ix = s.open("boot-1")
			require.NotEmpty(t, s.ix.Rebuilt())
			require.Equal(t, want, s.dump(), "made anew")
		})
	}
}
