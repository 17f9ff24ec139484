package snapshot

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas/castest"
	"github.com/snapfs/snapfs/internal/disk/disktest"
	"github.com/snapfs/snapfs/internal/soak"
	"github.com/snapfs/snapfs/policy"
)

// A yearlyThread is one line of work in [TestYear].
type yearlyThread struct {
	id, dir string
	files   int
	head    string
}

// TestYear lives through many saves into many threads, with forks, names, a retention
// every night and a collection after it: the store follows what is kept, and each
// checkpoint that is kept restores to what was saved.
func TestYear(t *testing.T) {
	days, threads, saves := soak.Rounds(14, 365), soak.Rounds(4, 50), soak.Rounds(60, 5000)
	top := disktest.Memory(t)
	random := rand.New(rand.NewPCG(7, 7))
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := begin
	s, err := Open(t.Context(), filepath.Join(top, "store"), Options{Create: true, Now: func() time.Time { return now }})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()

	var all []*yearlyThread
	saved := map[string]map[string]node{} // by checkpoint
	content := uint64(0)
	change := func(th *yearlyThread, most int) {
		for range 1 + random.IntN(most) {
			content++
			path := filepath.Join(th.dir, fmt.Sprint("d", random.IntN(5)), fmt.Sprint("f", random.IntN(th.files)))
			if random.IntN(8) == 0 {
				require.NoError(t, os.RemoveAll(path))
				continue
			}
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, castest.Noise(content, 200+random.IntN(12_000)), 0o644))
		}
	}
	start := func() {
		th := &yearlyThread{id: fmt.Sprint("thread-", len(all)), files: 4 + random.IntN(12)}
		th.dir = filepath.Join(top, th.id)
		require.NoError(t, os.Mkdir(th.dir, 0o755))
		if len(all) > 0 && random.IntN(3) == 0 {
			from := all[random.IntN(len(all))]
			cp, err := s.Fork(t.Context(), from.head, ForkOptions{Thread: th.id})
			require.NoError(t, err)
			require.NoError(t, os.Remove(th.dir))
			_, err = s.Restore(t.Context(), cp.ID, RestoreOptions{Dir: th.dir})
			require.NoError(t, err)
			saved[cp.ID], th.head = saved[from.head], cp.ID
		} else {
			change(th, 60)
		}
		all = append(all, th)
	}
	done := 0
	for day := range days {
		for len(all) < threads && len(all) <= (day+1)*threads*2/days {
			start()
		}
		for done < saves*(day+1)/days {
			done++
			now = begin.AddDate(0, 0, day).Add(time.Duration(done*days%saves) * 24 * time.Hour / time.Duration(saves))
			th := all[random.IntN(len(all))]
			change(th, 4)
			opt := SaveOptions{Workspace: th.dir, Thread: th.id, Files: policy.FilesOptions{NoDefaults: true}}
			if random.IntN(40) == 0 {
				opt.Name = fmt.Sprint("v", done)
			}
			res, err := s.Save(t.Context(), opt)
			require.NoError(t, err)
			th.head = res.Checkpoint.ID
			saved[th.head] = look(t, th.dir)
		}
		now = begin.AddDate(0, 0, day+1)
		_, err := s.Forget(t.Context(), ForgetOptions{Rules: yearly})
		require.NoError(t, err)
		gc(t, s)
		if day%30 == 29 || day == days-1 {
			u := usage(t, s)
			t.Logf("day %d: %d checkpoints, %d bytes stored, %d reclaimable", day+1, checkpointsOf(u), u.StoredBytes, u.ReclaimableBytes)
			require.Less(t, float64(u.ReclaimableBytes), 0.14*float64(u.StoredBytes)+256<<10, "day %d", day)
		}
	}

	// What is there is what the rules keep of each thread, and the same as was saved.
	u := usage(t, s)
	kept := 0
	for _, th := range all {
		list, err := s.Checkpoints(t.Context(), th.id, Page{})
		require.NoError(t, err)
		require.Equal(t, th.head, list[0].ID)
		_, drops := retain(list, ForgetOptions{Rules: yearly})
		require.Empty(t, drops)
		for _, cp := range list {
			dir := filepath.Join(top, "restored")
			_, err := s.Restore(t.Context(), cp.ID, RestoreOptions{Dir: dir})
			require.NoError(t, err)
			require.Equal(t, saved[cp.ID], look(t, dir), cp.ID)
			require.NoError(t, os.RemoveAll(dir))
			kept++
		}
	}
	require.Equal(t, kept, checkpointsOf(u))
	require.Less(t, kept, len(saved), "something was dropped")

	// The store takes what one takes that never had anything else.
	fresh, err := Open(t.Context(), filepath.Join(top, "fresh"), Options{Create: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, fresh.Close()) }()
	_, err = Transfer(t.Context(), s, fresh, TransferOptions{})
	require.NoError(t, err)
	require.Equal(t, u.StoredBytes, usage(t, fresh).StoredBytes)
	_, old := packBytes(t, s)
	_, least := packBytes(t, fresh)
	t.Logf("%d saves, %d checkpoints kept, packs of %d bytes, %d in a store made anew", done, kept, old, least)
	require.Less(t, float64(old), 1.14*float64(least)+256<<10)
	require.Empty(t, faults(t, s))
}

// yearly is what [TestYear] keeps.
var yearly = policy.Retention{KeepLast: 2, KeepDaily: 7, KeepWeekly: 4, KeepWithin: 36 * time.Hour}

func checkpointsOf(u Usage) (n int) {
	for _, th := range u.Threads {
		n += th.Checkpoints
	}
	return n
}
