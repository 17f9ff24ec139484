package policy

import (
	"errors"
	"sync/atomic"
)

// What the ignore files of one workspace may cost. A project of 500 ignore
// files with 100 lines each has 50,000 rules. A unit of work is one comparison
// of a byte or a name, up to three nanoseconds: a million entries below 300
// patterns take a billion, and the worst workspace is given up after 15 s.
const (
	maxIgnoreRules = 200_000
	maxIgnoreWork  = 5_000_000_000
)

// Errors of [Budget.Err].
var (
	// ErrTooManyRules: the workspace's ignore files have more rules than a walk
	// takes.
	ErrTooManyRules = errors.New("the workspace's ignore files have more than 200,000 rules")
	// ErrTooMuchWork: the patterns of the workspace's ignore files are of a
	// kind that takes too long to compare with its names.
	ErrTooMuchWork = errors.New("the patterns of the workspace's ignore files take too long to compare")
)

// Budget bounds what the ignore files of one workspace, whose content is
// untrusted, can make a walk over it do: what would take minutes fails soon, and
// always at the same amount. The zero Budget is ready; it is safe for
// concurrent use.
type Budget struct{ rules, work atomic.Int64 }

// Err tells whether the budget is used up, by one of the errors above.
func (b *Budget) Err() error {
	switch {
	case b.rules.Load() > maxIgnoreRules:
		return ErrTooManyRules
	case b.work.Load() > maxIgnoreWork:
		return ErrTooMuchWork
	}
	return nil
}

// Bounded returns the scope with a budget for the ignore files that it and the
// scopes below it are narrowed by. Once the budget is used up their decisions
// mean nothing: the caller asks [Budget.Err] and gives up.
func (s Scope) Bounded(b *Budget) Scope {
	s.budget = b
	return s
}
