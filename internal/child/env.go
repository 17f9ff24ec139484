// Package child is about the programs that this one starts.
package child

import (
	"os"
	"slices"
	"strings"
)

// kept are the variables that a program may need to find its files and to speak the
// user's language, and the beginnings of such variables. Whatever else the environment
// has may be a secret, which a child would show in /proc for as long as it runs.
var (
	kept = []string{
		"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "NO_COLOR", "TERM",
		"GOCOVERDIR", "GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GORACE", "GOTRACEBACK",
	}
	prefixes = []string{"LC_", "XDG_", "SNAPFS_"}
)

// Env returns the environment for a child, and then more variables, as NAME=VALUE.
func Env(more ...string) []string {
	var env []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		begins := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		if !strings.Contains(name, "TOKEN") && (slices.Contains(kept, name) || slices.ContainsFunc(prefixes, begins)) {
			env = append(env, v)
		}
	}
	return append(env, more...)
}
