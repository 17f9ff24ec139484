package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestRetention(t *testing.T) {
	// Newest first; a letter after the time: n named, h head.
	day := []string{"2026-11-29 23:59 h", "2026-11-29 23:01", "2026-11-29 22:00", "2026-11-29 00:00", "2026-11-28 23:59", "2026-11-23 00:00", "2026-11-22 23:59", "2026-11-01 12:00"}
	year := []string{"2027-01-04 08:00 h", "2027-01-03 08:00", "2027-01-01 08:00", "2026-12-31 08:00", "2026-12-28 08:00", "2026-12-27 08:00"}
	named := []string{"2026-11-29 12:00 h", "2026-11-28 12:00 n", "2026-11-28 11:00", "2026-11-27 12:00", "2026-11-20 12:00 n"}
	wrong := []string{"2026-11-01 12:00 h", "2026-11-29 12:00", "2026-11-28 12:00", "2026-11-29 11:00"} // the clock went back
	for _, test := range []struct {
		name  string
		rules Retention
		all   []string
		kept  string // places in the list
	}{
		{"last", Retention{KeepLast: 3}, day, "0 1 2"},
		{"more than there are", Retention{KeepLast: 99, KeepDaily: 99}, day, "0 1 2 3 4 5 6 7"},
		{"hourly", Retention{KeepHourly: 3}, day, "0 2 3"},
		{"daily", Retention{KeepDaily: 3}, day, "0 4 5"},
		{"empty days do not count", Retention{KeepDaily: 5}, day, "0 4 5 6 7"},
		{"weekly", Retention{KeepWeekly: 2}, day, "0 6"},
		{"weeks across the year", Retention{KeepWeekly: 3}, year, "0 1 5"},
		{"days across the year", Retention{KeepDaily: 4}, year, "0 1 2 3"},
		{"within, its end included", Retention{KeepWithin: 23*time.Hour + 59*time.Minute}, day, "0 1 2 3"},
		{"within less", Retention{KeepWithin: 23*time.Hour + 58*time.Minute}, day, "0 1 2"},
		{"union", Retention{KeepLast: 2, KeepWeekly: 2}, day, "0 1 6"},
		{"named ones stay and count", Retention{KeepLast: 2}, named, "0 1 4"},
		{"named is its day's newest", Retention{KeepDaily: 3}, named, "0 1 3 4"},
		{"the head stays", Retention{KeepDaily: 1}, wrong, "0 1"},
		{"last goes by the order", Retention{KeepLast: 2}, wrong, "0 1"},
		{"times that are not in order", Retention{KeepDaily: 2}, wrong, "0 1 2"},
		{"no rule keeps all", Retention{}, wrong, "0 1 2 3"},
		{"nor one that is wrong", Retention{KeepLast: -1, KeepDaily: 1}, wrong, "0 1 2 3"},
		{"nothing", Retention{KeepLast: 1}, nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var versions []Version
			for _, text := range test.all {
				at, err := time.Parse("2006-01-02 15:04", text[:16])
				require.NoError(t, err)
				// The same moment elsewhere is in the same bucket.
				versions = append(versions, Version{Created: at.In(time.FixedZone("", 7*3600)), Named: strings.HasSuffix(text, "n"), Head: strings.HasSuffix(text, "h")})
			}
			var kept []string
			for i, keep := range test.rules.Keep(versions) {
				if keep {
					kept = append(kept, fmt.Sprint(i))
				}
			}
			require.Equal(t, test.kept, strings.Join(kept, " "))
		})
	}
}

func TestRetentionIsValid(t *testing.T) {
	require.ErrorIs(t, Retention{}.Validate(), ErrNoRetention)
	require.NoError(t, Retention{KeepWithin: time.Second}.Validate())
	require.NoError(t, Retention{KeepWithin: MaxWithin, KeepLast: 1 << 62}.Validate())
	for _, r := range []Retention{{KeepLast: -1}, {KeepHourly: -1}, {KeepDaily: -1, KeepLast: 1}, {KeepWeekly: -1}, {KeepWithin: -1}, {KeepWithin: MaxWithin + 1}} {
		require.ErrorIs(t, r.Validate(), ErrRetention, "%+v", r)
	}
}

// TestRetentionAlways: what has a name and the head stay; several rules keep what each of
// them keeps; asked of what is left, the same rules drop nothing more; counts hold.
func TestRetentionAlways(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.IntRange(0, 5)
		r := Retention{
			KeepLast: count.Draw(t, "last"), KeepHourly: count.Draw(t, "hourly"), KeepDaily: count.Draw(t, "daily"), KeepWeekly: count.Draw(t, "weekly"),
			KeepWithin: time.Duration(rapid.IntRange(0, 100).Draw(t, "hours")) * time.Hour,
		}
		begin := time.Date(2026, 12, 20, 0, 0, 0, 0, time.UTC)
		versions := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Version {
			return Version{Created: begin.Add(time.Duration(rapid.IntRange(0, 40*24*60).Draw(t, "minute")) * time.Minute), Named: rapid.IntRange(0, 9).Draw(t, "named") == 0}
		}), 0, 60).Draw(t, "versions")
		if rapid.Bool().Draw(t, "in order") {
			slices.SortStableFunc(versions, func(a, b Version) int { return b.Created.Compare(a.Created) })
		}
		if len(versions) > 0 {
			versions[0].Head = true
		}
		kept := r.Keep(versions)
		require.Equal(t, kept, r.Keep(slices.Clone(versions)), "it depends on nothing else")
		union := make([]bool, len(versions))
		for _, one := range []Retention{{KeepLast: r.KeepLast}, {KeepHourly: r.KeepHourly}, {KeepDaily: r.KeepDaily}, {KeepWeekly: r.KeepWeekly}, {KeepWithin: r.KeepWithin}} {
			if one == (Retention{}) {
				continue
			}
			n := 0
			for i, keep := range one.Keep(versions) {
				union[i] = union[i] || keep
				if keep && !versions[i].Named && !versions[i].Head {
					n++
				}
			}
			if one.KeepWithin == 0 {
				require.LessOrEqual(t, n, one.KeepLast+one.KeepHourly+one.KeepDaily+one.KeepWeekly)
			}
		}
		var left []Version
		for i, v := range versions {
			require.True(t, kept[i] || !v.Named && !v.Head)
			if r != (Retention{}) {
				require.Equal(t, union[i], kept[i], "version %d", i)
			}
			if kept[i] {
				left = append(left, v)
			}
		}
		require.NotContains(t, r.Keep(left), false)
	})
}
