// Command bench measures snapfs beside what the system does without it (tar, find,
// grep, cp, the disk that the store lies on) and beside git, restic and borg, each
// pair in the same run, and prints one Markdown table. It needs root (or fusermount3),
// Go's own tree, and 15 GB of room in -dir.
//
//	go run ./scripts/bench [-dir DIR] [-quick] [-others=false] [-only REGEXP]
//
// ext4 is slow to hand out inode numbers that were freed in the last minutes: leave
// five of them between a run and the next.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	dir := flag.String("dir", os.TempDir(), "where the trees and the stores are made")
	quick := flag.Bool("quick", false, "small trees, to see that it works")
	others := flag.Bool("others", true, "measure git, restic and borg too, where they are installed")
	only := flag.String("only", "", "run only the groups whose name matches this regular `expression`: "+strings.Join(names(), ", "))
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, *dir, *quick, *others, *only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// group is a set of rows that can be measured by itself.
type group struct {
	name string
	run  func(*bench) error
}

// groups are in an order that matters: save has to be the first to use the
// repositories of the other tools, and restore leaves the most on the disk.
var groups = []group{
	{"save", (*bench).saves},
	{"memory", (*bench).memory},
	{"mount", (*bench).mounts},
	{"large", (*bench).larges},
	{"store", (*bench).sizes},
	{"checkpoints", (*bench).checkpoints},
	{"restore", (*bench).restores},
}

func names() (all []string) {
	for _, g := range groups {
		all = append(all, g.name)
	}
	return all
}

// bench is one run.
type bench struct {
	ctx     context.Context
	dir     string // of its own
	shm     string // another, on a tmpfs; empty without one
	program string
	goroot  string
	quick   bool
	others  bool
	made    []*tree
	stores  []*store
	rows    []row
}

// row is one line of the table.
type row struct{ tree, what, reach, native, seen, ratio, requests string }

func run(ctx context.Context, parent string, quick, others bool, only string) (err error) {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	parent, err = filepath.Abs(parent)
	if err != nil {
		return err
	}
	b := &bench{ctx: ctx, quick: quick, others: others}
	defer func() { err = errors.Join(err, b.clean()) }()
	if b.dir, err = os.MkdirTemp(parent, "snapfs-bench-"); err != nil {
		return err
	}
	if b.shm, err = tmpfs("/dev/shm", pick[int64](quick, 256<<20, 4<<30)); err != nil {
		return err
	}
	b.program = filepath.Join(b.dir, "snapfs")
	if _, err := timed(0, b.command("go", "build", "-o", b.program, "./cmd/snapfs")); err != nil {
		return err
	}
	goroot, err := b.command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	if b.goroot, err = filepath.EvalSymlinks(strings.TrimSpace(string(goroot))); err != nil {
		return err
	}
	some := false
	for _, g := range groups {
		if !wanted.MatchString(g.name) {
			continue
		}
		some = true
		if err := g.run(b); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	if !some {
		return fmt.Errorf("no group matches %q: there are %s", only, strings.Join(names(), ", "))
	}
	b.print()
	return nil
}

// tmpfs makes a directory in parent if that is a tmpfs with so much room.
func tmpfs(parent string, room int64) (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(parent, &st); err != nil || st.Type != unix.TMPFS_MAGIC || int64(st.Bavail)*st.Bsize < room {
		say("no tmpfs with %d MiB of room at %s: what needs one is left out", room>>20, parent)
		return "", nil
	}
	return os.MkdirTemp(parent, "snapfs-bench-")
}

// clean takes away all that the run made.
func (b *bench) clean() error {
	for _, s := range b.stores {
		if err := s.umount(); err != nil {
			say("%v", err)
			_ = exec.Command("umount", "-l", s.at).Run()
		}
	}
	var errs []error
	for _, dir := range []string{b.dir, b.shm} {
		if dir != "" {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// pick is the first of two values if quick, else the second.
func pick[T any](quick bool, small, full T) T {
	if quick {
		return small
	}
	return full
}

func (b *bench) add(r row) {
	b.rows = append(b.rows, r)
	say("%s: %s: %s, native %s, ratio %s; %s", r.tree, r.what, r.seen, r.native, r.ratio, r.requests)
}

// compare adds a row for what took so long beside something else.
func (b *bench) compare(tree, what, reach string, native, seen time.Duration) {
	b.add(row{tree: tree, what: what, reach: reach, native: seconds(native), seen: seconds(seen), ratio: ratio(seen, native)})
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

func ratio(seen, native time.Duration) string {
	return fmt.Sprintf("%.2f", seen.Seconds()/native.Seconds())
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f s", d.Seconds()) }

// size is a number of bytes to read.
func size(n int64) string {
	switch {
	case n < 10_000:
		return fmt.Sprintf("%d B", n)
	case n < 1_000_000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	case n < 1_000_000_000:
		return fmt.Sprintf("%.2f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.2f GB", float64(n)/1e9)
}

// speed is a time with the bytes that it was for.
func speed(n int64, took time.Duration) string {
	return fmt.Sprintf("%s (%.2f GB/s)", seconds(took), float64(n)/1e9/took.Seconds())
}
