package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

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
			err := printContent(func(w io.Writer) error { return store.Conversation(c.Context, c.Args().First(), w) })
			if errors.Is(err, snapshot.ErrNoConversation) {
				return snapshot.WithHint(err, "snapfs save --conversation FILE keeps one with a checkpoint")
			}
			return err
		})(c)
	},
}

// conversationFile opens a file, or stdin for "-", and looks its messages through before
// anything else is done: the store is not held meanwhile. What it returns is for
// [snapshot.SaveOptions], and to be closed.
func conversationFile(ctx context.Context, name string) (*snapshot.Conversation, error) {
	return await(ctx, func() (*snapshot.Conversation, error) {
		in := os.Stdin
		if name != "-" {
			var err error
			if in, err = os.Open(name); err != nil {
				return nil, absent(fmt.Errorf("conversation: %w", err))
			}
		}
		return snapshot.ReadConversation(in)
	})
}
