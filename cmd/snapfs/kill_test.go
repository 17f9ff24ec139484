package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/internal/soak"
)

// seedEnv replays a run of a test that kills, as far as the moments of the kills allow.
const seedEnv = "SNAPFS_SEED"

// killSeed is where the random numbers of a test begin.
func killSeed(t *testing.T) uint64 {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv(seedEnv); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("%s=%d", seedEnv, seed)
	return seed
}

// TestKill kills the program as it is built again and again, each time at a random
// moment of a random verb: nothing that was acknowledged is lost, and what was not
// is done whole or not at all. SNAPFS_LARGE makes it 200 rounds.
func TestKill(t *testing.T) {
	n, seed := soak.Rounds(8, 200), killSeed(t)
	dir, err := built()
	require.NoError(t, err)
	bin := filepath.Join(dir, program)

	t.Run("alone", func(t *testing.T) {
		r := newRounds(t, bin, seed)
		r.begin()
		for range n {
			r.round()
		}
		r.end()
	})
	t.Run("daemon", func(t *testing.T) {
		if !canMount() {
			require.NotEqual(t, "1", os.Getenv("SNAPFS_NEED_FUSE"))
			t.Skip("no FUSE")
		}
		r := newRounds(t, bin, seed+1)
		r.mount = filepath.Join(r.dir, "mount")
		require.NoError(t, os.Mkdir(r.mount, 0o755))
		r.guard()
		r.startDaemon()
		r.begin()
		for range n {
			r.round()
		}
		r.end()
	})
}

// rounds is a store, what it has to hold, and what happened to it.
type rounds struct {
	t        *testing.T
	rnd      *rand.Rand
	bin      string
	dir      string // everything lies in it
	store    string
	ws       string
	mount    string // empty: no daemon
	state    state
	n        int                      // rounds so far
	took     map[string]time.Duration // by verb, of those that came to their end
	tries    map[string]int           // by verb
	hits     map[string]int           // those that were killed while they ran; "daemon": with a verb that ran
	lost     int                      // verbs that were killed, and are not done
	d        *daemonProcess           // nil: none runs
	newMount bool                     // and nobody has looked at its mount
}

func newRounds(t *testing.T, bin string, seed uint64) *rounds {
	dir, err := os.MkdirTemp("/dev/shm", "snapfs-kill-")
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	r := &rounds{
		t: t, rnd: rand.New(rand.NewPCG(seed, 0)), bin: bin, dir: dir, store: filepath.Join(dir, "store"), ws: filepath.Join(dir, "ws"),
		state: newState(), took: map[string]time.Duration{}, tries: map[string]int{}, hits: map[string]int{},
	}
	r.fillWorkspace()
	return r
}

// begin does each verb once, which shows how long it takes.
func (r *rounds) begin() {
	for _, verb := range []string{"save", "save", "fork", "rename", "delete", "gc", "save", "save", "save", "save", "gc"} {
		r.changeWorkspace()
		args, next := r.plan(verb)
		start := time.Now()
		out := r.run(args...)
		r.took[verb] = time.Since(start)
		r.require(acknowledged(args, out, 0), "%s printed %q", verb, out)
		r.state = next
	}
	require.Equal(r.t, r.state.view(), r.listed())
}

// round does one verb and kills it or the daemon.
func (r *rounds) round() {
	r.n++
	r.changeWorkspace()
	verb := r.choose()
	args, next := r.plan(verb)
	if r.mount != "" && r.d == nil {
		r.startDaemon()
	}
	daemon := r.d != nil && r.rnd.IntN(2) == 0
	moment := time.Duration(r.rnd.Int64N(int64(r.took[verb])))
	got := r.killed(args, moment, daemon)
	r.tries[verb]++
	switch {
	case got.killed:
		r.hits[verb]++
	case got.code == 0:
		r.took[verb] = (3*r.took[verb] + got.took) / 4
	default:
		// Nothing but a daemon's end makes a verb fail; a save under way is lost, and
		// a change that was made already is not found by the second try.
		r.require(daemon, "%q: exit code %d: %s", args, got.code, got.stderr)
		r.require(got.stdout == "", "%q failed and printed %q", args, got.stdout)
		r.require(strings.Contains(got.stderr, "snapfs: "), "%q: exit code %d: %s", args, got.code, got.stderr)
	}
	if daemon && r.mount != "" && r.rnd.IntN(2) == 0 {
		r.startDaemon() // else what follows finds the store without one
	}
	r.settle(args, got, next)
	r.checkSome(verb, got)
	if r.n%5 == 0 {
		r.checkAll()
	}
}

// settle finds out what became of a verb.
func (r *rounds) settle(args []string, got result, next state) {
	done := acknowledged(args, got.stdout, got.code)
	r.require(done || got.killed || got.code != 0, "%q ended well and printed %q", args, got.stdout)
	listed := r.listed()
	if !done {
		// Done or not, and nothing between.
		if !maps.EqualFunc(listed, next.view(), slices.Equal) {
			require.Equal(r.t, r.state.view(), listed, "%q was not acknowledged", args)
			r.lost++
			return
		}
	}
	require.Equal(r.t, next.view(), listed, "%q was acknowledged", args)
	r.state = next
}

