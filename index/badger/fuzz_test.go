package badger

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
)

// FuzzValues: the values of all tables have one form each.
func FuzzValues(f *testing.F) {
	f.Add(appendLocation(nil, cas.Location{Pack: cas.PackID{1}, Offset: 16, Stored: 5, Plain: 7, Kind: cas.Data, Encoding: cas.Zstd}))
	f.Add(thread{last: 1, checkpoints: 2, newBytes: -3, head: "c"}.encode())
	f.Add(checkpoint{seq: 1, ready: true, thread: "t", name: "n", message: "m", record: []byte("r")}.encode())
	f.Add(checkpoint{}.encode())
	f.Add(applied{seq: 5, sum: 6}.encode())
	f.Add(encodeLease(index.HeldLease{Lease: index.Lease{Fence: 1, Owner: "o", Expires: time.Unix(7, 8), TTL: time.Minute}, Token: cas.Hash{1}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		decoded := func(err error, again func() []byte) {
			t.Helper()
			if err != nil {
				require.ErrorIs(t, err, index.ErrCorrupt)
				return
			}
			require.True(t, bytes.Equal(b, again()), "another form is accepted")
		}
		l, err := decodeLocation(b)
		decoded(err, func() []byte { return appendLocation(nil, l) })
		th, err := decodeThread(b)
		decoded(err, th.encode)
		a, err := decodeApplied(b)
		decoded(err, a.encode)
		held, err := decodeLease("t", b)
		decoded(err, func() []byte { return encodeLease(held) })
		cp, err := decodeCheckpoint(b)
		decoded(err, cp.encode)
		if err == nil {
			if _, err := cp.public("id"); err != nil {
				require.ErrorIs(t, err, index.ErrCorrupt)
			}
		}
	})
}

// FuzzKeys: the keys of two things are two, none is the beginning of another table's,
// and what keys hold is read back.
func FuzzKeys(f *testing.F) {
	f.Add("acme", "thread", "cp-1", "acme", "threa", "dcp-1")
	f.Add("", "a", "b-c", "\x00", "a", "b-c")
	f.Fuzz(func(t *testing.T, org, thread, id, org2, thread2, id2 string) {
		if len(org) > index.MaxID || len(thread) > index.MaxID || len(org2) > index.MaxID || len(thread2) > index.MaxID {
			return
		}
		key, rest, ok := cutStr(appendStr(nil, thread+id))
		require.True(t, ok || len(thread+id) > 0xffff)
		require.True(t, !ok || key == thread+id && len(rest) == 0)
		same := org == org2 && thread == thread2 && id == id2
		for _, keys := range [][2][]byte{
			{nameKey(org, thread, id), nameKey(org2, thread2, id2)},
			{artifactKey(org, thread, id), artifactKey(org2, thread2, id2)},
		} {
			require.Equal(t, same, bytes.Equal(keys[0], keys[1]))
		}
		if org == org2 && thread == thread2 {
			require.True(t, bytes.HasPrefix(nameKey(org, thread, id), threadPrefix(tName, org, thread)))
		} else {
			require.False(t, bytes.HasPrefix(nameKey(org, thread, id), threadPrefix(tName, org2, thread2)))
		}
		require.Equal(t, org == org2 && thread == thread2, bytes.Equal(threadKey(org, thread), threadKey(org2, thread2)))
		require.Equal(t, org == org2 && thread == thread2, bytes.Equal(leaseKey(org, thread), leaseKey(org2, thread2)))
		require.Equal(t, org == org2 && id == id2, bytes.Equal(checkpointKey(org, id), checkpointKey(org2, id2)))
		require.NotEqual(t, threadKey(org, thread), checkpointKey(org, thread))
	})
}
