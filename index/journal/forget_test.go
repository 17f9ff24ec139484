package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/disk/disktest"
)

// grep counts the files below a directory that hold a text.
func grep(t require.TestingT, dir, text string) (n int) {
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), text) || strings.Contains(path, text) {
			n++
		}
		return err
	}))
	return n
}

// outcome plays the entries of a log to what an index would have of them in the end.
func outcome(t require.TestingT, j *Journal) map[string]string {
	type cp struct{ thread, name, from string }
	cps, threads, artifacts := map[string]cp{}, map[string]bool{}, map[string]index.Artifact{}
	leases, deleting := map[string]string{}, map[string]bool{}
	for e, err := range j.Replay(1) {
		require.NoError(t, err)
		if ev, from, ok := Published(e.Event); ok {
			if _, ok := cps[ev.Checkpoint]; ok {
				continue
			}
			cps[ev.Checkpoint], threads[ev.Thread] = cp{ev.Thread, ev.Name, fmt.Sprint(from)}, true
			for _, a := range ev.Artifacts {
				artifacts[ev.Thread+"/"+a.ID] = a
			}
		}
		switch ev := e.Event.(type) {
		case Rename:
			if c, ok := cps[ev.Checkpoint]; ok {
				c.name = ev.Name
				cps[ev.Checkpoint] = c
			}
		case Delete:
			delete(cps, ev.Checkpoint)
			delete(deleting, "checkpoint "+ev.Checkpoint)
		case DeleteSome:
			for _, id := range ev.Checkpoints {
				delete(cps, id)
				delete(deleting, "checkpoint "+id)
			}
		case Deleting:
			for _, id := range ev.Checkpoints {
				if _, ok := cps[id]; ok {
					deleting["checkpoint "+id] = true
				}
			}
			if threads[ev.Thread] {
				deleting["thread "+ev.Thread] = true
			}
		case DeleteThread:
			delete(deleting, "thread "+ev.Thread)
			delete(threads, ev.Thread)
			delete(leases, ev.Thread)
			for id, c := range cps {
				if c.thread == ev.Thread {
					delete(cps, id)
					delete(deleting, "checkpoint "+id)
				}
			}
			for id := range artifacts {
				if strings.HasPrefix(id, ev.Thread+"/") {
					delete(artifacts, id)
				}
			}
		case AddArtifact:
			artifacts[ev.Thread+"/"+ev.Artifact.ID], threads[ev.Thread] = ev.Artifact, true
		case RemoveArtifact:
			delete(artifacts, ev.Thread+"/"+ev.Artifact)
		case AcquireLease:
			leases[ev.Thread] = fmt.Sprint(e.Seq, " ", ev.Owner, ev.Token, ev.Expires, ev.TTL)
		case ReleaseLease:
			if strings.HasPrefix(leases[ev.Thread], fmt.Sprint(ev.Fence, " ")) {
				delete(leases, ev.Thread)
			}
		}
	}
	out := map[string]string{}
	for id, c := range cps {
		out["checkpoint "+id] = c.thread + " " + c.name + " " + c.from
	}
	for id := range threads {
		out["thread "+id] = ""
	}
	for id := range deleting {
		out[id] += ", being deleted"
	}
	for id, l := range leases {
		out["lease "+id] = l
	}
	for id, a := range artifacts {
		out["artifact "+id] = fmt.Sprint(a)
	}
	return out
}

