package local

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/cas/castest"
)

// encodedRecord is an object as a record.
func encodedRecord(t testing.TB, o cas.Object) []byte {
	t.Helper()
	enc, payload, err := encode(o.Data, nil, Auto)
	require.NoError(t, err)
	return record{key: o.Key, kind: o.Kind, encoding: enc, plain: uint32(len(o.Data)), payload: payload}.append(nil)
}

// rawPack is a pack without a footer, and where its records begin.
func rawPack(records ...[]byte) (b []byte, offs []int) {
	b = appendPackHeader(nil)
	for _, r := range records {
		offs = append(offs, len(b))
		b = append(b, r...)
	}
	return b, offs
}

// TestScanGoesOnBehindDamage: all records but the damaged ones are found, whatever
// their encoding and whichever byte is damaged.
func TestScanGoesOnBehindDamage(t *testing.T) {
	objects := []cas.Object{
		cas.NewObject(cas.Files, cas.Data, castest.Noise(1, 300)),
		cas.NewObject(cas.Trees, cas.Data, bytes.Repeat([]byte("words "), 200)), // Snappy
		cas.NewObject(cas.Files, cas.List, []byte("a list")),
		cas.NewObject(cas.Artifacts, cas.Data, bytes.Repeat([]byte("many words "), 4000)), // zstd
		cas.NewObject(cas.Records, cas.Data, []byte("the last")),
	}
	var records [][]byte
	encodings := map[cas.Encoding]bool{}
	for _, o := range objects {
		records = append(records, encodedRecord(t, o))
		r, err := parseRecord(records[len(records)-1], true)
		require.NoError(t, err)
		encodings[r.encoding] = true
	}
	require.Len(t, encodings, 3)
	whole, offs := rawPack(records...)
	keys := func(found []cas.Located) (out []cas.Key) {
		for _, o := range found {
			out = append(out, o.Key)
		}
		return out
	}
	require.Len(t, scan(whole, cas.PackID{1}), len(objects))
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 0x20
		var want []cas.Key
		for n, off := range offs {
			if i < off || i >= off+len(records[n]) {
				want = append(want, objects[n].Key)
			}
		}
		require.Equal(t, want, keys(scan(b, cas.PackID{1})), "byte %d", i)
	}
	// Bytes that are missing, or too many, in the middle.
	for _, n := range []int{1, 50, 200} {
		cut := append(bytes.Clone(whole[:offs[1]+10]), whole[offs[1]+10+n:]...)
		require.Contains(t, keys(scan(cut, cas.PackID{1})), objects[4].Key)
		more := append(append(bytes.Clone(whole[:offs[1]+10]), make([]byte, n)...), whole[offs[1]+10:]...)
		require.Equal(t, []cas.Key{objects[0].Key, objects[2].Key, objects[3].Key, objects[4].Key}, keys(scan(more, cas.PackID{1})))
	}
	require.Empty(t, scan(nil, cas.PackID{1}))
	require.Empty(t, scan([]byte(recordMagic), cas.PackID{1}))
}

// TestScanBelievesNoContent: a file whose bytes look like records brings none in
// that is false, and none at all while its own record is whole.
func TestScanBelievesNoContent(t *testing.T) {
	truth := cas.NewObject(cas.Trees, cas.Data, []byte("a true object"))
	victim := cas.NewObject(cas.Trees, cas.Data, []byte("what a directory is"))
	lie := encodedRecord(t, cas.Object{Key: victim.Key, Kind: cas.Data, Data: []byte("what somebody would have it be")})
	_, err := parseRecord(lie, true)
	require.NoError(t, err, "its checksum is right")
	hostile := cas.NewObject(cas.Files, cas.Data, bytes.Join([][]byte{[]byte("x"), lie, encodedRecord(t, truth), lie, lie}, nil))
	after := cas.NewObject(cas.Files, cas.Data, []byte("what comes after"))
	b, offs := rawPack(encodedRecord(t, hostile), encodedRecord(t, after))
	key := func(found []cas.Located) (out []cas.Key) {
		for _, o := range found {
			out = append(out, o.Key)
		}
		return out
	}
	require.Equal(t, []cas.Key{hostile.Key, after.Key}, key(scan(b, cas.PackID{1})))

	damaged := bytes.Clone(b) // the record's header says still where it ends
	damaged[offs[0]+recordHeader] ^= 1
	require.Equal(t, []cas.Key{after.Key}, key(scan(damaged, cas.PackID{1})))

	damaged = bytes.Clone(b) // and now it does not
	damaged[offs[0]] ^= 1
	require.Equal(t, []cas.Key{truth.Key, after.Key}, key(scan(damaged, cas.PackID{1})))
}

// TestSearchEnds: content that is made to be checked for ever is not.
func TestSearchEnds(t *testing.T) {
	b := appendPackHeader(make([]byte, 0, maxPack))
	fake := record{key: cas.Key{NS: cas.Files}, kind: cas.Data}.append(nil)
	for len(b)+recordHeader <= maxPack {
		binary.LittleEndian.PutUint32(fake[20:], uint32(maxPack-len(b)-recordHeader))
		copy(fake[24:], fake[20:24])
		b = append(b, fake...)
	}
	began := time.Now()
	require.Empty(t, scan(b, cas.PackID{1}))
	require.Less(t, time.Since(began), time.Minute)
}

// TestSetAside: a pack that is moved away is not looked for, and who reads it reads
// on.
func TestSetAside(t *testing.T) {
	s, index := newStore(t, Options{})
	o, more := cas.NewObject(cas.Files, cas.Data, []byte("whole")), cas.NewObject(cas.Records, cas.Data, []byte("added"))
	castest.Put(t, s, o)
	at := index.at[o.Key]
	f, err := os.Open(packPath(index.dir, at.Pack))
	require.NoError(t, err)
	defer f.Close()
	moved, err := s.Rewrite(t.Context(), []cas.Located{{Key: o.Key, Location: at}}, more)
	require.NoError(t, err)
	require.Len(t, moved, 2)
	for _, m := range moved {
		index.at[m.Key] = m.Location
	}
	for range 2 {
		require.NoError(t, s.SetAside(at.Pack))
		require.FileExists(t, filepath.Join(index.dir, DamagedDir, at.Pack.String()+packSuffix))
	}
	_, err = f.ReadAt(make([]byte, packHeader), 0)
	require.NoError(t, err)
	for _, want := range []cas.Object{o, more} {
		got, err := s.Read(t.Context(), want.Key, nil)
		require.NoError(t, err)
		require.Equal(t, want.Data, got)
	}
	packs, _, err := Size(index.dir)
	require.NoError(t, err)
	require.Equal(t, 1, packs)
}

func FuzzScan(f *testing.F) {
	b, _ := rawPack(encodedRecord(f, cas.NewObject(cas.Files, cas.Data, []byte("a"))), []byte("SFRC"), encodedRecord(f, cas.NewObject(cas.Trees, cas.Data, []byte("b"))))
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		end := int64(0)
		for _, o := range scan(b, cas.PackID{1}) {
			require.GreaterOrEqual(t, int64(o.Location.Offset), end)
			end = RecordEnd(o.Location)
			require.LessOrEqual(t, end, int64(len(b)))
		}
	})
}
