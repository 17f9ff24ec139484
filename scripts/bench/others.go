package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// restic measures a mount of restic's, if it is installed.
func (b *bench) restic(tree string) error {
	if _, err := exec.LookPath("restic"); err != nil {
		say("no restic")
		return nil
	}
	repo, at := filepath.Join(b.dir, "restic"), filepath.Join(b.dir, "restic-mount")
	env := append(os.Environ(), "RESTIC_REPOSITORY="+repo, "RESTIC_PASSWORD=x", "RESTIC_CACHE_DIR="+filepath.Join(b.dir, "restic-cache"))
	for _, args := range [][]string{{"init"}, {"backup", tree}, {"backup", "--force", tree}} {
		if err := quietly(env, "restic", args...); err != nil {
			return err
		}
	}
	return b.other("restic", tree, at, env, []string{"restic", "mount", at}, filepath.Join(at, "ids"))
}

// borg measures a mount of borg's, if it is installed.
func (b *bench) borg(tree string) error {
	if _, err := exec.LookPath("borg"); err != nil {
		say("no borg")
		return nil
	}
	repo, at := filepath.Join(b.dir, "borg"), filepath.Join(b.dir, "borg-mount")
	env := append(os.Environ(), "BORG_REPO="+repo, "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes", "BORG_CACHE_DIR="+filepath.Join(b.dir, "borg-cache"), "BORG_CONFIG_DIR="+filepath.Join(b.dir, "borg-config"))
	for _, args := range [][]string{{"init", "--encryption=none"}, {"create", "::one", tree}, {"create", "::two", tree}} {
		if err := quietly(env, "borg", args...); err != nil {
			return err
		}
	}
	return b.other("borg", tree, at, env, []string{"borg", "mount", "--foreground", repo, at}, at)
}

// other measures two searches and a comparison on a mount that shows two snapshots
// of a tree below top.
func (b *bench) other(name, tree, at string, env, mount []string, top string) error {
	if err := os.Mkdir(at, 0o755); err != nil {
		return err
	}
	cmd := exec.Command(mount[0], mount[1:]...)
	cmd.Env = env
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		_ = exec.Command("umount", "-l", at).Run()
		_ = cmd.Process.Signal(syscall.SIGINT)
		_ = cmd.Wait()
	}()
	var snapshots []string
	for range 300 {
		if snapshots, _ = filepath.Glob(filepath.Join(top, "*", tree)); len(snapshots) >= 2 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if len(snapshots) < 2 {
		say("%s shows no snapshots: not measured", name)
		return nil
	}
	native, err := best(1, "grep", "-rI", needle, tree)
	if err != nil {
		return err
	}
	for _, pass := range []string{"first", "second"} {
		took, err := timed(1, "grep", "-rI", needle, snapshots[0])
		if err != nil {
			return err
		}
		b.add(row{tree: "node_modules", what: name + " mount: grep -r, " + pass + " pass", native: seconds(native), seen: seconds(took), ratio: fmt.Sprintf("%.2f", took.Seconds()/native.Seconds())})
	}
	took, err := timed(0, "diff", "-rq", snapshots[0], snapshots[1])
	if err != nil {
		return err
	}
	b.add(row{tree: "node_modules", what: name + " mount: diff -rq of two equal snapshots", seen: seconds(took)})
	return nil
}

// quietly runs a command and shows what it prints only if it fails.
func quietly(env []string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, args[0], err, out)
	}
	return nil
}
