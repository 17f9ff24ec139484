package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas/castest"
	"github.com/snapfs/snapfs/internal/soak"
	"github.com/snapfs/snapfs/snapshot"
)

// TestKillPush kills a push again and again: each goes on where the one before was, so that
// over all of them hardly more is sent than there is, and in the end all is there, whole.
// With SNAPFS_LARGE it is a large tree, and 20 kills.
func TestKillPush(t *testing.T) {
	cuts, seed := soak.Rounds(3, 20), killSeed(t)
	p := newPushes(t, rand.New(rand.NewPCG(seed, 0)))
	p.fill(soak.Rounds(300, 40_000), soak.Rounds(12, 300))
	data := p.size("from")

	whole := p.push("unharmed", 0)
	require.InEpsilon(t, data, whole.Stored, 0.02)

	var sent int64
	var cut []int64
	for len(cut) < cuts {
		before := p.size("to")
		done := p.push("to", before+p.rnd.Int64N(2*data/int64(cuts)))
		if done != nil {
			sent += done.Stored
			break // it was faster
		}
		grown := max(0, p.size("to")-before)
		sent += grown
		cut = append(cut, grown)
	}
	last := p.push("to", 0)
	require.NotNil(t, last)
	sent += last.Stored
	t.Logf("%d bytes in packs; killed after %v, %d were sent: %.3f times as much", data, cut, sent, float64(sent)/float64(data))
	require.Less(t, sent, 2*data)
	require.Less(t, sent, data+data/20+int64(cuts)<<20, "what has arrived is not sent again")
	require.Equal(t, p.records("from"), p.records("to"))
	require.Equal(t, "", p.run("to", "verify", "--data"))
	left, err := os.ReadDir(filepath.Join(p.dir, "to", "tmp"))
	require.NoError(t, err)
	require.Empty(t, left)
	none := p.push("to", 0)
	require.Zero(t, none.Stored)
	require.Zero(t, none.Checkpoints)
}

// pushes are stores in one directory, and the program.
type pushes struct {
	*testing.T
	rnd *rand.Rand
	bin string
	dir string
}

func newPushes(t *testing.T, rnd *rand.Rand) *pushes {
	bin, err := built()
	require.NoError(t, err)
	return &pushes{T: t, rnd: rnd, bin: filepath.Join(bin, program), dir: t.TempDir()}
}

// fill saves two checkpoints of a tree of so many small files, and so many MiB in long ones.
func (p *pushes) fill(files, mib int) {
	p.Helper()
	ws := filepath.Join(p.dir, "ws")
	put := func(n, size int) {
		path := filepath.Join(ws, fmt.Sprint("d", n/200), fmt.Sprint("f", n))
		require.NoError(p, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(p, os.WriteFile(path, castest.Noise(uint64(n), size), 0o644))
	}
	for n := range files {
		put(n, 1000+p.rnd.IntN(8000))
	}
	for n := range mib / 6 {
		put(files+n, 6<<20)
	}
	p.run("from", "save", "--thread", "t", "--id", "one", ws)
	put(0, 5000)
	p.run("from", "save", "--thread", "t", "--id", "two", ws)
}

// size is how many bytes packs take that a store has or was sent.
func (p *pushes) size(store string) (sum int64) {
	p.Helper()
	for _, dir := range []string{"packs", "tmp"} {
		err := filepath.WalkDir(filepath.Join(p.dir, store, dir), func(_ string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				var info fs.FileInfo
				if info, err = d.Info(); err == nil {
					sum += info.Size()
				}
			}
			return err
		})
		if !errors.Is(err, fs.ErrNotExist) {
			require.NoError(p, err)
		}
	}
	return sum
}

func (p *pushes) command(ctx context.Context, store string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.bin, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SNAPFS_") })
	cmd.Env = append(cmd.Env, "SNAPFS_STORE="+filepath.Join(p.dir, store), "HOME="+p.dir, "XDG_CONFIG_HOME=", "LC_ALL=C")
	return cmd
}

func (p *pushes) run(store string, args ...string) string {
	p.Helper()
	var stderr bytes.Buffer
	cmd := p.command(p.Context(), store, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(p, err, "%q: %s", args, stderr.String())
	return string(out)
}

// records lists the checkpoints of a store with their records.
func (p *pushes) records(store string) (all []string) {
	p.Helper()
	for line := range strings.Lines(p.run(store, "list", "--json", "t")) {
		var cp snapshot.Checkpoint
		require.NoError(p, json.Unmarshal([]byte(line), &cp))
		all = append(all, cp.ID+" "+cp.Record)
	}
	require.Len(p, all, 2)
	return all
}

// push sends everything to a store. Once that has so many bytes it is killed, unless they
// are 0, and returns nothing then.
func (p *pushes) push(to string, killAt int64) *snapshot.TransferResult {
	p.Helper()
	var stdout, stderr bytes.Buffer
	cmd := p.command(p.Context(), "from", "push", "--json", "--all", filepath.Join(p.dir, to))
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(p, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	var err error
	for waiting := true; waiting; {
		select {
		case err = <-ended:
			waiting = false
		case <-look.C:
			if killAt > 0 && p.size(to) >= killAt {
				_ = cmd.Process.Kill() // it may have ended at this moment
				killAt = 0
			}
		}
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() < 0 {
		return nil
	}
	require.NoError(p, err, stderr.String())
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	res := &snapshot.TransferResult{}
	require.NoError(p, json.Unmarshal([]byte(lines[len(lines)-1]), res))
	return res
}
