package main

import (
	"io"
	"os"
	"sync/atomic"

	"github.com/snapfs/snapfs/secrets"
)

// hidden tells the declared secrets that the program never prints; nil: there are none.
var hidden atomic.Pointer[func() *secrets.Set]

// stderr is where all goes that is no result.
var stderr io.Writer = masked{processStderr{}}

// processStderr is what os.Stderr is when something is written.
type processStderr struct{}

// Write implements [io.Writer].
func (processStderr) Write(p []byte) (int, error) { return os.Stderr.Write(p) }

// masked is a writer of whole lines that writes stars instead of declared secrets.
type masked struct{ w io.Writer }

// Write implements [io.Writer].
func (m masked) Write(p []byte) (int, error) {
	set := hidden.Load()
	if set == nil {
		return m.w.Write(p)
	}
	if _, err := io.WriteString(m.w, (*set)().Mask(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
