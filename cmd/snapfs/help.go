package main

import (
	"strings"

	"github.com/urfave/cli/v2"
)

var helpCommand = &cli.Command{
	Name:      "help",
	Usage:     "show the verbs, or how to use one",
	ArgsUsage: "[VERB]",
	Action: func(c *cli.Context) error {
		if err := arguments(c, 0, 1); err != nil {
			return err
		}
		verb := c.Args().First()
		if verb == "" {
			return cli.ShowAppHelp(c)
		}
		if c.App.Command(verb) == nil {
			return usagef("unknown verb %q", verb)
		}
		return cli.ShowCommandHelp(c, verb)
	},
}

// plainText is the flag library's own text of a flag.
var plainText = cli.FlagStringer

// flagText says nothing of the default of a switch: it is off.
func flagText(f cli.Flag) string { return strings.Replace(plainText(f), " (default: false)", "", 1) }
