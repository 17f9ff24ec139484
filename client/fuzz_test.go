package client_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/client"
)

// FuzzParseReplies: a reply that is accepted tells what it would be written as.
func FuzzParseReplies(f *testing.F) {
	f.Add(client.AppendLocations(nil, []cas.Location{{Pack: cas.PackID{1}, Offset: 2, Stored: 3, Plain: 4, Kind: cas.Data, Encoding: cas.Zstd}, {}}), 2)
	f.Add(client.AppendMissing(nil, []bool{true, false, true}), 3)
	f.Add([]byte{0xff}, 8)
	f.Add([]byte{}, -1)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		if n < 0 || n > client.MaxKeys {
			return
		}
		if locs, err := client.ParseLocations(b, n); err == nil {
			require.Len(t, locs, n)
			again, err := client.ParseLocations(client.AppendLocations(nil, locs), n)
			require.NoError(t, err)
			require.Equal(t, locs, again)
		}
		if have, err := client.ParseMissing(b, n); err == nil {
			require.Len(t, have, n)
			again, err := client.ParseMissing(client.AppendMissing(nil, have), n)
			require.NoError(t, err)
			require.Equal(t, have, again)
		}
	})
}

// FuzzErrorBody: whatever a daemon says of an error, it is one.
func FuzzErrorBody(f *testing.F) {
	f.Add([]byte(`{"code":"not_found","message":"m","hint":"h"}`))
	f.Add([]byte(`{"code":"no such code","details":["a"]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var body client.ErrorBody
		if json.Unmarshal(data, &body) != nil || body.Code == "" {
			return
		}
		err := body.Err()
		require.Error(t, err)
		require.NotPanics(t, func() { _ = err.Error() })
	})
}
