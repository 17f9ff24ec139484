package main

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/snapshot"
)

// runVerb is the verb whose arguments end in another program's.
const runVerb = "run"

// commandGiven is where the application keeps how many arguments stand behind a "--".
const commandGiven = "command given"

// The exit codes of a command that cannot be started, as of a shell.
const (
	exitNotExecutable = 126
	exitNoCommand     = 127
)

var runCommand = &cli.Command{
	Name:      runVerb,
	Usage:     "run a command in a thread's workspace, and save that as a checkpoint if the command succeeds",
	ArgsUsage: "WORKSPACE -- COMMAND...",
	Flags: slices.Concat([]cli.Flag{
		&cli.StringFlag{Name: "thread", Usage: "the `THREAD` to go on with", EnvVars: []string{"SNAPFS_THREAD"}},
		&cli.StringFlag{Name: "run", Usage: "the id of the `RUN`: the checkpoint's becomes checkpoint-RUN"},
		&cli.StringFlag{Name: "conversation", Usage: "keep the messages that COMMAND leaves in `FILE`, JSON, with it"},
		&cli.StringFlag{Name: "artifacts", Usage: "each file that COMMAND leaves in `DIR` becomes an artifact of the thread"},
	}, saveFlags, policyFlags),
	Action: func(c *cli.Context) error {
		n, _ := c.App.Metadata[commandGiven].(int)
		if c.NArg()-n != 1 || n == 0 {
			return snapshot.WithHint(usage(fmt.Errorf("run: want one WORKSPACE, then -- and COMMAND")), "snapfs run --thread T WORKSPACE -- COMMAND ARGUMENTS...")
		}
		if c.String("thread") == "" {
			return snapshot.WithHint(usage(errors.New("run: no thread is named")), "name one with --thread or SNAPFS_THREAD")
		}
		return runAndSave(c, c.Args().Slice()[1:])
	},
}

// runAndSave is the pair of a new sandbox: its files before the run, a checkpoint after it.
// The store is nobody's while the command runs.
func runAndSave(c *cli.Context, command []string) error {
	env := os.Environ() // with the variables that declare secrets
	opt, err := saveOptions(c)
	if err != nil {
		return err
	}
	opt.Run, opt.Automatic = c.String("run"), true
	workspace, err := filepath.Abs(opt.Workspace)
	if err != nil {
		return err
	}
	conversation := c.String("conversation")
	if conversation == "-" {
		return usagef("--conversation -: stdin is the command's")
	}
	opt.ArtifactsDir = c.String("artifacts")
	dir, err := storeDir(c)
	if err != nil {
		return err
	}
	wait, err := durationFlag(c, waitFlag.Name)
	if err != nil {
		return err
	}
	before, err := prepare(c, opt, wait)
	if err != nil {
		return err
	}
	if opt.ArtifactsDir != "" {
		if err := os.Mkdir(opt.ArtifactsDir, 0o777); err != nil && !errors.Is(err, iofs.ErrExist) {
			return fmt.Errorf("artifacts: %w", err)
		}
	}
	more, err := commandEnv(dir, opt.Thread, workspace)
	if err != nil {
		return err
	}
	info, err := os.Stat(workspace)
	if err == nil {
		err = unix.Access(workspace, unix.X_OK)
	}
	if err != nil {
		return fmt.Errorf("workspace %s: %w", quote(opt.Workspace), err)
	}
	ran, err := execute(c.Context, command, workspace, append(env, more...))
	if err != nil {
		return err
	}
	if ran != 0 {
		summary(c, "the command ended with exit code %d: nothing is saved", ran)
		return exit(ran)
	}
	ctx, stop := interruptible(context.WithoutCancel(c.Context))
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	c.Context = ctx
	if !given(c, waitFlag.Name) {
		wait = runWait
	}
	var res snapshot.SaveResult
	if after, serr := os.Stat(workspace); serr != nil || !os.SameFile(info, after) {
		err = errors.New("another directory, or none, is in the place of the one that it ran in")
	} else {
		res, err = saveRun(c, opt, conversation, before.Head, wait)
	}
	if err != nil {
		err = fmt.Errorf("the command succeeded, but what it made in %s is not saved: %w", quote(opt.Workspace), err)
		if snapshot.Hint(err) == "" {
			err = snapshot.WithHint(err, "nothing there was touched: when that is mended, snapfs save stores it")
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", errInterrupted, err)
		}
		return &codeError{code: exitTrouble, err: err}
	}
	err = printMadeTo(stderr, c, "checkpoint", res.Checkpoint.ID, res.Checkpoint)
	if err == nil && (incomplete(res) || len(before.Incomplete) > 0) {
		err = exit(exitIncomplete)
	}
	return err
}

