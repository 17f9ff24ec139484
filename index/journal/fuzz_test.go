package journal

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/index"
)

// FuzzDecodePayload: an entry that is understood is written so that it is the same
// entry again. Fields that are not known may get lost.
func FuzzDecodePayload(f *testing.F) {
	for i, e := range []Event{
		event(1), Rename{Org: "o", Checkpoint: "c", Name: "n"}, Delete{Org: "o", Checkpoint: "c"}, DeleteThread{Org: "o", Thread: "t"}, Lost{},
		Deleting{Org: "o", Checkpoints: []string{"c"}}, Deleting{Org: "o", Thread: "t"}, DeleteSome{Org: "o", Checkpoints: []string{"c", "d"}},
		AddArtifact{Org: "o", Thread: "t", Artifact: index.Artifact{ID: "a", Name: "n"}}, RemoveArtifact{Org: "o", Thread: "t", Artifact: "a"},
		Receive{Publish: Publish{Org: "o", Checkpoint: "c", Thread: "t"}, Store: "s", Seq: 7},
	} {
		data, err := encodePayload(Entry{Seq: uint64(i), Time: time.Unix(1, 2), Event: e})
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := decodePayload(data)
		if err != nil {
			require.True(t, errors.Is(err, index.ErrCorrupt) || errors.Is(err, index.ErrNewer), "%v", err)
			return
		}
		again, err := encodePayload(e)
		require.NoError(t, err)
		require.LessOrEqual(t, len(again), len(data), "nothing is added")
		second, err := decodePayload(again)
		require.NoError(t, err)
		require.Equal(t, e, second)
	})
}
