package tree

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckName(t *testing.T) {
	for _, name := range []string{
		"a", "...", ".a", "-rf", "a b", "new\nline", "\xff\xfe", "Ä", "😀", "a\\b", strings.Repeat("n", 255), "\x01",
	} {
		require.NoError(t, CheckName(name), "%q", name)
	}
	for _, name := range []string{"", ".", "..", "a/b", "/", "a\x00", strings.Repeat("n", 256)} {
		require.ErrorIs(t, CheckName(name), ErrInvalid, "%q", name)
	}
}

func TestCheckPath(t *testing.T) {
	long := strings.Repeat("a/", 2047) + "a"
	for _, path := range []string{"a", "a/b", "..a/b..", " / ", long} {
		require.NoError(t, CheckPath(path), "%q", path)
	}
	for _, path := range []string{"", "/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/./b", "a\x00b", "a/" + strings.Repeat("n", 256), long + "b"} {
		require.ErrorIs(t, CheckPath(path), ErrInvalid, "%q", path)
	}
}

func FuzzCheckPath(f *testing.F) {
	f.Add("a/b")
	f.Add("../a")
	f.Fuzz(func(t *testing.T, path string) {
		if CheckPath(path) != nil {
			return
		}
		for _, name := range strings.Split(path, "/") {
			require.NoError(t, CheckName(name))
		}
		dir, name := split(path)
		require.Equal(t, path, join(dir, name))
	})
}
