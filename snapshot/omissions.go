package snapshot

import (
	"fmt"
	"math"

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

// A list may be as long as the workspace has entries.
var omissionEnc, omissionDec = index.CBOR(cbor.DecOptions{MaxArrayElements: math.MaxInt32})

// encodeOmissions returns the bytes of a record's list of omissions.
func encodeOmissions(left []capture.Omission) ([]byte, error) {
	list := make([]omission, len(left))
	for i, o := range left {
		list[i] = omission{Path: cbor.ByteString(o.Path), Why: cbor.ByteString(o.Why)}
	}
	data, err := omissionEnc.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("encode omissions: %w", err)
	}
	return data, nil
}

// decodeOmissions is the inverse of encodeOmissions. It fails with
// [cas.ErrCorrupt].
func decodeOmissions(data []byte) ([]capture.Omission, error) {
	var list []omission
	if err := omissionDec.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("decode omissions: %w: %w", err, cas.ErrCorrupt)
	}
	left := make([]capture.Omission, len(list))
	for i, o := range list {
		left[i] = capture.Omission{Path: string(o.Path), Why: string(o.Why)}
	}
	return left, nil
}
