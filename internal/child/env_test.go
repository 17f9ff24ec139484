package child

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEnv(t *testing.T) {
	for name, passed := range map[string]bool{
		"PATH": true, "XDG_CONFIG_HOME": true, "LC_ALL": true, "SNAPFS_STORE": true, "GOTRACEBACK": true,
		"SNAPFS_TOKEN": false, "AWS_SECRET_ACCESS_KEY": false, "MYSECRET": false, "GOOGLE_API_KEY": false, "PATHX": false,
	} {
		t.Setenv(name, "value of "+name)
		if passed {
			require.Contains(t, Env(), name+"=value of "+name)
		} else {
			require.NotContains(t, Env(), name+"=value of "+name)
		}
	}
	env := Env("A=1", "B=2")
	require.Equal(t, []string{"A=1", "B=2"}, env[len(env)-2:])
}