// acknowledged reports whether the user was told that a verb is done.
func acknowledged(args []string, stdout string, code int) bool {
	if i := slices.Index(args, "--id"); i >= 0 {
		return stdout == args[i+1]+"\n" // whatever happened then
	}
	return code == 0
}

// choose picks a verb, so that there are a few checkpoints all the time.
func (r *rounds) choose() string {
	points, n := len(r.state.points), r.rnd.IntN(20)
	switch {
	case points < 4 || n < 10 && points < 14:
		return "save"
	case n < 13:
		return "delete"
	case n < 16:
		return "gc"
	case n < 18:
		return "rename"
	}
	return "fork"
}

// plan makes a verb's arguments, and tells what holds when it is done.
func (r *rounds) plan(verb string) (args []string, next state) {
	next = r.state.clone()
	next.made++
	id := fmt.Sprintf("made-%d", next.made)
	switch verb {
	case "save":
		p := point{thread: []string{"a", "b"}[r.rnd.IntN(2)], made: next.made, tree: treeOf(r.t, r.ws)}
		args = []string{"save", "--thread", p.thread, "--id", id}
		if r.rnd.IntN(3) == 0 {
			p.name = "name of " + id
			args = append(args, "--name", p.name)
		}
		if r.rnd.IntN(4) == 0 {
			args = append(args, "--full-scan")
		}
		args = append(args, r.ws)
		next.points[id], next.threads[p.thread] = p, true
	case "fork":
		from := r.any()
		p := r.state.points[from]
		p.thread, p.name, p.made = "fork "+id, "", next.made
		args = []string{"fork", "--id", id, from, p.thread}
		next.points[id], next.threads[p.thread] = p, true
	case "rename":
		id := r.any()
		p := next.points[id]
		if p.name != "" && r.rnd.IntN(2) == 0 {
			p.name = ""
			args = []string{"rename", "--clear", id}
		} else {
			p.name = fmt.Sprintf("renamed %d", next.made)
			args = []string{"rename", id, p.name}
		}
		next.points[id] = p
	case "delete":
		id := r.any()
		thread := next.points[id].thread
		if r.rnd.IntN(2) == 0 && strings.HasPrefix(thread, "fork ") {
			delete(next.threads, thread)
			maps.DeleteFunc(next.points, func(_ string, p point) bool { return p.thread == thread })
			args = []string{"delete", "--thread", thread}
		} else {
			delete(next.points, id)
			args = []string{"delete", id}
		}
	case "gc":
		args = []string{"gc"}
	}
	return args, next
}

// any picks a checkpoint.
func (r *rounds) any() string {
	ids := slices.Sorted(maps.Keys(r.state.points))
	return ids[r.rnd.IntN(len(ids))]
}

// command is the program on the store.
func (r *rounds) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, r.bin, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SNAPFS_") })
	cmd.Env = append(cmd.Env, "SNAPFS_STORE="+r.store, "HOME="+r.dir, "XDG_CONFIG_HOME=", "LC_ALL=C")
	return cmd
}

// run does a verb that nobody kills, and returns what it printed.
func (r *rounds) run(args ...string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	cmd := r.command(ctx, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	r.require(err == nil, "%q: %v: %s%s", args, err, out, stderr.String())
	return string(out)
}

// result is how a verb ended.
type result struct {
	stdout, stderr string
	code           int
	killed         bool // the verb itself, before its end
	took           time.Duration
}

// killed does a verb, and after a while kills it, or else the daemon.
func (r *rounds) killed(args []string, after time.Duration, daemon bool) result {
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	cmd := r.command(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	start := time.Now()
	require.NoError(r.t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	timer := time.NewTimer(after)
	defer timer.Stop()
	var err error
	select {
	case err = <-ended:
		if daemon {
			r.killDaemon()
		}
	case <-timer.C:
		if daemon {
			r.killDaemon()
			r.hits["daemon"]++
		} else {
			_ = cmd.Process.Kill() // it may have ended at this moment
		}
		err = <-ended
	}
	got := result{stdout: stdout.String(), stderr: stderr.String(), took: time.Since(start)}
	r.require(ctx.Err() == nil, "%q does not end: %s", args, got.stderr)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		status := exit.Sys().(syscall.WaitStatus)
		got.code, got.killed = exit.ExitCode(), status.Signaled()
	} else {
		require.NoError(r.t, err)
	}
	r.require(!got.killed || !daemon, "%q: %v", args, err)
	return got
}

// require is [require.True] with a message that is easy to read.
func (r *rounds) require(ok bool, format string, args ...any) {
	r.t.Helper()
	if !ok {
		r.t.Fatalf("round %d: "+format, append([]any{r.n}, args...)...)
	}
}
