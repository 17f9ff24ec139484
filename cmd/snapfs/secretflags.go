package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/secrets"
	"github.com/snapfs/snapfs/snapshot"
)

// The flags about secrets.
var (
	redactEnvFlag  = &cli.StringSliceFlag{KeepSpace: true, Name: "redact-env", Usage: "what the variable `VAR` has is a secret: none of its bytes is stored (may be repeated)"}
	redactFileFlag = &cli.StringSliceFlag{KeepSpace: true, Name: "redact-file", Usage: "each line of `FILE` is a secret: none of its bytes is stored (may be repeated)"}
	secretsFlag    = &cli.StringFlag{Name: "secrets", Value: string(policy.SecretsWarn), Usage: "`WHAT` becomes of a file with what looks like a key or a token: warn, exclude or off"}
)

// maxSecretsFile is how long a file of secrets may be, in bytes.
const maxSecretsFile = 16 << 20

// assignment is a line that looks as if only a part of it is meant.
var assignment = regexp.MustCompile(`^(export )?[A-Z_][A-Z0-9_]*=.*[^=]`)

// declare reads the secrets that variables and files declare. From then on the program
// prints and logs stars instead of them, its children do not get the variables, and it
// leaves no memory behind where somebody could read it.
func declare(c *cli.Context, env, files []string) (opt snapshot.SecretsOptions, err error) {
	if len(env)+len(files) == 0 {
		return opt, nil
	}
	if err := noCoreDumps(); err != nil {
		return opt, err
	}
	var values []secrets.Value
	for _, name := range env {
		value, ok := os.LookupEnv(name)
		switch {
		case !ok && !variableName.MatchString(name):
			err := fmt.Errorf("--%s: there is no variable of the name that was given, which is not shown: it may be a secret", redactEnvFlag.Name)
			return opt, snapshot.WithHint(usage(err), "give the name of a variable, not what it has")
		case !ok:
			err := fmt.Errorf("redact the value of %s: there is no such variable", quote(name))
			return opt, snapshot.WithHint(usage(err), "set and export it, or do not name it: what must not be stored is not known")
		}
		source := "variable " + quote(name)
		opt.Sources = append(opt.Sources, source)
		values = append(values, secrets.Value{Bytes: []byte(value), Source: source})
	}
	if i := slices.Index(files, "-"); i >= 0 && slices.Contains(files[i+1:], "-") {
		return opt, usagef("--%s - twice: stdin can be read once", redactFileFlag.Name)
	}
	for _, name := range files {
		data, err := readInput(c.Context, name, maxSecretsFile)
		if err != nil {
			return opt, absent(fmt.Errorf("secrets: %w", err))
		}
		source := "secrets in " + quote(name)
		opt.Sources = append(opt.Sources, source)
		lines := secrets.Lines(data, source)
		for _, v := range lines {
			if assignment.Match(v.Bytes) {
				warn("%s: the whole line is the secret, its name and the = too", v.Source)
			}
		}
		if len(lines) == 0 {
			warn("%s: there are none", source)
		}
		values = append(values, lines...)
	}
	opt.Declared, err = secrets.NewSet(values)
	if errors.Is(err, secrets.ErrTooShort) {
		err = snapshot.WithHint(err, "a value so short stands in many places by chance: make the secret longer, or --exclude the files that have it; one of several lines is declared by a variable")
	}
	if err != nil {
		return opt, usage(err)
	}
	if opt.Declared == nil {
		return opt, nil
	}
	known := func() *secrets.Set { return opt.Declared } // more than what is hidden from the beginning
	hidden.Store(&known)
	for _, name := range env {
		if err := os.Unsetenv(name); err != nil {
			return opt, err
		}
	}
	return opt, nil
}

// variableName is how variables with secrets are called. Whatever else is given for a
// name may be a value.
var variableName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)

// hide keeps declared secrets out of what is printed before [declare] knows all of them:
// those of the command line, as far as they can be read by then. They are read only if
// something is printed.
func hide(flags []string) {
	var env, files []string
	for i, flag := range flags {
		name, value, given := strings.Cut(strings.TrimLeft(flag, "-"), "=")
		if !given && i+1 < len(flags) {
			value = flags[i+1]
		}
		switch name {
		case redactEnvFlag.Name:
			env = append(env, value)
		case redactFileFlag.Name:
			files = append(files, value)
		}
	}
	if len(env)+len(files) == 0 {
		return
	}
	_ = noCoreDumps() // declare says if it cannot be
	known := sync.OnceValue(func() *secrets.Set { return readable(env, files) })
	hidden.Store(&known)
}

// readable is the set of what variables and files declare, without what cannot be read or
// looked for.
func readable(env, files []string) *secrets.Set {
	var values []secrets.Value
	for _, name := range env {
		values = append(values, secrets.Value{Bytes: []byte(os.Getenv(name))})
	}
	for _, name := range files {
		if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() || info.Size() > maxSecretsFile {
			continue
		}
		if data, err := os.ReadFile(name); err == nil {
			values = append(values, secrets.Lines(data, "")...)
		}
	}
	values = slices.DeleteFunc(values, func(v secrets.Value) bool { return v.Check() != nil })
	set, _ := secrets.NewSet(values) // all are usable
	return set
}

// noCoreDumps keeps the memory of the process out of core dumps, also of those that the
// kernel gives to a program, and from other processes of the same user.
func noCoreDumps() error {
	return errors.Join(
		unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}),
		unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0),
	)
}

// shownFindings is how many findings are printed one by one.
const shownFindings = 10

// secretsTold tells what a save has found of secrets.
func secretsTold(c *cli.Context, res snapshot.SaveResult, id string) {
	tellSecrets(c, res.Found, fmt.Sprintf("; snapfs show %s lists them", id))
	for _, why := range res.LeftForSecrets {
		warn("left out: %s", inLine(why))
	}
}

// tellSecrets tells what was found of secrets. lists says where all of it is listed.
func tellSecrets(c *cli.Context, found []snapshot.FoundSecrets, lists string) {
	values, places, findings := 0, 0, 0
	for _, f := range found {
		if len(f.Redacted) > 0 {
			values, places = values+len(f.Redacted), places+1
		}
		findings += len(f.Findings) + f.More
	}
	if values > 0 {
		summary(c, "redacted %s in %s%s", plural(values, "secret", "secrets"), plural(places, "place", "places"), lists)
	}
	shown := 0
	for _, f := range found {
		for _, one := range f.Findings {
			if shown++; shown > shownFindings {
				warn("and %s more%s", plural(findings-shownFindings, "possible secret", "possible secrets"), lists)
				return
			}
			warn("%s: looks like a secret: %s", secretPlace(f.Place.String(), f.Path, one.Line), one.Kind)
		}
	}
}

// secretPlace says where a secret is: in what, on which path there, in which line.
func secretPlace(in, path string, line int64) string {
	where := quote(path)
	switch in {
	case snapshot.InFile.String():
	case snapshot.InConversation.String():
		where = in
	default:
		where = in + " " + where
	}
	if line > 0 {
		where = fmt.Sprintf("%s:%d", where, line)
	}
	return where
}
