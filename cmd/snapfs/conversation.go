package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

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
// the store is not held meanwhile.
func readConversation(ctx context.Context, name string) (io.Reader, error) {
	data, err := readInput(ctx, name, snapshot.MaxConversation)
	if err != nil {
		return nil, absent(fmt.Errorf("conversation: %w", err))
	}
	return bytes.NewReader(data), nil
}
