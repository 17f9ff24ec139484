package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/snapshot"
)

// A commandLine is what stands on the command line, sorted. Flags may stand
// anywhere before a "--" of the user's own, the program's too. Whether a name takes a
// value is the verb's to say; before the verb, where verbs differ, see takesValue.
type commandLine struct {
	program string
	before  []string // the program's flags with their values
	verbs   []string // the verb, and the verb below it where there are such
	after   []string // the verb's flags with their values
	rest    []string // arguments
	command int      // how many of them, the last ones, stand behind a "--"
	given   map[string]bool
	help    bool     // somebody asks how to use it
	lacking string   // a last flag that lacks its value
	emptied []string // flags and arguments that are there and empty
	global  bool     // and it is one of the program's
}

// parseArgs sorts the program's arguments; the first is its own name.
func parseArgs(app *cli.App, args []string) commandLine {
	line := commandLine{given: map[string]bool{}}
	if len(args) == 0 {
		return line
	}
	line.program = args[0]
	global := names(app.Flags)
	for i := 1; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--":
			line.rest = append(line.rest, args[i+1:]...)
			line.command = len(args) - i - 1
			return line
		case len(arg) < 2 || arg[0] != '-':
			line.argument(app, arg)
		default:
			name, value, given := strings.Cut(strings.TrimLeft(arg, "-"), "=")
			if slices.Contains(cli.HelpFlag.Names(), name) {
				line.help = true
				continue
			}
			taken := []string{arg}
			valued := line.takesValue(app, name, args[i+1:])
			if valued && !given {
				if i++; i == len(args) {
					line.lacking, line.global = arg, global[name]
					return line
				}
				value = args[i]
				taken = append(taken, value)
			}
			if valued && value == "" {
				line.emptied = append(line.emptied, "--"+name)
			}
			line.given[name] = true
			if global[name] {
				line.before = append(line.before, taken...)
			} else {
				line.after = append(line.after, taken...)
			}
		}
	}
	return line
}

// takesValue reports whether a flag takes a value. Of one that stands before its verb, and
// that some verbs give a value and others not, what follows decides: a verb for which it
// is a switch is no value.
func (l *commandLine) takesValue(app *cli.App, name string, next []string) bool {
	if takeValues(app.Flags)[name] {
		return true
	}
	valued, plain := false, false
	eachVerb(app.Commands, func(cmd *cli.Command) {
		if names(cmd.Flags)[name] {
			takes := takeValues(cmd.Flags)[name]
			valued, plain = valued || takes, plain || !takes
		}
	})
	if !valued || !plain {
		return valued
	}
	isSwitch := func(cmd *cli.Command) bool {
		return cmd != nil && names(cmd.Flags)[name] && !takeValues(cmd.Flags)[name]
	}
	if len(l.verbs) > 0 {
		return !isSwitch(app.Command(l.verbs[0]))
	}
	return len(next) == 0 || !isSwitch(app.Command(next[0]))
}

// argument takes the verb, a verb below it, or an argument of theirs.
func (l *commandLine) argument(app *cli.App, arg string) {
	switch len(l.verbs) {
	case 0:
		l.verbs = append(l.verbs, arg)
		return
	case 1:
		if cmd := app.Command(l.verbs[0]); cmd != nil && len(cmd.Subcommands) > 0 {
			l.verbs = append(l.verbs, arg)
			return
		}
	}
	l.rest = append(l.rest, arg)
}

// check refuses what is there and empty: it stands for a variable of a script that
// is not set, and would mean the current directory or the default. What another program is
// given may well be empty.
func (l *commandLine) check() error {
	if len(l.emptied) > 0 {
		return snapshot.WithHint(usage(fmt.Errorf("%s: its value is empty", l.emptied[0])), "a variable may not be set; leave the flag out")
	}
	own := l.rest
	if slices.Equal(l.verbs, []string{runVerb}) {
		own = own[:len(own)-l.command]
	}
	if slices.Contains(own, "") {
		return snapshot.WithHint(usage(errors.New("an argument is empty")), "a variable may not be set")
	}
	return nil
}

// ordered returns the arguments as the flag library reads them: the program's
// flags before the verb, the verb's right behind it, and arguments last, behind
// a "--".
func (l *commandLine) ordered() []string {
	if l.program == "" {
		return nil
	}
	out := []string{l.program}
	switch {
	case l.lacking != "" && (l.global || len(l.verbs) == 0):
		return append(out, l.lacking) // nothing that it could take for the value
	case l.lacking != "":
		return append(append(out, l.verbs...), l.lacking)
	case l.help: // and nothing else, which would be taken for a topic
		return append(append(out, l.verbs...), "--help")
	case len(l.verbs) == 0:
		return append(append(append(out, l.before...), l.after...), l.rest...)
	}
	out = append(append(append(out, l.before...), l.verbs...), l.after...)
	if len(l.rest) > 0 {
		out = append(append(out, "--"), l.rest...)
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

// eachVerb calls fn with every verb and every verb below one.
func eachVerb(verbs []*cli.Command, fn func(*cli.Command)) {
	for _, cmd := range verbs {
		fn(cmd)
		eachVerb(cmd.Subcommands, fn)
	}
}

// takeValues returns the names of the flags that need a value.
func takeValues(flags []cli.Flag) map[string]bool {
	return names(slices.DeleteFunc(slices.Clone(flags), func(f cli.Flag) bool {
		_, isBool := f.(*cli.BoolFlag)
		return isBool
	}))
}
