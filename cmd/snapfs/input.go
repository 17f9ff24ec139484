package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/snapfs/snapfs/cas"
)

// readInput reads a file of at most limit bytes, or stdin for "-". Who writes to
// a pipe may take long, or never begin: an interrupt ends the wait.
func readInput(ctx context.Context, name string, limit int) ([]byte, error) {
	type result struct {
		data []byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		data, err := readAll(name, limit)
		read <- result{data, err}
	}()
	select {
	case r := <-read:
		return r.data, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
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
