package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/snapshot"
)

var conversationCommand = &cli.Command{
	Name:      "conversation",
	Usage:     "print the messages that were saved with a checkpoint",
	ArgsUsage: "REF",
	Action: func(c *cli.Context) error {
		if err := arguments(c, 1, 1); err != nil {
			return err
		}
		return withStore(false, func(c *cli.Context, store *snapshot.Store) error {
			err := printWhole(func(w io.Writer) error { return store.Conversation(c.Context, c.Args().First(), w) })
			if errors.Is(err, snapshot.ErrNoConversation) {
				return snapshot.WithHint(err, "snapfs save --conversation FILE keeps one with a checkpoint")
			}
			return err
		})(c)
	},
}

// readConversation reads a file, or stdin for "-", before anything else is done:
// who writes to a pipe may take long, and the store is not held meanwhile.
func readConversation(ctx context.Context, name string) (io.Reader, error) {
	type result struct {
		data []byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		data, err := readInput(name)
		read <- result{data, err}
	}()
	select {
	case r := <-read:
		if r.err != nil {
			return nil, absent(fmt.Errorf("conversation: %w", r.err))
		}
		return bytes.NewReader(r.data), nil
	case <-ctx.Done(): // whatever the other end of the pipe does
		return nil, context.Cause(ctx)
	}
}

func readInput(name string) ([]byte, error) {
	in := os.Stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, snapshot.MaxConversation+1))
	if err == nil && len(data) > snapshot.MaxConversation {
		err = fmt.Errorf("%s: more than %d bytes: %w", name, snapshot.MaxConversation, cas.ErrTooLarge)
	}
	return data, err
}