// TestForgetAll: whatever happened, forgetting changes nothing of what there is, takes
// away each text that nothing has any more, and a second time finds nothing.
func TestForgetAll(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp("", "forget-")
		require.NoError(rt, err)
		defer os.RemoveAll(dir)
		dir = filepath.Join(dir, "journal")
		j, err := Open(dir, Options{FileSize: 600})
		require.NoError(rt, err)
		defer j.Close()
		texts := map[string]bool{}
		fresh := func(kind string) string {
			text := fmt.Sprintf("%s<%d>", kind, len(texts))
			texts[text] = true
			return text
		}
		pick := func(kind string, few int) string { // often one that was there
			text := fmt.Sprintf("%s(%d)", kind, rapid.IntRange(1, few).Draw(rt, kind))
			texts[text] = true
			return text
		}
		artifact := func(thread string, with []index.Artifact) (index.Artifact, bool) {
			id := pick("artifact", 3)
			_, there := outcome(rt, j)["artifact "+thread+"/"+id] // an index refuses it
			there = there || slices.ContainsFunc(with, func(a index.Artifact) bool { return a.ID == id })
			return index.Artifact{ID: id, Name: fresh("name"), MediaType: fresh("type"), Blob: index.Blob{Hash: cas.Data.Sum([]byte("x")), Size: 1}}, !there
		}
		for range rapid.IntRange(1, 40).Draw(rt, "entries") {
			var ev Event
			switch rapid.IntRange(0, 11).Draw(rt, "kind") {
			case 0, 1:
				p := Publish{Org: "o", Checkpoint: pick("checkpoint", 5), Thread: pick("thread", 2), ExpectedHead: pick("checkpoint", 5), Name: fresh("named")}
				if _, there := outcome(rt, j)["checkpoint "+p.Checkpoint]; there {
					continue
				}
				for range rapid.IntRange(0, 2).Draw(rt, "artifacts") {
					if a, ok := artifact(p.Thread, p.Artifacts); ok {
						p.Artifacts = append(p.Artifacts, a)
					}
				}
				ev = p
				if rapid.Bool().Draw(rt, "received") {
					ev = Receive{Publish: p, Store: fresh("store"), Seq: 7}
				}
			case 2:
				ev = Rename{Org: "o", Checkpoint: pick("checkpoint", 5), Name: fresh("named")}
			case 3:
				ev = Delete{Org: "o", Checkpoint: pick("checkpoint", 5)}
			case 4:
				ev = DeleteThread{Org: "o", Thread: pick("thread", 2)}
			case 5:
				add := AddArtifact{Org: "o", Thread: pick("thread", 2)}
				ok := false
				if add.Artifact, ok = artifact(add.Thread, nil); !ok {
					continue
				}
				ev = add
			case 6:
				ev = RemoveArtifact{Org: "o", Thread: pick("thread", 2), Artifact: pick("artifact", 3)}
			case 7:
				ev = AcquireLease{Org: "o", Thread: pick("thread", 2), Token: cas.Data.Sum([]byte(fresh("token"))), Owner: fresh("owner"), Expires: 5, TTL: 6}
			case 8:
				ev = ReleaseLease{Org: "o", Thread: pick("thread", 2), Fence: rapid.Uint64Range(1, 40).Draw(rt, "fence")}
			case 9:
				ev = Deleting{Org: "o", Checkpoints: []string{pick("checkpoint", 5), pick("checkpoint", 5)}}
			case 10:
				ev = Deleting{Org: "o", Thread: pick("thread", 2)}
			case 11:
				ev = DeleteSome{Org: "o", Checkpoints: []string{pick("checkpoint", 5), pick("checkpoint", 5)}}
			}
			_, err := j.Append(ev)
			require.NoError(rt, err)
		}
		want := outcome(rt, j)
		live := map[uint64]bool{} // of those that are neither released nor taken over, some have expired
		for id, l := range want {
			if !strings.HasPrefix(id, "lease ") {
				continue
			}
			if rapid.Bool().Draw(rt, "expired") {
				delete(want, id)
				continue
			}
			fence, err := strconv.ParseUint(l[:strings.IndexByte(l, ' ')], 10, 64)
			require.NoError(rt, err)
			live[fence] = true
		}
		_, err = j.Forget(j.Last(), live)
		require.NoError(rt, err)
		require.Equal(rt, want, outcome(rt, j))
		said := fmt.Sprint(want)
		for text := range texts {
			if !strings.Contains(said, text) {
				require.Zero(rt, grep(rt, dir, text), "%s is still there", text)
			}
		}
		changed, err := j.Forget(j.Last(), live)
		require.NoError(rt, err)
		require.Zero(rt, changed)

		// It goes on, and opens again.
		last, err := j.Append(Delete{Org: "o", Checkpoint: "nobody"})
		require.NoError(rt, err)
		require.NoError(rt, j.Close())
		j, err = Open(dir, Options{FileSize: 600})
		require.NoError(rt, err)
		require.Equal(rt, last.Seq, j.Last())
		require.Equal(rt, want, outcome(rt, j))
		require.NoError(rt, j.Close())
	})
}

// TestForgetUpTo: what was deleted later stays until the next time.
func TestForgetUpTo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	j := open(t, dir, Options{})
	for _, ev := range []Event{
		Publish{Org: "o", Checkpoint: "early", Thread: "t"}, Publish{Org: "o", Checkpoint: "later", Thread: "t", ExpectedHead: "early"},
		Delete{Org: "o", Checkpoint: "early"}, Delete{Org: "o", Checkpoint: "later"},
	} {
		_, err := j.Append(ev)
		require.NoError(t, err)
	}
	changed, err := j.Forget(3, nil)
	require.NoError(t, err)
	require.Equal(t, 3, changed)
	require.Zero(t, grep(t, dir, "early"))
	require.Equal(t, 1, grep(t, dir, "later"))
}

