package main

import (
	"strings"

	"github.com/urfave/cli/v2"
)

var helpCommand = &cli.Command{
	Name:      "help",
	Usage:     "show the verbs, or how to use one",
	ArgsUsage: "[VERB [VERB]]",
	Action: func(c *cli.Context) error {
		if err := arguments(c, 0, 2); err != nil {
			return err
		}
		var verb *cli.Command
		known := c.App.Commands
		for _, name := range c.Args().Slice() {
			if verb = named(known, name); verb == nil {
				return usagef("unknown verb %q", strings.Join(c.Args().Slice(), " "))
			}
			known = verb.Subcommands
		}
		if verb == nil {
			return cli.ShowAppHelp(c)
		}
		return c.App.RunContext(c.Context, append(append([]string{program}, c.Args().Slice()...), "--help"))
	},
}

// named finds a verb.
func named(verbs []*cli.Command, name string) *cli.Command {
	for _, v := range verbs {
		if v.HasName(name) {
			return v
		}
	}
	return nil
}

// plainText is the flag library's own text of a flag.
var plainText = cli.FlagStringer

// flagText says nothing of the default of a switch: it is off.
func flagText(f cli.Flag) string { return strings.Replace(plainText(f), " (default: false)", "", 1) }
