package main

import (
	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/policy"
)

// The flags that choose among entries.
var (
	includeFlag = &cli.StringSliceFlag{KeepSpace: true, Name: "include", Usage: "only what matches the `PATTERN` (gitignore syntax; may be repeated)"}
	policyFlag  = &cli.StringFlag{Name: "policy", Usage: "a `FILE` of rules for what is saved", EnvVars: []string{"SNAPFS_POLICY"}}
	excludeFlag = &cli.StringSliceFlag{KeepSpace: true, Name: "exclude", Usage: "not what matches the `PATTERN` (gitignore syntax; may be repeated)"}
)

// policyFlags decide what of a workspace is saved.
var policyFlags = []cli.Flag{
	includeFlag,
	excludeFlag,
	policyFlag,
	&cli.BoolFlag{Name: "no-default-excludes", Usage: "also what is left out by default (node_modules, .git, .env ...)"},
	&cli.BoolFlag{Name: "gitignore", Usage: "not what the workspace's .gitignore files leave out"},
	&cli.BoolFlag{Name: "exclude-caches", Usage: "of a directory with a CACHEDIR.TAG only that file"},
	&cli.StringFlag{Name: "max-file-size", Usage: "fail if a file is longer than `SIZE` (10MiB)"},
	&cli.StringFlag{Name: "max-size", Usage: "fail if all files together are longer than `SIZE`"},
	redactEnvFlag,
	redactFileFlag,
	secretsFlag,
}

// rules makes policy rules of a flag's values.
func rules(c *cli.Context, flag string) []policy.Rule {
	var rules []policy.Rule
	for _, pattern := range c.StringSlice(flag) {
		rules = append(rules, policy.Rule{Pattern: pattern, Source: "--" + flag})
	}
	return rules
}

// readPolicyFlags reads the policy file, if there is one, and the flags. The rules of
// flags come after the file's. A flag's limit comes before the file's, and that before
// the configuration's; so does what becomes of secrets.
func readPolicyFlags(c *cli.Context) (said filePolicy, err error) {
	if path := c.String("policy"); path != "" {
		if said, err = readPolicy(c.Context, path, "policy file "+quote(path)); err != nil {
			return said, err
		}
	}
	said.redactEnv = append(said.redactEnv, c.StringSlice(redactEnvFlag.Name)...)
	said.redactFile = append(said.redactFile, c.StringSlice(redactFileFlag.Name)...)
	files, settings := &said.files, &said.settings
	if settings.Secrets == "" || given(c, secretsFlag.Name) {
		if settings.Secrets, err = policy.ParseSecretsMode(c.String(secretsFlag.Name)); err != nil {
			return said, usagef("--%s %w", secretsFlag.Name, err)
		}
	}
	files.NoDefaults = files.NoDefaults || c.Bool("no-default-excludes")
	files.Exclude = append(files.Exclude, rules(c, "exclude")...)
	files.Include = append(files.Include, rules(c, "include")...)
	settings.GitIgnore = settings.GitIgnore || c.Bool("gitignore")
	settings.ExcludeCaches = settings.ExcludeCaches || c.Bool("exclude-caches")
	for _, limit := range []struct {
		flag string
		said bool // by the file
		to   *int64
	}{
		{"max-file-size", said.maxFileSize, &settings.MaxFileSize},
		{"max-size", said.maxSize, &settings.MaxSize},
	} {
		if limit.said && !given(c, limit.flag) {
			continue
		}
		if *limit.to, err = parseBytes(c.String(limit.flag)); err != nil {
			return said, usagef("--%s %w", limit.flag, err)
		}
	}
	_, err = policy.CompileFiles(*files)
	return said, err
}
