// Command bench measures what a mount costs beside the disk that the store lies on,
// each time both in the same run, and prints one Markdown table. It needs root (or
// fusermount3), a Go tree and some gigabytes of room in -dir.
//
//	go run ./scripts/bench [-dir DIR] [-quick]
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

func main() {
	dir := flag.String("dir", os.TempDir(), "where the trees and the stores are made")
	quick := flag.Bool("quick", false, "small trees, to see that it works")
	others := flag.Bool("others", true, "measure restic and borg too, where they are installed")
	flag.Parse()
	if err := run(*dir, *quick, *others); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is one run.
type bench struct {
	dir     string // of its own
	program string
	rows    []row
}

// row is one line of the table.
type row struct{ tree, what, reach, native, seen, ratio, requests string }

func run(parent string, quick, others bool) (err error) {
	dir, err := os.MkdirTemp(parent, "snapfs-bench-")
	if err != nil {
		return err
	}
	b := &bench{dir: dir, program: filepath.Join(dir, "snapfs")}
	defer func() {
		_ = b.umount()
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	if out, err := exec.Command("go", "build", "-o", b.program, "./cmd/snapfs").CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w: %s", err, out)
	}
	files, large := 80_000, int64(1<<30)
	if quick {
		files, large = 3000, 64<<20
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	say("making a tree of %d files", files)
	modules := filepath.Join(dir, "modules")
	if err := makeModules(modules, files); err != nil {
		return err
	}
	standard := strings.TrimSpace(string(goroot))
	if quick {
		standard = filepath.Join(standard, "src", "net")
	}
	if err := errors.Join(b.tree("GOROOT", standard), b.tree("node_modules", modules)); err != nil {
		return err
	}
	if others {
		for _, tool := range []func(string) error{b.restic, b.borg} {
			if err := tool(modules); err != nil {
				return err
			}
		}
	}
	if err := b.large(large); err != nil {
		return err
	}
	b.print()
	return nil
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// snapfs runs the program and returns what it prints.
func (b *bench) snapfs(args ...string) (string, error) {
	cmd := exec.Command(b.program, append([]string{"--store", filepath.Join(b.dir, "store"), "--quiet"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("snapfs %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

func (b *bench) at() string { return filepath.Join(b.dir, "m") }

// mount mounts anew, so that nothing is known.
func (b *bench) mount() error {
	_ = b.umount()
	if err := os.MkdirAll(b.at(), 0o755); err != nil {
		return err
	}
	_, err := b.snapfs("mount", b.at())
	return err
}

func (b *bench) umount() error {
	cmd := exec.Command(b.program, "--store", filepath.Join(b.dir, "store"), "umount", b.at())
	return cmd.Run()
}

// requests counts what the kernel asked since the mount began.
func (b *bench) requests() (map[string]int, error) {
	out, err := b.snapfs("stats", "--json")
	if err != nil {
		return nil, err
	}
	var stats struct {
		Fuse struct {
			Requests map[string]int `json:"requests"`
		} `json:"fuse"`
	}
	return stats.Fuse.Requests, json.Unmarshal([]byte(out), &stats)
}

// timed runs a command and returns how long it took. code is how it has to end.
func timed(code int, name string, args ...string) (time.Duration, error) {
	cmd := exec.Command(name, args...)
	start := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(start)
	var exit *exec.ExitError
	got := 0
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		return 0, err
	}
	if got != code {
		return 0, fmt.Errorf("%s %s ended with %d: %.300s", name, strings.Join(args, " "), got, out)
	}
	return took, nil
}

// best is the shortest of three.
func best(code int, name string, args ...string) (time.Duration, error) {
	least := time.Duration(0)
	for range 3 {
		took, err := timed(code, name, args...)
		if err != nil {
			return 0, err
		}
		if least == 0 || took < least {
			least = took
		}
	}
	return least, nil
}

// step is a command on the mount beside the same one on the disk.
type step struct {
	what, reach string
	code        int
	native      time.Duration
	command     []string
	repeat      bool  // the best of three; else the first time counts
	bytes       int64 // that are read, if the speed is of interest
}

// measure runs a step and notes what the kernel asked for.
func (b *bench) measure(tree string, s step) error {
	before, err := b.requests()
	if err != nil {
		return err
	}
	run := timed
	if s.repeat {
		run = best
	}
	took, err := run(s.code, s.command[0], s.command[1:]...)
	if err != nil {
		return err
	}
	after, err := b.requests()
	if err != nil {
		return err
	}
	var asked []string
	for _, op := range []string{"LOOKUP", "READDIRPLUS", "READ", "STORE"} {
		if n := after[op] - before[op]; n > 0 {
			asked = append(asked, fmt.Sprintf("%d %s", n, op))
		}
	}
	r := row{tree: tree, what: s.what, reach: s.reach, seen: seconds(took), requests: strings.Join(asked, ", ")}
	if s.native > 0 {
		r.native, r.ratio = seconds(s.native), fmt.Sprintf("%.2f", took.Seconds()/s.native.Seconds())
	}
	if s.bytes > 0 {
		r.seen += fmt.Sprintf(" (%.2f GB/s)", float64(s.bytes)/1e9/took.Seconds())
	}
	b.add(r)
	return nil
}

func (b *bench) add(r row) {
	b.rows = append(b.rows, r)
	say("%s: %s: %s, native %s, ratio %s; %s", r.tree, r.what, r.seen, r.native, r.ratio, r.requests)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f s", d.Seconds()) }

// needle is in no file, so grep ends with 1.
const needle = "zzqqxxzz"

// tree measures walks, searches and comparisons.
func (b *bench) tree(name, tree string) error {
	say("%s: %s", name, tree)
	find := []string{"-type", "f", "-size", "+1000000k"}
	walk, err := best(0, "find", append([]string{tree}, find...)...)
	if err != nil {
		return err
	}
	search, err := best(1, "grep", "-rI", needle, tree)
	if err != nil {
		return err
	}
	a, err := b.snapfs("save", "--thread", name, "--no-default-excludes", tree)
	if err != nil {
		return err
	}
	fork, err := b.snapfs("fork", a, name+"-fork")
	if err != nil {
		return err
	}
	files := func(thread, cp string) string { return filepath.Join(b.at(), "threads", thread, cp, "files") }
	A, F := files(name, a), files(name+"-fork", fork)
	if err := b.mount(); err != nil {
		return err
	}
	steps := []step{
		{what: "find, first pass", reach: "5 x", native: walk, command: append([]string{"find", A}, find...)},
		{what: "find, second pass", reach: "1.15 x", native: walk, command: append([]string{"find", A}, find...), repeat: true},
		{what: "grep -r, first pass", reach: "4 x", code: 1, native: search, command: []string{"grep", "-rI", needle, A}},
		{what: "grep -r, second pass", reach: "1.15 x", code: 1, native: search, command: []string{"grep", "-rI", needle, A}, repeat: true},
		{what: "grep -r of a fork", reach: "2 x", code: 1, native: search, command: []string{"grep", "-rI", needle, F}},
	}
	for _, s := range steps {
		if err := b.measure(name, s); err != nil {
			return err
		}
	}
	changed, err := b.changed(name, tree)
	if err != nil {
		return err
	}
	if err := b.mount(); err != nil {
		return err
	}
	C := files(name+"-changed", changed)
	if err := b.measure(name, step{what: "diff -rq, one file changed, nothing read before", reach: "50 ms, < 20 READ", code: 1, command: []string{"diff", "-rq", A, C}}); err != nil {
		return err
	}
	took, err := best(1, b.program, "--store", filepath.Join(b.dir, "store"), "diff", a, changed)
	if err != nil {
		return err
	}
	b.add(row{tree: name, what: "snapfs diff of the same", reach: "20 ms", seen: seconds(took)})
	return b.umount()
}

// changed saves a copy of the tree with one file changed and returns the
// checkpoint.
func (b *bench) changed(name, tree string) (string, error) {
	work := filepath.Join(b.dir, "changed-"+name)
	defer os.RemoveAll(work)
	if _, err := timed(0, "cp", "-a", tree, work); err != nil {
		return "", err
	}
	var victim string
	n := 0
	err := filepath.WalkDir(work, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if n++; n == 777 || victim == "" {
				victim = path
			}
		}
		return err
	})
	if err != nil {
		return "", err
	}
	f, err := os.OpenFile(victim, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	_, err = f.WriteString("changed\n")
	if err := errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	return b.snapfs("save", "--thread", name+"-changed", "--no-default-excludes", work)
}

// large measures the first and the second read of long files.
func (b *bench) large(size int64) error {
	for _, kind := range []string{"incompressible", "compressible"} {
		dir := filepath.Join(b.dir, kind)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		path := filepath.Join(dir, "file")
		if err := makeLarge(path, size, kind == "compressible"); err != nil {
			return err
		}
		native, err := best(0, "dd", "if="+path, "of=/dev/null", "bs=1M")
		if err != nil {
			return err
		}
		cp, err := b.snapfs("save", "--thread", kind, dir)
		if err != nil {
			return err
		}
		if err := b.mount(); err != nil {
			return err
		}
		on := filepath.Join(b.at(), "threads", kind, cp, "files", "file")
		reach := map[string]string{"incompressible": "2 GB/s", "compressible": "1 GB/s"}[kind]
		for _, s := range []step{{what: "first read", reach: reach}, {what: "second read", reach: "0.5 x the speed", native: native, repeat: true}} {
			s.command = []string{"dd", "if=" + on, "of=/dev/null", "bs=1M"}
			s.bytes = size
			if err := b.measure(fmt.Sprintf("%d MiB, %s", size>>20, kind), s); err != nil {
				return err
			}
		}
	}
	return b.umount()
}

// print prints the table.
func (b *bench) print() {
	kernel, _ := exec.Command("uname", "-r").Output()
	fmt.Printf("%s, %d processors, Linux %s, %s\n\n", time.Now().Format("2006-01-02"), runtime.NumCPU(), strings.TrimSpace(string(kernel)), runtime.Version())
	fmt.Println("| tree | what | reach | native | seen | ratio | requests |\n|---|---|---|---|---|---|---|")
	for _, r := range b.rows {
		fmt.Printf("| %s | %s | %s | %s | %s | %s | %s |\n", r.tree, r.what, r.reach, r.native, r.seen, r.ratio, r.requests)
	}
}
