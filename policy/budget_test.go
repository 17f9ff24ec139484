package policy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBudgetOfRules: all ignore files of a walk count together, also those of which
// the rules are refused.
func TestBudgetOfRules(t *testing.T) {
	files := compile(t, FilesOptions{NoDefaults: true})
	var b Budget
	root := files.Root().Bounded(&b)
	many := ParseIgnore("f", []byte(strings.Repeat("a\n", maxIgnoreRules/2)))
	_, err := root.Narrow(".gitignore", many)
	require.NoError(t, err)
	_, sub := root.Decide("x", true)
	_, err = sub.Narrow(".gitignore", many)
	require.NoError(t, err)
	require.NoError(t, b.Err())
	_, err = sub.Narrow(".gitignore", many[:1])
	require.NoError(t, err)
	require.ErrorIs(t, b.Err(), ErrTooManyRules)

	_, err = files.Root().Narrow(".gitignore", append(many, many...))
	require.NoError(t, err, "without a budget there is no bound")
}

// TestBudgetOfWork: work is counted for ignore files only, and about as much as is
// done.
func TestBudgetOfWork(t *testing.T) {
	hard := "*" + strings.Repeat("a", 110) + "b*"
	name := strings.Repeat("a", 250)
	files := compile(t, FilesOptions{NoDefaults: true, Exclude: rules("--exclude", hard)})
	var b Budget
	root := files.Root().Bounded(&b)
	root.Decide(name, false)
	require.Zero(t, b.work.Load(), "the caller's rules are the caller's")

	plain, err := root.Narrow(".gitignore", ParseIgnore("f", []byte(strings.Repeat("name\n/other\n", 1000))))
	require.NoError(t, err)
	plain.Decide(name, false)
	require.Less(t, b.work.Load(), int64(10_000), "a name is looked up, and an anchored one compared")
	b.work.Store(0)

	narrowed, err := root.Narrow(".gitignore", rules("f", hard))
	require.NoError(t, err)
	_, below := narrowed.Decide("dir", true)
	b.work.Store(0)
	below.Decide(name, false)
	require.Greater(t, b.work.Load(), int64(140*110), "scopes below have the same budget")
	b.work.Store(0)
	below.Decide(name[:100], false)
	require.Less(t, b.work.Load(), int64(10), "too short a name is not compared")

	b.work.Store(maxIgnoreWork)
	require.NoError(t, b.Err())
	below.Decide(name, false)
	require.ErrorIs(t, b.Err(), ErrTooMuchWork)
}

func TestWatched(t *testing.T) {
	files := compile(t, FilesOptions{NoDefaults: true, Exclude: rules("e", "*.o", "!keep.o", "dir/", "never"), Include: rules("i", "src", "doc")})
	watched, unmatched := files.Watched()
	require.Len(t, unmatched(), 6)
	require.True(t, watched.Decide("src/keep.o", false).Keep)
	require.True(t, watched.Decide("src/dir", false).Keep)
	require.Equal(t, []Rule{{"dir/", "e"}, {"never", "e"}, {"doc", "i"}}, unmatched())
	files.Decide("never", false)
	require.Len(t, unmatched(), 3, "the original is not watched")
}
