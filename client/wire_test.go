package client_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/client"
)

func TestBodiesSurviveTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 40).Draw(t, "n")
		keys, same, locs, have := []cas.Key{}, []cas.Key{}, []cas.Location{}, []bool{}
		for range n {
			k := cas.Key{NS: rapid.SampledFrom([]cas.Namespace{cas.Files, cas.Artifacts, cas.Trees, cas.Records}).Draw(t, "ns")}
			copy(k.Hash[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "hash"))
			keys = append(keys, k)
			same = append(same, cas.Key{NS: cas.Trees, Hash: k.Hash})
			locs = append(locs, cas.Location{
				Pack:   cas.PackID(k.Hash[:16]),
				Offset: rapid.Uint32().Draw(t, "offset"), Stored: rapid.Uint32().Draw(t, "stored"), Plain: rapid.Uint32().Draw(t, "plain"),
				Kind: cas.Kind(rapid.Byte().Draw(t, "kind")), Encoding: cas.Encoding(rapid.Byte().Draw(t, "encoding")),
			})
			have = append(have, rapid.Bool().Draw(t, "have"))
		}
		gotKeys, err := client.ParseKeys(client.AppendKeys(nil, keys))
		require.NoError(t, err)
		require.Equal(t, keys, gotKeys)
		gotKeys, err = client.ParseHashes(cas.Trees, client.AppendHashes(nil, same))
		require.NoError(t, err)
		require.Equal(t, same, gotKeys)
		body := client.AppendLocations(nil, locs)
		require.Len(t, body, n*client.LocationSize)
		gotLocs, err := client.ParseLocations(body, n)
		require.NoError(t, err)
		require.Equal(t, locs, gotLocs)
		gotHave, err := client.ParseMissing(client.AppendMissing(nil, have), n)
		require.NoError(t, err)
		require.Equal(t, have, gotHave)
	})
}

func FuzzParseKeys(f *testing.F) {
	f.Add([]byte{})
	f.Add(client.AppendKeys(nil, []cas.Key{{NS: cas.Files}, {NS: cas.Records}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		keys, err := client.ParseKeys(b)
		if err == nil {
			require.Equal(t, b, client.AppendKeys([]byte{}, keys))
		}
		hashes, err := client.ParseHashes(cas.Files, b)
		if err == nil {
			require.Equal(t, b, client.AppendHashes([]byte{}, hashes))
		}
	})
}
