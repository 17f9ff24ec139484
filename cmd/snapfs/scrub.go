package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/snapshot"
)

var scrubCommand = &cli.Command{
	Name:  "scrub",
	Usage: "find checkpoints that hold a secret which was declared too late, and delete them",
	Flags: []cli.Flag{
		redactEnvFlag,
		redactFileFlag,
		&cli.StringFlag{Name: "thread", Usage: "only the checkpoints and artifacts of `THREAD`"},
		&cli.BoolFlag{Name: "delete", Usage: "delete the checkpoints and artifacts of threads that hold one; then snapfs gc removes their bytes"},
	},
	Action: func(c *cli.Context) error {
		if err := arguments(c, 0, 0); err != nil {
			return err
		}
		env, files := c.StringSlice(redactEnvFlag.Name), c.StringSlice(redactFileFlag.Name)
		if len(env)+len(files) == 0 {
			return snapshot.WithHint(usage(errors.New("scrub: no secret is declared, so there is nothing to look for")), "--redact-file FILE has one a line, --redact-env VAR is a variable's value")
		}
		secrets, err := declare(c, env, files)
		if err != nil {
			return err
		}
		if secrets.Declared == nil {
			return snapshot.WithHint(usage(errors.New("scrub: what was declared has no value, so there is nothing to look for")), "look whether the file has the lines that it should have")
		}
		return withStore(false, func(c *cli.Context, store *snapshot.Store) error {
			s := scrub{c: c}
			ctx, done := watch(c, "objects")
			opt := snapshot.ScrubOptions{Thread: c.String("thread"), Delete: c.Bool("delete"), Fault: s.fault, Deleted: s.deleted}
			res, err := store.Scrub(ctx, secrets.Declared, opt, s.hit)
			done()
			return s.end(res, err)
		})(c)
	},
}

// scrub prints what a scrub finds and does.
type scrub struct{ c *cli.Context }

// hit prints one place.
func (s scrub) hit(h snapshot.ScrubHit) error {
	if s.c.Bool("json") {
		return printJSON(h)
	}
	subject := quote(h.Checkpoint)
	if h.Checkpoint == "" {
		subject = "thread " + quote(h.Thread)
	}
	place := h.In
	if path := h.Raw(); path != "" {
		place += " " + quote(path)
	}
	_, err := fmt.Fprintf(stdout, "%s\t%s\n", subject, place)
	return err
}

// fault says what could not be searched.
func (s scrub) fault(f snapshot.ScrubFault) error {
	subject := "checkpoint " + quote(f.Checkpoint)
	if f.Checkpoint == "" {
		subject = "thread " + quote(f.Thread)
	}
	warn("%s: %s cannot be searched: %s", subject, quote(f.What), printable(f.Err))
	return nil
}

// deleted says what is gone.
func (s scrub) deleted(h snapshot.ScrubHit) error {
	if h.Checkpoint != "" {
		summary(s.c, "deleted checkpoint %s of thread %s", quote(h.Checkpoint), quote(h.Thread))
	} else {
		summary(s.c, "removed artifact %s from thread %s", quote(h.Artifact), quote(h.Thread))
	}
	return nil
}

// end says what all comes to, and makes the exit code of it.
func (s scrub) end(res snapshot.ScrubResult, err error) error {
	if err == nil {
		summary(s.c, "searched %s, read %s: %s", plural(res.Checkpoints, "checkpoint", "checkpoints"), size(res.Bytes), plural(res.Hits, "place holds a secret", "places hold a secret"))
	}
	if res.Unlisted > 0 {
		warn("of %s not all places are listed: there are too many", plural(res.Unlisted, "checkpoint", "checkpoints"))
	}
	if res.Others > 0 {
		warn("%s of other threads have some of it, too: leave --thread away", plural(res.Others, "checkpoint", "checkpoints"))
	}
	for _, what := range res.Kept {
		warn("not deleted: %s", what)
	}
	if res.Deleted+res.Removed > 0 {
		what := plural(res.Deleted, "checkpoint", "checkpoints")
		if res.Removed > 0 {
			what += " and " + plural(res.Removed, "artifact", "artifacts") + " of threads"
		}
		summary(s.c, "deleted %s: snapfs gc removes their bytes", what)
	}
	if err != nil {
		return err
	}
	if res.Threads > 0 {
		warn("the id of %s is a secret, or has one in it", plural(res.Threads, "thread", "threads"))
		fmt.Fprintln(stderr, "hint: it goes only with the thread: snapfs delete --thread with the id that snapfs list shows, then snapfs gc --purge")
	}
	switch {
	case res.Faults > 0:
		return exit(exitCorrupt)
	case res.Hits > 0:
		return exit(exitTrouble)
	}
	return nil
}
