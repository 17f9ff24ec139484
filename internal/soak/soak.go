// Package soak is for tests that can go on for as long as anybody waits: a few rounds each
// time, many with SNAPFS_LARGE=1 in the environment, as `make soak` does.
package soak

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// Large reports whether tests take their time.
func Large() bool { return os.Getenv("SNAPFS_LARGE") == "1" }

// Rounds returns few, or with [Large] many.
func Rounds(few, many int) int {
	if Large() {
		return many
	}
	return few
}

// Checks has rapid try so many examples in this test: few, or with [Large] many. The test
// must not run beside others.
func Checks(t *testing.T, few, many int) {
	t.Helper()
	checks := flag.Lookup("rapid.checks").Value
	before := checks.String()
	if err := checks.Set(strconv.Itoa(Rounds(few, many))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = checks.Set(before) })
}
