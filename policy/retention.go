package policy

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

var (
	// ErrNoRetention: no rule says what stays.
	ErrNoRetention = errors.New("no rule says what is kept")
	// ErrRetention: a rule that makes no sense.
	ErrRetention = errors.New("invalid retention")
)

// MaxWithin is the longest time of [Retention.KeepWithin]: a hundred years.
const MaxWithin = 100 * 365 * 24 * time.Hour

// Retention says which versions of something stay: those that any of its rules keeps. A
// rule that is zero keeps none.
//
// Hours, days and weeks are UTC's, weeks are ISO's and begin on Monday. Of each one that
// has versions the newest is kept; those without any do not count.
type Retention struct {
	KeepLast   int           // so many of the newest
	KeepHourly int           // the newest of each of so many hours
	KeepDaily  int           // of so many days
	KeepWeekly int           // of so many weeks
	KeepWithin time.Duration // all that were made so long before the newest one, or less
}

// A Version is what the rules ask about one.
type Version struct {
	Created time.Time
	Named   bool // has a name: it stays, whatever the rules say
	Head    bool // is the one that everything goes on from: it stays, too
}

// Validate fails with [ErrRetention], and with [ErrNoRetention] if there is no rule.
func (r Retention) Validate() error {
	for _, n := range []struct {
		what  string
		count int
	}{{"last", r.KeepLast}, {"hourly", r.KeepHourly}, {"daily", r.KeepDaily}, {"weekly", r.KeepWeekly}} {
		if n.count < 0 {
			return fmt.Errorf("%w: keep %d %s: want 0 or more", ErrRetention, n.count, n.what)
		}
	}
	if r.KeepWithin < 0 || r.KeepWithin > MaxWithin {
		return fmt.Errorf("%w: keep within %s: want at most %d days", ErrRetention, r.KeepWithin, MaxWithin/(24*time.Hour))
	}
	if r == (Retention{}) {
		return ErrNoRetention
	}
	return nil
}

// Keep decides about versions in their own order, the newest first: for each of them,
// whether it stays. KeepLast counts in this order, the other rules go by the time at which
// each was made. What has a name, and the head, count like all others. Rules that are not
// valid keep everything.
func (r Retention) Keep(versions []Version) []bool {
	keep := make([]bool, len(versions))
	valid := r.Validate() == nil
	for i, v := range versions {
		keep[i] = v.Named || v.Head || !valid || i < r.KeepLast
	}
	if !valid || len(versions) == 0 {
		return keep
	}
	// Clocks may be wrong: the order need not be that of the times.
	byTime := make([]int, len(versions))
	for i := range byTime {
		byTime[i] = i
	}
	slices.SortStableFunc(byTime, func(a, b int) int { return versions[b].Created.Compare(versions[a].Created) })
	newest := versions[byTime[0]].Created
	hours, days, weeks := buckets{left: r.KeepHourly}, buckets{left: r.KeepDaily}, buckets{left: r.KeepWeekly}
	for _, i := range byTime {
		at := versions[i].Created.UTC()
		year, week := at.ISOWeek()
		day := at.Year()*1000 + at.YearDay()
		for _, kept := range []bool{
			r.KeepWithin > 0 && newest.Sub(at) <= r.KeepWithin,
			hours.first(day*24 + at.Hour()), days.first(day), weeks.first(year*100 + week),
		} {
			keep[i] = keep[i] || kept
		}
	}
	return keep
}

// buckets are stretches of time, told by numbers that rise with them.
type buckets struct {
	left int // so many more are kept of
	last int // the number of the last one
	any  bool
}

// first reports whether a version, not newer than those before, is the first of its
// stretch, and one is to be kept of that.
func (b *buckets) first(number int) bool {
	if b.any && b.last == number || b.left <= 0 {
		return false
	}
	b.any, b.last = true, number
	b.left--
	return true
}