// TestForgetCutShort: whatever fails in it, or wherever power is lost, the log opens
// with all changed or nothing, and says the same.
func TestForgetCutShort(t *testing.T) {
	points := 0
	for _, c := range []struct {
		name  string
		fault disktest.Fault
		left  disktest.Left
	}{
		{"power lost, least left", disktest.Fault{Power: true}, disktest.Least},
		{"power lost, some left", disktest.Fault{Power: true}, disktest.Some},
		{"power lost, most left", disktest.Fault{Power: true}, disktest.Most},
		{"fails once", disktest.Fault{Err: unix.EIO}, disktest.Most},
		{"fails from then on", disktest.Fault{Err: unix.ENOSPC, Lasts: true}, disktest.Most},
	} {
		t.Run(c.name, func(t *testing.T) {
			for at := 1; ; at++ {
				dir := filepath.Join(t.TempDir(), "journal")
				j := open(t, dir, Options{FileSize: 300})
				for i := range 12 {
					_, err := j.Append(Publish{Org: "o", Checkpoint: fmt.Sprintf("secret-%d.", i), Thread: "t"})
					require.NoError(t, err)
				}
				for i := range 12 {
					if i%3 > 0 {
						_, err := j.Append(Delete{Org: "o", Checkpoint: fmt.Sprintf("secret-%d.", i)})
						require.NoError(t, err)
					}
				}
				want, last := outcome(t, j), j.Last()
				require.NoError(t, j.Close())

				d, err := disktest.New(filepath.Dir(dir), uint64(at))
				require.NoError(t, err)
				j, err = Open(dir, Options{FileSize: 300, FS: d})
				require.NoError(t, err)
				fault := c.fault
				fault.At = at
				d.Arm(fault)
				_, err = j.Forget(last, nil)
				met := d.Met() != ""
				require.Equal(t, met, err != nil, "at %d: %v", at, err)
				_ = j.Close()
				if met {
					points++
					d.Arm(disktest.Fault{})
					to := t.TempDir()
					require.NoError(t, d.Crash(to, c.left))
					dir = filepath.Join(to, "journal")
				}
				j = open(t, dir, Options{FileSize: 300, Existing: true})
				require.Equal(t, last, j.Last())
				require.Equal(t, want, outcome(t, j), "at %d", at)
				require.Contains(t, []int{0, 8}, hidden(t, j), "at %d", at)
				_, err = j.Forget(last, nil)
				require.NoError(t, err)
				require.Equal(t, 8, hidden(t, j))
				for _, gone := range []string{"secret-1.", "secret-5.", "secret-11."} {
					require.Zero(t, grep(t, dir, gone))
				}
				require.NotZero(t, grep(t, dir, "secret-6."))
				require.NoError(t, j.Close())
				if !met {
					break
				}
			}
		})
	}
	require.Greater(t, points, 100)
	t.Logf("%d points tried", points)
}

// hidden counts the checkpoints that stand-ins stand for.
func hidden(t *testing.T, j *Journal) (n int) {
	for e, err := range j.Replay(1) {
		require.NoError(t, err)
		if ev, ok := e.Event.(Delete); ok && strings.HasPrefix(ev.Checkpoint, standPrefix) {
			n++
		}
	}
	return n
}

// TestForgetLeases: nothing is left of those that are over, and a later one stays until
// the next time.
func TestForgetLeases(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	j := open(t, dir, Options{})
	acquire := func(thread, owner string) Event {
		return AcquireLease{Org: "o", Thread: thread, Token: cas.Data.Sum([]byte(owner)), Owner: owner, Expires: 5, TTL: 6}
	}
	for _, ev := range []Event{
		acquire("gone", "owner-1"), Publish{Org: "o", Checkpoint: "c", Thread: "gone"}, ReleaseLease{Org: "o", Thread: "gone", Fence: 1},
		acquire("gone", "owner-4"), DeleteThread{Org: "o", Thread: "gone"}, acquire("kept", "owner-6"), acquire("never", "owner-7"), acquire("later", "owner-8"),
	} {
		_, err := j.Append(ev)
		require.NoError(t, err)
	}
	changed, err := j.Forget(7, map[uint64]bool{6: true})
	require.NoError(t, err)
	require.Equal(t, 6, changed)
	for _, text := range []string{"gone", "owner-1", "owner-4", "owner-7", "never"} {
		require.Zero(t, grep(t, dir, text), text)
	}
	for _, text := range []string{"kept", "owner-6", "later", "owner-8"} {
		require.Equal(t, 1, grep(t, dir, text), text)
	}
	changed, err = j.Forget(j.Last(), map[uint64]bool{6: true})
	require.NoError(t, err)
	require.Equal(t, 1, changed)
	e, err := j.Append(ReleaseLease{Org: "o", Thread: "kept", Fence: 6})
	require.NoError(t, err)
	require.EqualValues(t, 9, e.Seq)
}
