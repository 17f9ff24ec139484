package snapshot

import (
	"bytes"
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"github.com/snapfs/snapfs/capture"
	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
)

// omission is the stored form of a [capture.Omission]. Both are byte strings: a
// path, and a pattern that a reason quotes, need not be UTF-8.
type omission struct {
	Path cbor.ByteString `cbor:"1,keyasint"`
	Why  cbor.ByteString `cbor:"2,keyasint"`
}

// maxOmissions is how many omissions a list can have: they are all in memory when it
// is read.
const maxOmissions = 4 << 20

var omissionEnc, omissionDec = index.CBOR(cbor.DecOptions{})

// encodeOmissions returns the bytes of a record's list of omissions.
func encodeOmissions(left []capture.Omission) ([]byte, error) {
	if len(left) > maxOmissions {
		return nil, fmt.Errorf("%d entries were left out one by one, at most %d can be listed (exclude whole directories): %w", len(left), maxOmissions, cas.ErrTooLarge)
	}
	list := make([]omission, len(left))
	for i, o := range left {
		list[i] = omission{Path: cbor.ByteString(o.Path), Why: cbor.ByteString(o.Why)}
	}
	data, err := omissionEnc.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("encode omissions: %w", err)
	}
	if len(data) > maxList {
		return nil, fmt.Errorf("the list of what was left out has %d bytes, at most %d can be (exclude whole directories): %w", len(data), maxList, cas.ErrTooLarge)
	}
	return data, nil
}

// decodeOmissions is the inverse of encodeOmissions. It fails with
// [cas.ErrCorrupt].
func decodeOmissions(data []byte) ([]capture.Omission, error) {
	bad := func(why any) ([]capture.Omission, error) {
		return nil, fmt.Errorf("decode omissions: %v: %w", why, cas.ErrCorrupt)
	}
	n, rest, ok := arrayHead(data)
	const least = 5 // bytes of an omission: its map, two keys and two empty strings
	if !ok || n > maxOmissions || n > uint64(len(rest)/least) {
		return bad("no list, or one that is too long")
	}
	left := make([]capture.Omission, n)
	for i := range left {
		var o omission
		behind, err := omissionDec.UnmarshalFirst(rest, &o)
		if err != nil {
			return bad(err)
		}
		again, err := omissionEnc.Marshal(o)
		if err != nil || !bytes.HasPrefix(rest, again) || len(again) != len(rest)-len(behind) {
			return bad("not in their canonical encoding")
		}
		left[i], rest = capture.Omission{Path: string(o.Path), Why: string(o.Why)}, behind
	}
	if len(rest) > 0 {
		return bad("bytes follow their end")
	}
	return left, nil
}

// arrayHead reads how many elements an array in deterministic CBOR has (RFC 8949,
// section 3), and returns what follows.
func arrayHead(data []byte) (n uint64, rest []byte, ok bool) {
	const array, direct = 4 << 5, 24 // the major type; up to here the byte has the number
	if len(data) == 0 || data[0]&^0x1f != array {
		return 0, nil, false
	}
	low := data[0] & 0x1f
	if low < direct {
		return uint64(low), data[1:], true
	}
	if low > direct+3 {
		return 0, nil, false
	}
	size := 1 << (low - direct)
	if len(data) < 1+size {
		return 0, nil, false
	}
	for _, b := range data[1 : 1+size] {
		n = n<<8 | uint64(b)
	}
	shortest := uint64(direct)
	if size > 1 {
		shortest = 1 << (4 * size)
	}
	return n, data[1+size:], n >= shortest
}
