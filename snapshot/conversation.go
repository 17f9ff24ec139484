package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
)

// MaxConversation is the longest conversation in bytes.
const MaxConversation = 64 << 20

// readConversation reads a conversation: one JSON document, or JSON documents one
// after the other. It is kept byte by byte.
func readConversation(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxConversation+1))
	if err != nil {
		return nil, fmt.Errorf("conversation: %w", err)
	}
	if len(data) > MaxConversation {
		return nil, fmt.Errorf("conversation: more than %d bytes: %w", MaxConversation, cas.ErrTooLarge)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	documents := 0
	for {
		var doc json.RawMessage
		err := dec.Decode(&doc)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("conversation: not JSON at byte %d: %w: %w", dec.InputOffset(), err, index.ErrInvalid)
		}
		documents++
	}
	if documents == 0 {
		return nil, fmt.Errorf("conversation: it is empty: %w", index.ErrInvalid)
	}
	return data, nil
}

// putConversation stores a conversation.
func putConversation(ctx context.Context, w cas.Writer, data []byte) (index.Blob, error) {
	blob, err := cas.WriteBlob(ctx, w, cas.Conversations, bytes.NewReader(data))
	return blobRef(blob), err
}

// Conversation writes the messages that were saved with a checkpoint, as they
// were. It fails with [ErrNoConversation] when there are none.
func (s *Store) Conversation(ctx context.Context, ref string, out io.Writer) error {
	cp, rec, err := s.record(ctx, ref)
	if err != nil {
		return err
	}
	if rec.Conversation.IsZero() {
		return fmt.Errorf("checkpoint %s: %w", quoted(cp.ID), ErrNoConversation)
	}
	data, err := s.small(ctx, cas.Conversations, rec.Conversation, MaxConversation)
	if err != nil {
		return fmt.Errorf("conversation of checkpoint %s: %w", quoted(cp.ID), err)
	}
	_, err = out.Write(data)
	return err
}
