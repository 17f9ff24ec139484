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
	verb, help := "", false
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
			if slices.Contains(cli.HelpFlag.Names(), name) {
				help = true
				continue
			}
			taken := []string{arg}
			if values[name] && !given {
				if i++; i == len(args) {
					return withoutValue(args[0], verb, arg, global[name])
				}
				taken = append(taken, args[i])
			}
			if global[name] {
				before = append(before, taken...)
			} else {
				after = append(after, taken...)
			}
		}
	}
	if help { // and nothing else, which the flag library would take for a topic
		return slices.DeleteFunc([]string{args[0], verb, "--help"}, func(s string) bool { return s == "" })
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

// withoutValue leaves nothing behind a last flag that lacks its value, so that
// the flag library does not take an argument for it.
func withoutValue(program, verb, flag string, global bool) []string {
	if global || verb == "" {
		return []string{program, flag}
	}
	return []string{program, verb, flag}
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
