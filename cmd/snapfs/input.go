package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/snapfs/snapfs/cas"
)

// readInput reads a file of at most limit bytes, or stdin for "-".
func readInput(ctx context.Context, name string, limit int) ([]byte, error) {
	return await(ctx, func() ([]byte, error) { return readAll(name, limit) })
}

// await returns what read does. Who writes to a pipe may take long, or never begin: an
// interrupt ends the wait.
func await[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := read()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

func readAll(name string, limit int) ([]byte, error) {
	in := os.Stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, int64(limit)+1))
	if err == nil && len(data) > limit {
		err = fmt.Errorf("%s: more than %d bytes: %w", quote(name), limit, cas.ErrTooLarge)
	}
	return data, err
}
