package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/snapshot"
)

var importCommand = &cli.Command{
	Name:      "import",
	Usage:     "save an archive as a checkpoint and print its id",
	ArgsUsage: "FILE|-",
	Flags: []cli.Flag{
		&cli.StringFlag{Name: "thread", Usage: "the `THREAD` to save to", EnvVars: []string{"SNAPFS_THREAD"}},
		&cli.StringFlag{Name: "name", Usage: "a `NAME` for it, unique in the thread"},
		&cli.StringFlag{Name: "id", Usage: "the checkpoint's `ID`; made from the time if not given"},
		&cli.StringFlag{Name: "message", Usage: "a `TEXT` about it, instead of the archive's"},
		&cli.StringSliceFlag{KeepSpace: true, Name: "label", Usage: "a `KEY=VALUE` to find it by, besides the archive's (may be repeated)"},
		&cli.StringFlag{Name: "max-size", Usage: "fail if all contents together are longer than `SIZE`"},
		&cli.StringFlag{Name: "compression", Value: "auto", Usage: "`HOW` to compress: auto or off", EnvVars: []string{"SNAPFS_COMPRESSION"}},
		leaseFlag,
		waitFlag,
	},
	Action: importArchive,
}

func importArchive(c *cli.Context) error {
	if err := arguments(c, 1, 1); err != nil {
		return err
	}
	opt, err := importOptions(c)
	if err != nil {
		return err
	}
	wait, err := durationFlag(c, waitFlag.Name)
	if err != nil {
		return err
	}
	in, err := openInput(c.Context, c.Args().First())
	if err != nil {
		return err
	}
	defer in.Close()
	// Whoever writes to a pipe may need the store for it, and has begun once there is
	// something. An export into it cannot end, and give the store free, before that has been
	// read.
	in.fill()
	if c.Context.Err() != nil {
		return context.Cause(c.Context)
	}
	ctx, cancel := context.WithCancelCause(c.Context)
	defer cancel(nil)
	c.Context = ctx
	if in.pipe {
		c.App.Metadata[whenWaiting] = func(held *snapshot.LockedError) {
			if held.Verb == exportCommand.Name {
				cancel(snapshot.WithHint(errors.New("it may be what writes to the pipe, and would wait for this, too"), "export to a file and import that; or run a daemon (snapfs mount), through which both can work"))
			}
		}
	}
	var failed error // after something was read, which cannot be read again
	err = patiently(c, wait, true, func(c *cli.Context, store *snapshot.Store) error {
		err := importFrom(c, store, in, opt)
		if err != nil && in.begun {
			failed, err = err, nil
		}
		return err
	})
	return errors.Join(err, failed)
}

// importOptions reads the flags.
func importOptions(c *cli.Context) (opt snapshot.ImportOptions, err error) {
	opt = snapshot.ImportOptions{
		Thread: c.String("thread"), ID: c.String("id"), Name: c.String("name"),
		Message: c.String("message"), Lease: c.String(leaseFlag.Name),
	}
	if opt.Thread == "" {
		return opt, usagef("import: --thread THREAD is missing")
	}
	if opt.Labels, err = labels(c); err != nil {
		return opt, err
	}
	if opt.MaxSize, err = parseBytes(c.String("max-size")); err != nil {
		return opt, usagef("--max-size %w", err)
	}
	if opt.Compression, err = local.ParseCompression(c.String("compression")); err != nil {
		return opt, usagef("--compression: %v", err)
	}
	return opt, nil
}

// importFrom imports, and tells on stderr what there is to know about it.
func importFrom(c *cli.Context, store *snapshot.Store, in io.Reader, opt snapshot.ImportOptions) error {
	ctx, done := watch(c, "files")
	res, err := store.Import(ctx, in, opt)
	done()
	if err != nil {
		return err
	}
	cp := res.Checkpoint
	summary(c, "imported %s, %s, %s (%s new) to thread %s", plural(cp.Files, "file", "files"), plural(cp.Dirs, "directory", "directories"),
		size(cp.Bytes), size(cp.NewBytes), quote(cp.Thread))
	var left []string
	if some := leftOut(snapshot.SaveResult{Special: res.Special, Setuid: res.Setuid}); some != "" {
		left = append(left, some)
	}
	if res.Attributes > 0 {
		left = append(left, plural(res.Attributes, "attribute that cannot be", "attributes that cannot be"))
	}
	if len(left) > 0 {
		summary(c, "left out: %s; snapfs show %s lists them", strings.Join(left, ", "), quote(cp.ID))
	}
	if cp.Files == 0 && cp.Dirs == 0 {
		warn("the checkpoint is empty")
	}
	return printMade(c, "checkpoint", cp.ID, cp)
}

// input is a file or stdin, of which a read ends when the program is interrupted,
// however long the other end of a pipe takes.
type input struct {
	ctx   context.Context
	file  *os.File
	pipe  bool
	begun bool // the import has asked for something
	asked chan []byte
	got   chan inputRead
	buf   []byte
	ready []byte
	err   error
}

// inputRead is the result of one read.
type inputRead struct {
	n   int
	err error
}

// openInput opens a file, or stdin for "-".
func openInput(ctx context.Context, name string) (*input, error) {
	file, err := await(ctx, func() (*os.File, error) {
		if name == "-" {
			return os.Stdin, nil
		}
		f, err := os.Open(name)
		if err != nil {
			return nil, absent(fmt.Errorf("archive: %w", err))
		}
		if info, err := f.Stat(); err == nil && info.IsDir() {
			f.Close()
			return nil, snapshot.WithHint(usage(fmt.Errorf("archive %s is a directory", quote(name))), "snapfs save saves a directory")
		}
		return f, nil
	})
	if err != nil {
		return nil, err
	}
	if isTerminal(file) {
		return nil, snapshot.WithHint(usagef("import: a terminal gives no archive"), "snapfs import --thread THREAD FILE, or pipe it to -")
	}
	in := &input{ctx: ctx, file: file, asked: make(chan []byte, 1), got: make(chan inputRead, 1), buf: make([]byte, 256<<10)}
	if info, err := file.Stat(); err == nil {
		in.pipe = info.Mode()&os.ModeNamedPipe != 0
	}
	go func() {
		for buf := range in.asked {
			n, err := file.Read(buf)
			in.got <- inputRead{n, err}
		}
		file.Close()
	}()
	return in, nil
}

// Read implements [io.Reader].
func (in *input) Read(b []byte) (int, error) {
	in.begun = true
	in.fill()
	n := copy(b, in.ready)
	if in.ready = in.ready[n:]; len(in.ready) == 0 {
		return n, in.err
	}
	return n, nil
}

// fill waits until there is something to read.
func (in *input) fill() {
	if len(in.ready) > 0 || in.err != nil {
		return
	}
	in.asked <- in.buf
	select {
	case r := <-in.got:
		in.ready, in.err = in.buf[:r.n], r.err
	case <-in.ctx.Done():
		in.err = context.Cause(in.ctx)
	}
}

// Close gives the file up, which is closed once nobody reads it.
func (in *input) Close() { close(in.asked) }
