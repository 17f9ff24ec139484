package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// reorder moves flags to where the flag library looks for them: the program's
// before the verb, the verb's right behind it, and arguments last, behind a "--".
// So flags may stand anywhere before a "--" of the user's own. A name takes a
// value or does not, whatever the verb: newApp's flags are made so.
func reorder(app *cli.App, args []string) []string {
	if len(args) == 0 {
		return args
	}
	global := names(app.Flags)
	values := takeValues(app.Flags)
	for _, cmd := range app.Commands {
		for name := range takeValues(cmd.Flags) {
			values[name] = true
		}
	}
	var before, after, rest []string
	verb := ""
	for i := 1; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--":
			rest = append(rest, args[i+1:]...)
			i = len(args)
		case len(arg) < 2 || arg[0] != '-':
			if verb == "" {
				verb = arg
			} else {
				rest = append(rest, arg)
			}
		default:
			name, _, given := strings.Cut(strings.TrimLeft(arg, "-"), "=")
			taken := []string{arg}
			if values[name] && !given && i+1 < len(args) {
				i++
				taken = append(taken, args[i])
			}
			if global[name] {
				before = append(before, taken...)
			} else {
				after = append(after, taken...)
			}
		}
	}
	out := append([]string{args[0]}, before...)
	if verb == "" {
		return append(append(out, after...), rest...)
	}
	out = append(append(out, verb), after...)
	if len(rest) > 0 {
		out = append(append(out, "--"), rest...)
	}
	return out
}

func names(flags []cli.Flag) map[string]bool {
	set := map[string]bool{}
	for _, f := range flags {
		for _, name := range f.Names() {
			set[name] = true
		}
	}
	return set
}

// takeValues returns the names of the flags that need a value.
func takeValues(flags []cli.Flag) map[string]bool {
	return names(slices.DeleteFunc(slices.Clone(flags), func(f cli.Flag) bool {
		_, isBool := f.(*cli.BoolFlag)
		return isBool
	}))
}
