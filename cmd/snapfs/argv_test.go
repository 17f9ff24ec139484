package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"
)

func reorder(args ...string) []string {
	line := parseArgs(newApp(), args)
	return line.ordered()
}

func TestReorder(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"", ""},
		{"version", "version"},
		{"save ws", "save -- ws"},
		{"save ws --thread t", "save --thread t -- ws"},
		{"save --thread=t ws", "save --thread=t -- ws"},
		{"save ws -thread t", "save -thread t -- ws"},
		{"--thread t save ws", "save --thread t -- ws"},
		{"save ws --store s --id i", "--store s save --id i -- ws"},
		{"save ws --store=s", "--store=s save -- ws"},
		{"list --json t", "--json list -- t"},
		{"list t --limit -1", "list --limit -1 -- t"},
		{"list t --limit 0 --quiet", "--quiet list --limit 0 -- t"},
		{"mount m --foreground", "mount --foreground -- m"},
		{"mount --foreground m", "mount --foreground -- m"}, // a switch takes no value
		{"save --include a,b --include c ws", "save --include a,b --include c -- ws"},
		{"save --thread --force ws", "save --thread --force -- ws"}, // a value may look like a flag
		{"cat r -- --json", "cat -- r --json"},
		{"cat -- r --json", "cat -- r --json"},
		{"-- cat r", "cat r"},
		{"cat r - p", "cat -- r - p"},
		{"cat --nonsense r p", "cat --nonsense -- r p"},
		{"--nonsense", "--nonsense"},
		{"save ws --thread", "save --thread"},
		{"save ws --store", "--store"},
		{"--help", "--help"},
		{"-h", "--help"},
		{"save --help", "save --help"},
		{"--help save ws", "save --help"},
		{"save -h ws --json", "save --help"},
		{"cat r -- --help", "cat -- r --help"},
		{"help save", "help -- save"},
		{"artifact add t f", "artifact add -- t f"},
		{"artifact --name n add t --type=m f", "artifact add --name n --type=m -- t f"},
		{"--json artifact list r", "--json artifact list -- r"},
		{"artifact list --json r", "--json artifact list -- r"},
		{"artifact nonsense", "artifact nonsense"},
		{"artifact", "artifact"},
		{"artifact add --help t", "artifact add --help"},
		{"artifact add t f --name", "artifact add --name"},
		{"help artifact add", "help -- artifact add"},
		{"ls r -R p -z", "ls -R -z -- r p"},
		{"rename r --clear", "rename --clear -- r"},
	} {
		got := reorder(append([]string{"snapfs"}, strings.Fields(c.line)...)...)
		require.Equal(t, append([]string{"snapfs"}, strings.Fields(c.want)...), got, c.line)
	}
	require.Empty(t, reorder())
	require.Equal(t, []string{"snapfs", "cat", "--", "r", ""}, reorder("snapfs", "cat", "r", ""))
}

// TestFlagsMeanOneThing: a flag is no verb's if it is the program's, and what takes a
// value for one verb and none for another is told apart wherever it stands. There are as
// few of these as can be.
func TestFlagsMeanOneThing(t *testing.T) {
	app := newApp()
	global, takes := names(app.Flags), map[string]bool{}
	differ := map[string]bool{}
	eachVerb(app.Commands, func(verb *cli.Command) {
		values := takeValues(verb.Flags)
		for name := range names(verb.Flags) {
			require.False(t, global[name], "--%s of %s", name, verb.Name)
			if before, known := takes[name]; known && before != values[name] {
				differ[name] = true
			}
			takes[name] = values[name]
		}
	})
	require.Equal(t, map[string]bool{"owner": true, "artifacts": true, "conversation": true}, differ)
	for line, want := range map[string]string{
		"diff --owner a b":              "diff --owner -- a b",
		"--owner diff a b":              "diff --owner -- a b",
		"diff a b --owner":              "diff --owner -- a b",
		"restore --owner 1:2 r d":       "restore --owner 1:2 -- r d",
		"--owner 1:2 restore r d":       "restore --owner 1:2 -- r d",
		"restore r d --owner nobody":    "restore --owner nobody -- r d",
		"--owner=diff restore r d":      "restore --owner=diff -- r d",
		"--quiet restore r d --owner 5": "--quiet restore --owner 5 -- r d",
		"--conversation diff a b":       "diff --conversation -- a b",
		"diff a --artifacts b":          "diff --artifacts -- a b",
		"restore r --artifacts d d":     "restore --artifacts d -- r d",
		"--conversation - save w":       "save --conversation - -- w",
	} {
		got := reorder(append([]string{"snapfs"}, strings.Fields(line)...)...)
		require.Equal(t, append([]string{"snapfs"}, strings.Fields(want)...), got, line)
	}
}

// What is there and empty is refused, and nothing else is taken for it.
func TestEmptyValues(t *testing.T) {
	for _, args := range [][]string{
		{"save", "--thread", "", "w"}, {"save", "--thread=", "w"}, {"--store", "", "list"}, {"save", ""}, {"save", "--", ""}, {"diff", "a", "b", ""},
	} {
		line := parseArgs(newApp(), append([]string{"snapfs"}, args...))
		require.ErrorIs(t, line.check(), errUsage, "%q", args)
	}
	for _, args := range [][]string{
		{"save", "--thread==", "w"}, {"save", "--artifact=n=f;type=", "w"}, {"save", "--label", "k=", "w"}, {"list"}, {"save", "--thread", " ", "w"}, {"--json=", "list"},
	} {
		line := parseArgs(newApp(), append([]string{"snapfs"}, args...))
		require.NoError(t, line.check(), "%q", args)
	}
}
