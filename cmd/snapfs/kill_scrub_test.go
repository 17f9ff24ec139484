package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/internal/soak"
	"github.com/snapfs/snapfs/snapshot"
)

// lateValue is declared too late in these tests.
const lateValue = "open-sesame-1234"

// TestKillScrub kills scrub --delete, and the collection after it, at random moments:
// whatever was deleted by then leaves no byte when a collection has come to its end, and
// what was not is whole.
func TestKillScrub(t *testing.T) {
	rounds := soak.Rounds(4, 60)
	rnd := rand.New(rand.NewPCG(killSeed(t), 0))
	dir, err := built()
	require.NoError(t, err)
	bin := filepath.Join(dir, program)
	template := scrubStore{t: t, bin: bin, dir: t.TempDir()}
	template.fill()
	killed, partly := 0, 0
	tookScrub, tookGC := 0*time.Second, 0*time.Second
	for n := range rounds + 1 {
		s := scrubStore{t: t, bin: bin, dir: t.TempDir()}
		require.NoError(t, os.CopyFS(s.dir, os.DirFS(template.dir)))
		scrub := []string{"scrub", "--redact-file", filepath.Join(s.dir, "values"), "--delete"}
		moment := func(took time.Duration) time.Duration {
			if n == 0 {
				return time.Minute // to see how long it takes
			}
			return time.Duration(rnd.Int64N(int64(took) + 1))
		}
		did, took := s.kill(moment(tookScrub), scrub...)
		if n == 0 {
			tookScrub = took
		} else if did {
			killed++
		}
		did, took = s.kill(moment(tookGC), "gc")
		if n == 0 {
			tookGC = took
		} else if did {
			killed++
		}
		// One collection comes to its end: what is not listed is nowhere.
		s.run("gc")
		there := s.listed()
		require.Contains(t, there, "kept")
		for i := range scrubbedOnes {
			id := fmt.Sprint("late-", i)
			require.Equal(t, there[id], len(s.holding(fmt.Sprintf("%s-%d-", lateValue, i))) > 0, "%s in round %d", id, n)
		}
		if left := len(there); left > 1 && left < scrubbedOnes+1 {
			partly++
		}
		s.run("verify", "--data")
		// And again, to the end.
		s.kill(time.Minute, scrub...)
		s.run("gc")
		require.Equal(t, map[string]bool{"kept": true}, s.listed())
		require.Empty(t, s.holding(lateValue))
		s.run("scrub", "--redact-file", filepath.Join(s.dir, "values"))
		s.run("verify", "--data")
		require.Equal(t, template.noise, s.run("cat", "kept", "noise"))
	}
	t.Logf("%d of %d killed, %d scrubs in the middle of deleting", killed, 2*rounds, partly)
}

const scrubbedOnes = 24

// scrubStore is a store with checkpoints that hold a value, and one that does not.
type scrubStore struct {
	t     *testing.T
	bin   string
	dir   string
	noise string
}

func (s *scrubStore) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(s.t.Context(), s.bin, args...)
	cmd.Env = append(os.Environ(), "SNAPFS_STORE="+filepath.Join(s.dir, "store"), "HOME="+s.dir, "XDG_CONFIG_HOME="+s.dir)
	return cmd
}

func (s *scrubStore) run(args ...string) string {
	s.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := s.command(args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(s.t, cmd.Run(), "%q: %s", args, stderr.String())
	return stdout.String()
}

// kill runs a verb and kills it if it has not ended after a while.
func (s *scrubStore) kill(after time.Duration, args ...string) (killed bool, took time.Duration) {
	s.t.Helper()
	cmd := s.command(args...)
	start := time.Now()
	require.NoError(s.t, cmd.Start())
	timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	timer.Stop()
	took = time.Since(start)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		killed = exit.ExitCode() < 0
		require.True(s.t, killed || exit.ExitCode() == exitTrouble, "%q: %v", args, err)
	}
	return killed, took
}

func (s *scrubStore) fill() {
	s.t.Helper()
	ws := filepath.Join(s.dir, "ws")
	require.NoError(s.t, os.Mkdir(ws, 0o755))
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, "values"), []byte(lateValue+"\n"), 0o600))
	noise := make([]byte, 9<<20)
	src := rand.NewChaCha8([32]byte{1})
	_, _ = src.Read(noise)
	s.noise = string(noise)
	require.NoError(s.t, os.WriteFile(filepath.Join(ws, "noise"), noise, 0o644))
	for i := range scrubbedOnes {
		value := fmt.Sprintf("%s-%d-", lateValue, i)
		require.NoError(s.t, os.WriteFile(filepath.Join(ws, "leak"), []byte(value), 0o644))
		s.run("save", "--thread", fmt.Sprint("t", i%3), "--id", fmt.Sprint("late-", i), "--name", value, "--message", value, "--compression", "off", ws)
	}
	require.NoError(s.t, os.Remove(filepath.Join(ws, "leak")))
	s.run("save", "--thread", "t", "--id", "kept", "--compression", "off", ws)
}

// listed are the checkpoints that there are.
func (s *scrubStore) listed() map[string]bool {
	s.t.Helper()
	ids := map[string]bool{}
	for line := range strings.Lines(s.run("list", "--json")) {
		var thread snapshot.Thread
		require.NoError(s.t, json.Unmarshal([]byte(line), &thread))
		for line := range strings.Lines(s.run("list", "--json", thread.ID)) {
			var cp snapshot.Checkpoint
			require.NoError(s.t, json.Unmarshal([]byte(line), &cp))
			ids[cp.ID] = true
		}
	}
	return ids
}

// holding lists the files of the store that hold a text.
func (s *scrubStore) holding(text string) (paths []string) {
	s.t.Helper()
	require.NoError(s.t, filepath.WalkDir(filepath.Join(s.dir, "store"), func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(text)) {
			paths = append(paths, path)
		}
		return err
	}))
	return paths
}
