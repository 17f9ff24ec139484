package policy

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAllowed(t *testing.T) {
	a, err := CompileAllowed([]AllowRule{{Pattern: "testdata/"}, {Pattern: "/keys/*.pem", Kind: "private-key"}})
	require.NoError(t, err)
	for _, tt := range []struct {
		path, kind string
		want       bool
	}{
		{"testdata/a/b", "github-token", true},
		{"x/testdata/b", "private-key", true},
		{"testdata", "private-key", false}, // a file, where a directory is meant
		{"keys/a.pem", "private-key", true},
		{"keys/a.pem", "github-token", false},
		{"x/keys/a.pem", "private-key", false},
	} {
		require.Equal(t, tt.want, a.Allows(tt.path, tt.kind), "%s of %s", tt.kind, tt.path)
	}
	var none *Allowed
	require.False(t, none.Allows("a", "b"))

	_, err = CompileAllowed([]AllowRule{{Pattern: "!a", Source: "p.yaml:3"}, {Pattern: "[a", Source: "p.yaml:4"}, {Pattern: "ok"}, {Pattern: " ", Source: "p.yaml:5"}, {Source: "p.yaml:6"}})
	require.ErrorContains(t, err, "p.yaml:5")
	require.ErrorContains(t, err, "p.yaml:6")
	require.ErrorContains(t, err, "p.yaml:3")
	require.ErrorContains(t, err, "p.yaml:4")
}

func TestParseSecretsMode(t *testing.T) {
	for _, m := range []SecretsMode{SecretsOff, SecretsWarn, SecretsExclude} {
		got, err := ParseSecretsMode(string(m))
		require.NoError(t, err)
		require.Equal(t, m, got)
	}
	for _, bad := range []string{"", "Warn", "on"} {
		_, err := ParseSecretsMode(bad)
		require.ErrorContains(t, err, "off, warn or exclude")
	}
}
