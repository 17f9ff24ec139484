package main

import (
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/snapshot"
)

// leaseFlag names the caller's lease.
var leaseFlag = &cli.StringFlag{Name: "lease", Usage: "the `TOKEN` that snapfs lease acquire printed"}

// waitFlag is for verbs that need a thread for themselves.
var waitFlag = &cli.StringFlag{Name: "wait", Usage: "wait for `TIME`, like 90s or 2m, until the thread is free"}

var leaseCommand = &cli.Command{
	Name:  "lease",
	Usage: "be the single writer of a thread for a while",
	Subcommands: []*cli.Command{
		{
			Name:      "acquire",
			Usage:     "become a thread's single writer; prints the token to save with, the fence and when it expires",
			ArgsUsage: "THREAD",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "owner", Usage: "a `TEXT` for others who want the thread; the calling process and its user if not given"},
				&cli.StringFlag{Name: "ttl", Usage: "how long it lasts if it is not renewed, a `TIME` of 1s to 1h; 2m if not given"},
				waitFlag,
			},
			Action: acquireLease,
		},
		{
			Name:      "renew",
			Usage:     "have a lease last its whole time again",
			ArgsUsage: "THREAD",
			Flags:     []cli.Flag{leaseFlag},
			Action: withLease(func(c *cli.Context, store *snapshot.Store, thread, token string) error {
				l, err := store.RenewWriter(c.Context, thread, token)
				if err != nil {
					return err
				}
				return printLease(c, l)
			}),
		},
		{
			Name:      "release",
			Usage:     "end a lease",
			ArgsUsage: "THREAD",
			Flags:     []cli.Flag{leaseFlag},
			Action: withLease(func(c *cli.Context, store *snapshot.Store, thread, token string) error {
				return store.ReleaseWriter(c.Context, thread, token)
			}),
		},
		{
			Name:      "show",
			Usage:     "show who has a thread's lease",
			ArgsUsage: "THREAD",
			Action: func(c *cli.Context) error {
				if err := arguments(c, 1, 1); err != nil {
					return err
				}
				return withStore(false, showLease)(c)
			},
		},
	},
}

func acquireLease(c *cli.Context) error {
	if err := arguments(c, 1, 1); err != nil {
		return err
	}
	opt := snapshot.LeaseOptions{Owner: c.String("owner")}
	wait, err := durationFlag(c, waitFlag.Name)
	if err != nil {
		return err
	}
	if opt.TTL, err = durationFlag(c, "ttl"); err != nil {
		return err
	}
	if c.IsSet("ttl") && (opt.TTL < index.MinLease || opt.TTL > index.MaxLease) {
		return usagef("--ttl %s: want 1s to 1h", c.String("ttl"))
	}
	if opt.Owner == "" {
		opt.Owner = fmt.Sprintf("process %d of %s", os.Getppid(), newOwners(userName).name(uint32(os.Geteuid()))) // this one is about to end
	}
	return patiently(c, wait, true, func(c *cli.Context, store *snapshot.Store) error {
		l, err := store.AcquireWriter(c.Context, c.Args().First(), opt)
		if err != nil {
			return err
		}
		if err := printLease(c, l); err != nil { // nobody knows the token
			return errors.Join(err, store.ReleaseWriter(c.Context, l.Thread, l.Token))
		}
		return nil
	})
}

// withLease runs a verb on a lease of the caller's.
func withLease(fn func(c *cli.Context, store *snapshot.Store, thread, token string) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := arguments(c, 1, 1); err != nil {
			return err
		}
		if !c.IsSet(leaseFlag.Name) {
			return usagef("%s: --lease TOKEN is missing", verbName(c))
		}
		return withStore(false, func(c *cli.Context, store *snapshot.Store) error {
			return fn(c, store, c.Args().First(), c.String(leaseFlag.Name))
		})(c)
	}
}

// printLease prints what the owner of a lease needs.
func printLease(c *cli.Context, l snapshot.Lease) error {
	if c.Bool("json") {
		return printJSON(l)
	}
	_, err := fmt.Fprintf(stdout, "%s\t%d\t%s\n", l.Token, l.Fence, l.Expires.Format(time.RFC3339))
	return err
}

func showLease(c *cli.Context, store *snapshot.Store) error {
	l, err := store.Writer(c.Context, c.Args().First())
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(l)
	}
	tw := tabwriter.NewWriter(stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintf(tw, "thread\t%s\nowner\t%s\nfence\t%d\nexpires\t%s\n", quote(l.Thread), quoteOr(l.Owner), l.Fence, when(l.Expires))
	return tw.Flush()
}

// patiently runs a verb that needs a thread for itself, again and again while somebody
// else has the thread and the wait is not over. The store is given free in between: who
// has the thread may need it.
func patiently(c *cli.Context, wait time.Duration, create bool, fn func(c *cli.Context, store *snapshot.Store) error) error {
	return snapshot.Await(c.Context, wait, func() error { return withStore(create, fn)(c) })
}
