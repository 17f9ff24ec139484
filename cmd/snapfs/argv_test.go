package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
	} {
		got := reorder(newApp(), append([]string{"snapfs"}, strings.Fields(c.line)...))
		require.Equal(t, append([]string{"snapfs"}, strings.Fields(c.want)...), got, c.line)
	}
	require.Empty(t, reorder(newApp(), nil))
	require.Equal(t, []string{"snapfs", "cat", "--", "r", ""}, reorder(newApp(), []string{"snapfs", "cat", "r", ""}))
}

// TestFlagsMeanOneThing: reorder looks at names alone. A flag takes a value or
// not, whichever verb it is given to, and is no verb's if it is the program's.
func TestFlagsMeanOneThing(t *testing.T) {
	app := newApp()
	global, takes := names(app.Flags), map[string]bool{}
	for _, verb := range app.Commands {
		values := takeValues(verb.Flags)
		for name := range names(verb.Flags) {
			require.False(t, global[name], "--%s of %s", name, verb.Name)
			if before, known := takes[name]; known {
				require.Equal(t, before, values[name], "--%s of %s", name, verb.Name)
			}
			takes[name] = values[name]
		}
	}
}
