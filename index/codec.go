package index

import (
	"bytes"
	"fmt"

	"github.com/fxamacker/cbor/v2"
)

// encMode and decMode are the modes of records.
var encMode, decMode = CBOR(cbor.DecOptions{
	UTF8:             cbor.UTF8RejectInvalid,
	MaxNestedLevels:  16,
	MaxArrayElements: 4096,
	MaxMapPairs:      4096,
})

// CBOR returns the modes of all that a store keeps in CBOR: deterministic
// encoding (RFC 8949, section 4.2.1), and decoding that refuses duplicate keys,
// indefinite lengths and tags, beside what limits says. Both are immutable and
// safe for concurrent use. It panics on limits that the library refuses.
func CBOR(limits cbor.DecOptions) (cbor.EncMode, cbor.DecMode) {
	limits.DupMapKey = cbor.DupMapKeyEnforcedAPF
	limits.IndefLength = cbor.IndefLengthForbidden
	limits.TagsMd = cbor.TagsForbidden
	enc, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(err) // constant options: it fails always or never
	}
	dec, err := limits.DecMode()
	if err != nil {
		panic(err)
	}
	return enc, dec
}

// Encode returns the one encoding of r. It fails with [ErrInvalid] when r breaks
// the rules of [Record.Validate] or is longer than [MaxRecord].
func Encode(r Record) ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	data, err := encode(r)
	if err != nil {
		return nil, fmt.Errorf("encode record: %w: %w", ErrInvalid, err)
	}
	if len(data) > MaxRecord {
		return nil, fmt.Errorf("encode record: %w record: %d bytes, at most %d are allowed", ErrInvalid, len(data), MaxRecord)
	}
	return data, nil
}

func encode(r Record) ([]byte, error) {
	data, err := encMode.Marshal(r)
	if err != nil || len(r.Extra) == 0 {
		return data, err
	}
	fields := make(map[uint64]cbor.RawMessage)
	if err := decMode.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	for k, v := range r.Extra {
		if known(k) {
			return nil, fmt.Errorf("extra field %d has a field of its own", k)
		}
		if err := canonical(v); err != nil {
			return nil, fmt.Errorf("extra field %d: %w", k, err)
		}
		fields[k] = v
	}
	return encMode.Marshal(fields)
}

// lastField is the highest number among the fields of [Record].
const lastField = 24

func known(key uint64) bool { return key >= 1 && key <= lastField }

// DecodeRecord reads what [Encode] wrote and refuses everything else: other
// encodings of the same fields, duplicate keys, trailing bytes, and values that
// [Record.Validate] does not allow. Fields of a newer version end up in Extra.
// Its errors wrap [ErrInvalid].
func DecodeRecord(data []byte) (Record, error) {
	r, err := decode(data)
	if err != nil {
		return Record{}, fmt.Errorf("decode record: %w", err)
	}
	return r, nil
}

func decode(data []byte) (Record, error) {
	var r Record
	if len(data) > MaxRecord {
		return r, fmt.Errorf("%w record: %d bytes, at most %d are allowed", ErrInvalid, len(data), MaxRecord)
	}
	if err := decMode.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("%w record: %w", ErrInvalid, err)
	}
	again, err := encode(r)
	if err != nil {
		return r, fmt.Errorf("%w record: %w", ErrInvalid, err)
	}
	if !bytes.Equal(again, data) {
		// Either fields that are not known here, or another spelling.
		fields := make(map[uint64]cbor.RawMessage)
		if err := decMode.Unmarshal(data, &fields); err != nil {
			return r, fmt.Errorf("%w record: %w", ErrInvalid, err)
		}
		r.Extra = make(map[uint64]cbor.RawMessage)
		for k, v := range fields {
			if !known(k) {
				r.Extra[k] = v
			}
		}
		if again, err = encode(r); err != nil {
			return r, fmt.Errorf("%w record: %w", ErrInvalid, err)
		}
		if !bytes.Equal(again, data) {
			return r, fmt.Errorf("%w record: not in its canonical encoding", ErrInvalid)
		}
	}
	return r, r.Validate()
}

// canonical checks that one CBOR value is spelled as [Encode] would.
func canonical(value cbor.RawMessage) error {
	var v any
	if err := decMode.Unmarshal(value, &v); err != nil {
		return err
	}
	again, err := encMode.Marshal(v)
	if err != nil {
		return err
	}
	if !bytes.Equal(again, value) {
		return fmt.Errorf("not in its canonical encoding")
	}
	return nil
}