// commandEnv are the variables that a command gets beside ours: which thread and store are
// its run's, and paths that are right where it is.
func commandEnv(store, thread, workspace string) ([]string, error) {
	env := []string{"SNAPFS_STORE=" + store, "SNAPFS_THREAD=" + thread, "PWD=" + workspace}
	for _, name := range []string{"SNAPFS_POLICY", configEnv} {
		if path := os.Getenv(name); path != "" {
			path, err := filepath.Abs(path)
			if err != nil {
				return nil, err
			}
			env = append(env, name+"="+path)
		}
	}
	return env, nil
}

// runWait is how long the save after a command waits for others who save into the thread,
// if nothing else is asked for: the command cannot be done again.
const runWait = time.Minute

// prepare gives a new workspace its files.
func prepare(c *cli.Context, opt snapshot.SaveOptions, wait time.Duration) (res snapshot.PrepareResult, err error) {
	err = patiently(c, wait, true, func(c *cli.Context, store *snapshot.Store) error {
		ctx, done := watch(c, "files")
		res, err = store.Prepare(ctx, opt)
		done()
		return err
	})
	if err != nil {
		return res, err
	}
	if res.Restored {
		summary(c, "restored %s, %s, %s of %s to %s", plural(res.Files, "file", "files"), plural(res.Dirs, "directory", "directories"),
			size(res.Bytes), quote(res.Head), quote(opt.Workspace))
		reportRedacted(stderr, res.Result)
		reportIncomplete(res.Incomplete)
	}
	return res, nil
}

// saveRun saves what the command left. head was the thread's newest checkpoint before.
func saveRun(c *cli.Context, opt snapshot.SaveOptions, conversation, head string, wait time.Duration) (res snapshot.SaveResult, err error) {
	if conversation != "" {
		messages, err := conversationFile(c.Context, conversation)
		if err != nil {
			return res, err
		}
		defer messages.Close()
		opt.Conversation = messages
	}
	err = patiently(c, wait, false, func(c *cli.Context, store *snapshot.Store) error { // it was there before
		res, err = saveWorkspace(c, store, opt)
		return err
	})
	switch parent := res.Checkpoint.Parent; {
	case err != nil || parent == head:
	case parent == "":
		warn("all checkpoints of thread %s were deleted during the run: this one is the first", quote(opt.Thread))
	default:
		warn("thread %s went on during the run, from %s to %s: that one's files are not in this checkpoint unless the run made them, too",
			quote(opt.Thread), quoteOr(head), quote(parent))
	}
	return res, err
}

// startError says what a command that cannot be started is to blame for.
func startError(command string, err error) error {
	err = fmt.Errorf("start %s: %w", quote(command), err)
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, iofs.ErrNotExist):
		return &codeError{code: exitNoCommand, err: snapshot.WithHint(err, "it is looked for in PATH; a path is relative to the workspace")}
	case errors.Is(err, iofs.ErrPermission):
		return &codeError{code: exitNotExecutable, err: snapshot.WithHint(err, "make it executable: chmod +x")}
	}
	return &codeError{code: exitNotExecutable, err: err}
}
