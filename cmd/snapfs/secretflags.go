package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/secrets"
	"github.com/snapfs/snapfs/snapshot"
)

// The flags that declare secrets.
var (
	redactEnvFlag  = &cli.StringSliceFlag{KeepSpace: true, Name: "redact-env", Usage: "the value of the variable `VAR` is a secret (may be repeated)"}
	redactFileFlag = &cli.StringSliceFlag{KeepSpace: true, Name: "redact-file", Usage: "each line of `FILE` is a secret (may be repeated)"}
)

// maxSecretsFile is how long a file of secrets may be, in bytes.
const maxSecretsFile = 16 << 20

// declared reads the secrets that variables and files declare. Nobody but the set has
// the values afterwards: the variables are gone, so that no child gets them.
func declared(c *cli.Context, env, files []string) (*secrets.Set, error) {
	var values []secrets.Value
	for _, name := range env {
		value, ok := os.LookupEnv(name)
		if !ok {
			err := fmt.Errorf("redact the value of %s: there is no such variable", quote(name))
			return nil, snapshot.WithHint(usage(err), "set and export it, or leave it away: what it should have is not known")
		}
		values = append(values, secrets.Value{Bytes: []byte(value), Source: "variable " + quote(name)})
	}
	for _, name := range files {
		data, err := readInput(c.Context, name, maxSecretsFile)
		if err != nil {
			return nil, absent(fmt.Errorf("secrets: %w", err))
		}
		values = append(values, secrets.Lines(data, "secrets in "+quote(name))...)
	}
	set, err := secrets.NewSet(values)
	if errors.Is(err, secrets.ErrTooShort) {
		err = snapshot.WithHint(err, "a value so short stands in many places by chance; make the secret longer, or --exclude the files that have it")
	}
	if err != nil {
		return nil, usage(err)
	}
	for _, name := range env {
		if err := os.Unsetenv(name); err != nil {
			return nil, err
		}
	}
	return set, nil
}
