package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tool is another program that keeps versions of a tree, with a repository of its own.
type tool struct {
	b        *bench
	name     string
	reach    string // how many times longer than snapfs's its first save has to take
	tree     string
	repo     string
	saves    int // that it made
	env      []string
	save     [][]string
	restores func(target string) []string
	mount    func(at string) (command []string, top string) // nil without one
}

// tools are those that are installed, each with an empty repository.
func (b *bench) tools(t *tree) ([]*tool, error) {
	if t.tools != nil || !b.others {
		return t.tools, nil
	}
	t.tools = []*tool{}
	for _, kind := range []func(*bench, *tree) (*tool, [][]string){git, restic, borg} {
		o, create := kind(b, t)
		if _, err := exec.LookPath(o.name); err != nil {
			say("no %s", o.name)
			continue
		}
		for _, args := range create {
			if _, err := timed(0, o.command(b.dir, args)); err != nil {
				return nil, err
			}
		}
		t.tools = append(t.tools, o)
	}
	return t.tools, nil
}

func newTool(b *bench, t *tree, name, reach string) *tool {
	return &tool{b: b, name: name, reach: reach, tree: t.dir, repo: filepath.Join(b.dir, name+"-"+t.name)}
}

// git is a shadow repository: it lies elsewhere, and the tree does not know of it.
func git(b *bench, t *tree) (o *tool, create [][]string) {
	o = newTool(b, t, "git", "> 10 x")
	o.env = []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"}
	on := func(tree string, args ...string) []string {
		return append([]string{
			"git", "--git-dir", o.repo, "--work-tree", tree, "-c", "user.name=bench", "-c", "user.email=bench@localhost",
			"-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "core.hooksPath=/dev/null",
		}, args...)
	}
	o.save = [][]string{on(t.dir, "add", "-A", "-f", "."), on(t.dir, "commit", "--quiet", "--allow-empty", "-m", "all")}
	o.restores = func(target string) []string {
		// an index of its own: the other one says that all is there
		return append([]string{"env", "GIT_INDEX_FILE=" + target + ".index"}, on(target, "checkout", "-f", "HEAD", "--", ".")...)
	}
	return o, [][]string{{"git", "init", "--quiet", "--bare", "--template=", o.repo}}
}

func restic(b *bench, t *tree) (o *tool, create [][]string) {
	o = newTool(b, t, "restic", "> 4 x")
	o.env = []string{"RESTIC_REPOSITORY=" + o.repo, "RESTIC_PASSWORD=x", "RESTIC_CACHE_DIR=" + o.repo + "-cache"}
	o.save = [][]string{{"restic", "backup", t.dir}}
	o.restores = func(target string) []string { return []string{"restic", "restore", "latest", "--target", target} }
	o.mount = func(at string) ([]string, string) { return []string{"restic", "mount", at}, filepath.Join(at, "ids") }
	return o, [][]string{{"restic", "init"}}
}

func borg(b *bench, t *tree) (o *tool, create [][]string) {
	o = newTool(b, t, "borg", "> 4 x")
	o.env = []string{
		"BORG_REPO=" + o.repo, "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes",
		"BORG_CACHE_DIR=" + o.repo + "-cache", "BORG_CONFIG_DIR=" + o.repo + "-config",
	}
	o.save = [][]string{{"borg", "create", "::{uuid4}", t.dir}}
	o.restores = func(string) []string {
		return []string{"sh", "-c", `borg extract "::$(borg list --last 1 --short)"`}
	}
	o.mount = func(at string) ([]string, string) { return []string{"borg", "mount", "--foreground", o.repo, at}, at }
	return o, [][]string{{"borg", "init", "--encryption=none"}}
}

func (o *tool) command(dir string, args []string) *exec.Cmd {
	cmd := o.b.command(args[0], args[1:]...)
	cmd.Env = append(cmd.Env, o.env...)
	cmd.Dir = dir
	return cmd
}

// backup saves the tree once more.
func (o *tool) backup() (time.Duration, error) {
	unix.Sync()
	sum := time.Duration(0)
	for _, args := range o.save {
		took, err := timed(0, o.command(o.tree, args))
		if err != nil {
			return 0, err
		}
		sum += took
	}
	o.saves++
	return sum, nil
}

// has makes the repository hold n versions of the tree at least.
func (o *tool) has(n int) error {
	for o.saves < n {
		if _, err := o.backup(); err != nil {
			return err
		}
	}
	return nil
}

// restore is the time of a restore into target, which is empty, and of the sync.
func (o *tool) restore(target string) (time.Duration, error) {
	unix.Sync()
	return synced(target, o.command(target, o.restores(target)))
}

// mounted measures two searches and a comparison on a mount of two equal versions.
func (o *tool) mounted(name string, native time.Duration) error {
	if o.mount == nil {
		return nil
	}
	if err := o.has(2); err != nil {
		return err
	}
	at := o.repo + "-mount"
	if err := os.Mkdir(at, 0o755); err != nil {
		return err
	}
	args, top := o.mount(at)
	cmd := o.command(o.b.dir, args)
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() {
		// borg and restic end when their mount is gone
		_ = exec.Command("umount", "-l", at).Run()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
	}()
	var versions []string
	for range 300 {
		if versions, _ = filepath.Glob(filepath.Join(top, "*", o.tree)); len(versions) >= 2 || o.b.ctx.Err() != nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if len(versions) < 2 {
		// borg needs a library for it
		say("%s shows nothing: not measured", strings.Join(args, " "))
		return nil
	}
	for _, pass := range []string{"first", "second"} {
		took, err := timed(1, o.b.command("grep", "-rI", needle, versions[0]))
		if err != nil {
			return err
		}
		o.b.compare(name, o.name+" mount: grep -r, "+pass+" pass", "", native, took)
	}
	took, err := timed(0, o.b.command("diff", "-rq", versions[0], versions[1]))
	if err != nil {
		return err
	}
	o.b.add(row{tree: name, what: o.name + " mount: diff -rq of two equal snapshots", seen: seconds(took)})
	return nil
}
