package scripts_test

import (
	"crypto/rand"
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

const saveScript = "save-after-run.sh"

func TestSaveAfterRun(t *testing.T) {
	eachWay(t, func(w *world) {
		w.write("ws/f", "made")
		w.write("ws/f.log", "noise")
		w.write("talk.json", `[{"role":"user"}]`)
		w.write("out/report.txt", "report")
		w.write("out/deep/page.html", "<p>")
		require.NoError(w, os.Symlink("report.txt", w.path("out/link")))
		args := []string{"--thread", "task", "--run", "r1", "--conversation", "talk.json", "--artifacts", "out", "ws", "0", "--", "--exclude", "*.log"}
		got := w.run(saveScript, args...)
		require.Equal(w, 0, got.code, got.stderr)
		require.Equal(w, "checkpoint-r1\n", got.stdout)
		require.Contains(w, got.stderr, "no artifacts: 1 symlinks or special files")

		var cp struct {
			Reason, Run, Thread string
			Files               int
		}
		require.NoError(w, json.Unmarshal([]byte(w.must("snapfs", "show", "--json", "checkpoint-r1")), &cp))
		require.Equal(w, "automatic r1 task 1", strings.Join([]string{cp.Reason, cp.Run, cp.Thread, string(rune('0' + cp.Files))}, " "))
		require.Equal(w, `[{"role":"user"}]`, w.must("snapfs", "conversation", "checkpoint-r1"))
		require.Equal(w, map[string]string{"report.txt": "report", "deep/page.html": "<p>"}, w.artifacts("checkpoint-r1"))

		w.fails(6, "", saveScript, args...)
		require.Equal(w, 1, strings.Count(w.must("snapfs", "list", "--json", "task"), "\n"))

		// The pair: what was saved is what the next sandbox gets.
		w.must(restoreScript, "task", "next")
		require.Equal(w, []string{"f"}, w.names("next"))
	})
}

// artifacts reads all artifacts of a checkpoint, by name.
func (w *world) artifacts(ref string) map[string]string {
	w.Helper()
	all := map[string]string{}
	for line := range strings.Lines(w.must("snapfs", "artifact", "list", "--json", ref)) {
		var a struct{ ID, Name string }
		require.NoError(w, json.Unmarshal([]byte(line), &a))
		all[a.Name] = w.must("snapfs", "artifact", "read", ref, a.ID)
	}
	return all
}

// TestSaveNothing is about all that leaves the thread as it was.
func TestSaveNothing(t *testing.T) {
	w := newWorld(t)
	w.write("ws/f", "made")
	w.write("talk.json", "[]")
	w.write("text", "no JSON")
	w.write("equal/a=b", "")
	w.mkdir("empty")
	for _, c := range []struct {
		name string
		code int
		text string
		args string
	}{
		{"failed run", 1, "failed with exit code 1: nothing is saved", "ws 1"},
		{"code of its own", 42, "nothing is saved", "--conversation talk.json ws 42"},
		{"signal", 143, "was ended by TERM", "ws TERM"},
		{"signal's long name", 137, "was ended by SIGKILL", "ws SIGKILL"},
		{"no such signal", 2, "no signal", "ws LATER"},
		{"no exit code", 2, "no exit code", "ws 256"},
		{"octal", 2, "no exit code", "ws 00"},
		{"sign", 2, "no exit code", "ws +0"},
		{"empty", 2, "no exit code", "ws "},
		{"turned around", 2, "no exit code", "0 ws"},
		{"no status", 2, "want WORKSPACE and STATUS", "ws"},
		{"unknown flag", 2, "behind --", "--exclude x ws 0"},
		{"empty run", 2, "one without its value", "--run= ws 0"},
		{"no value", 2, "needs a value", "ws 0 --conversation"},
		{"no conversation", 1, "cannot be read", "--conversation gone.json ws 0"},
		{"conversation a directory", 1, "cannot be read", "--conversation empty ws 0"},
		{"conversation not JSON", 2, "conversation", "--conversation text ws 0"},
		{"no artifacts", 1, "cannot be read", "--artifacts gone ws 0"},
		{"artifacts a file", 1, "cannot be read", "--artifacts text ws 0"},
		{"artifact with =", 2, "no artifact can have a =", "--artifacts equal ws 0"},
		{"no workspace", 4, "gone", "gone 0"},
		{"wrong flag of save", 2, "", "ws 0 -- --no-such-flag"},
		{"missing store", 4, "the store cannot be read", "--store elsewhere ws 0"},
		{"empty directory", 4, "the store cannot be read", "--store empty ws 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &world{T: t, dir: w.dir, store: w.store, env: w.env}
			w.fails(c.code, c.text, saveScript, append([]string{"--thread", "task", "--run", "r"}, strings.Split(c.args, " ")...)...)
			require.Empty(t, w.must("snapfs", "list", "--json"))
			require.False(t, w.exists("elsewhere") || w.exists("empty/*"))
		})
	}
	w.fails(2, "no --thread", saveScript, "--run", "r", "ws", "0")
	w.fails(2, "no --run", saveScript, "--thread", "t", "ws", "0")
	require.Contains(t, w.must(saveScript, "--help"), "usage: save-after-run.sh")
	// The variable stands for the flag.
	w.env = append(w.env, "SNAPFS_THREAD=task")
	require.Equal(t, "checkpoint-r\n", w.must(saveScript, "--run", "r", "--artifacts", "empty", "ws", "0"))
}

func TestSaveOddNames(t *testing.T) {
	w := newWorld(t)
	names := []string{"two words", "-x", "new\nline\n", "$(touch x)`touch y`", `"'\`, "ä🦊", "a,b", ";type:x", "@", " around "}
	want := map[string]string{}
	for _, name := range names {
		w.write("out;type=x/"+name, "of "+name)
		want[name] = "of " + name
	}
	for _, name := range names {
		w.write("ws "+name+"/"+name, "in "+name)
		w.write("talk "+name, `["`+strings.Repeat("x", 3)+`"]`)
		run := strings.ReplaceAll(name, "\n", "") // an id has no control characters
		got := w.must(saveScript, "--thread", name, "--run", run, "--conversation", "talk "+name, "--artifacts=out;type=x", "ws "+name, "0")
		require.Equal(t, "checkpoint-"+run+"\n", got)
		require.Equal(t, want, w.artifacts("checkpoint-"+run))
		w.must(restoreScript, "--", name, "back "+name)
		w.must("diff", "-r", w.path("ws "+name), w.path("back "+name))
	}
	require.False(t, w.exists("[xy]"))
}

// TestSaveStopped interrupts a save: nothing is there, and the same run can be
// saved again.
func TestSaveStopped(t *testing.T) {
	eachWay(t, func(w *world) {
		data := make([]byte, 40<<20)
		_, _ = rand.Read(data)
		for _, name := range []string{"a", "b", "c", "d"} {
			data[0]++
			w.write("ws/"+name, name+string(data))
		}
		r := w.start(saveScript, "--thread", "task", "--run", "r", "ws", "0")
		w.until("the middle", func() bool { return w.exists("store/tmp/*") })
		require.NoError(w, r.Process.Signal(syscall.SIGTERM))
		got := r.end()
		require.Equal(w, 130, got.code, got.stderr)
		require.Empty(w, got.stdout)
		require.Empty(w, w.must("snapfs", "list", "--json"))
		require.Equal(w, "checkpoint-r\n", w.must(saveScript, "--thread", "task", "--run", "r", "ws", "0"))
	})
}
