package snapshot

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/soak"
	"github.com/snapfs/snapfs/policy"
)

// TestTransferProperty: whatever two stores did with a thread, and sent one another, a
// transfer takes nothing away and changes no order; what comes is new, and as it was; it is
// whole; a second one does nothing; and a problem is one: somebody wrote there what never
// was here.
func TestTransferProperty(t *testing.T) {
	soak.Checks(t, 40, 2000)
	transfers, problems := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		sides := []*Store{OpenMemory(), OpenMemory(), OpenMemory()}
		ws := t.TempDir()
		made := 0
		saved := map[string]string{} // records by id
		list := func(s *Store) (ids []string) {
			cps, err := s.Checkpoints(t.Context(), "t", Page{})
			if err != nil {
				require.ErrorIs(rt, err, index.ErrThreadNotFound)
			}
			for _, cp := range slices.Backward(cps) {
				require.Equal(rt, saved[cp.ID], cp.Record)
				ids = append(ids, cp.ID)
			}
			return ids
		}
		rt.Repeat(map[string]func(*rapid.T){
			"save": func(rt *rapid.T) {
				i := rapid.IntRange(0, 2).Draw(rt, "store")
				made++
				id := fmt.Sprintf("c%02d", made)
				require.NoError(rt, os.WriteFile(filepath.Join(ws, "f"), []byte(rapid.SampledFrom([]string{"x", "y", id}).Draw(rt, "content")), 0o644))
				res, err := sides[i].Save(t.Context(), SaveOptions{Workspace: ws, Thread: "t", ID: id, Files: policy.FilesOptions{NoDefaults: true}})
				require.NoError(rt, err)
				saved[id] = res.Checkpoint.Record
			},
			"delete": func(rt *rapid.T) {
				s := sides[rapid.IntRange(0, 2).Draw(rt, "store")]
				if ids := list(s); len(ids) > 0 {
					_, err := s.Delete(t.Context(), rapid.SampledFrom(ids).Draw(rt, "id"))
					require.NoError(rt, err)
				}
			},
			"gc": func(rt *rapid.T) {
				_, err := sides[rapid.IntRange(0, 2).Draw(rt, "store")].GC(t.Context(), GCRequest{})
				require.NoError(rt, err)
			},
			"send": func(rt *rapid.T) {
				i := rapid.IntRange(0, 2).Draw(rt, "from")
				j := (i + rapid.IntRange(1, 2).Draw(rt, "to")) % 3
				from, to := sides[i], sides[j]
				here, before := list(from), list(to)
				ref := ""
				if len(here) > 0 && rapid.Bool().Draw(rt, "one") {
					ref = rapid.SampledFrom(here).Draw(rt, "id")
				}
				var arrived []string
				opt := TransferOptions{Ref: ref, Arrived: func(cp Checkpoint) error {
					require.NotNil(rt, cp.Received)
					arrived = append(arrived, cp.ID)
					return nil
				}}
				transfers++
				_, err := Transfer(t.Context(), from, to, opt)
				if err != nil {
					problems++
					require.ErrorIs(rt, err, ErrDiverged)
					require.Equal(rt, before, list(to), "nothing has happened")
					head := before[len(before)-1]
					if ref != "" && strings.Contains(err.Error(), "is not there any more") {
						require.NotContains(rt, before, ref)
						return
					}
					require.NotContains(rt, here, head)
					cp, err := to.Resolve(t.Context(), head)
					require.NoError(rt, err)
					id, err := from.id()
					require.NoError(rt, err)
					if cp.Received != nil { // from a third
						require.NotEqual(rt, id, cp.Received.Store)
					}
					return
				}
				after := list(to)
				require.Equal(rt, append(slices.Clone(before), arrived...), after)
				// What came is in the order of where it came from, behind all that both have.
				last := -1
				for at, id := range here {
					if slices.Contains(before, id) {
						last = at
					}
				}
				for _, id := range arrived {
					at := slices.Index(here, id)
					require.Greater(rt, at, last)
					last = at
				}
				end := len(here) - 1
				if ref != "" {
					require.Contains(rt, after, ref)
					end = slices.Index(here, ref)
				}
				if last < end && len(before) > 0 {
					// Only where the head there was here once, and newer than the rest.
					require.NotContains(rt, here, before[len(before)-1])
				}
				require.Empty(rt, faults(t, to))
				arrived = nil
				res, err := Transfer(t.Context(), from, to, opt)
				require.NoError(rt, err)
				require.Empty(rt, arrived)
				require.Zero(rt, res.Objects)
			},
		})
		for _, s := range sides {
			require.Empty(t, faults(t, s))
			require.NoError(t, s.Close())
		}
	})
	t.Logf("%d transfers, %d of them refused", transfers, problems)
}
