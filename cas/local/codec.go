package local

import (
	"fmt"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"github.com/snapfs/snapfs/cas"
)

// Compression says whether new objects are compressed. What is stored is
// readable either way.
type Compression string

// The compressions.
const (
	Auto Compression = "auto" // Snappy or zstd's fastest level where it shrinks by a tenth or more; also the zero value's meaning
	Off  Compression = "off"
)

// ParseCompression reads "auto", "off" or "" (auto).
func ParseCompression(s string) (Compression, error) {
	switch c := Compression(s); c {
	case Auto, Off:
		return c, nil
	case "":
		return Auto, nil
	}
	return "", fmt.Errorf("unknown compression %q: want auto or off", s)
}

// Below minCompress bytes nothing is gained. Below snappyLimit zstd takes longer for
// its tables of codes than for the bytes: Snappy packs in a third of the time, unpacks
// in less than half, and leaves a fifth to a third more. Above probeLimit a probe of
// probeSize bytes from the middle decides whether the whole is tried.
const (
	minCompress = 512
	snappyLimit = 32 << 10
	probeLimit  = 128 << 10
	probeSize   = 16 << 10
)

// newEncoder makes the encoder that all writers of a store share.
var newEncoder = sync.OnceValues(func() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false), zstd.WithWindowSize(4<<20))
})

// newDecoder makes the decoder that all readers of a store share.
var newDecoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(cas.MaxObject))
})

// encode picks the encoding for data. The payload is data itself or overwrites
// dst, if it fits in there.
func encode(data, dst []byte, c Compression) (cas.Encoding, []byte, error) {
	if c == Off || len(data) < minCompress {
		return cas.Raw, data, nil
	}
	if len(data) < snappyLimit {
		if packed := s2.EncodeSnappy(dst[:cap(dst)], data); pays(len(packed), len(data)) {
			return cas.Snappy, packed, nil
		}
		return cas.Raw, data, nil
	}
	enc, err := newEncoder()
	if err != nil {
		return 0, nil, fmt.Errorf("start zstd: %w", err)
	}
	if len(data) > probeLimit {
		at := (len(data) - probeSize) / 2
		if probe := enc.EncodeAll(data[at:at+probeSize], dst[:0]); !pays(len(probe), probeSize) {
			return cas.Raw, data, nil
		}
	}
	packed := enc.EncodeAll(data, dst[:0])
	if !pays(len(packed), len(data)) {
		return cas.Raw, data, nil
	}
	return cas.Zstd, packed, nil
}

// pays reports whether packed is shorter than plain by a tenth or more.
func pays(packed, plain int) bool { return packed <= plain-plain/10 }

// decode appends the object of r to dst and proves it against its name.
func (r record) decode(dst []byte) ([]byte, error) {
	start := len(dst)
	dst, err := r.unpack(dst)
	if err == nil {
		err = r.prove(dst[start:])
	}
	if err != nil {
		return nil, err
	}
	return dst, nil
}

// unpack appends the object of r to dst.
func (r record) unpack(dst []byte) ([]byte, error) {
	start := len(dst)
	if need := start + int(r.plain); cap(dst) < need {
		dst = append(make([]byte, 0, need), dst...)
	}
	var err error
	switch r.encoding {
	case cas.Raw:
		dst = append(dst, r.payload...)
	case cas.Zstd:
		// As above. A frame need not tell its length; then no more is taken than an
		// object can have.
		var head zstd.Header
		if err = head.Decode(r.payload); err == nil && head.HasFCS && head.FrameContentSize != uint64(r.plain) {
			err = fmt.Errorf("a frame of %d bytes where %d were stored", head.FrameContentSize, r.plain)
		}
		if err != nil {
			break
		}
		dec, derr := newDecoder()
		if derr != nil {
			return nil, fmt.Errorf("start zstd: %w", derr)
		}
		dst, err = dec.DecodeAll(r.payload, dst)
	case cas.Snappy:
		// What the payload says of its length decides how much memory is taken.
		var n int
		if n, err = s2.DecodedLen(r.payload); err == nil && n == int(r.plain) {
			_, err = s2.Decode(dst[start:][:n], r.payload)
			dst = dst[:start+n]
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %v: %w", r.key, err, cas.ErrCorrupt)
	}
	if len(dst)-start != int(r.plain) {
		return nil, fmt.Errorf("%s: %d bytes where %d were stored: %w", r.key, len(dst)-start, r.plain, cas.ErrCorrupt)
	}
	return dst, nil
}

// prove compares an object with its name.
func (r record) prove(plain []byte) error {
	if r.kind.Sum(plain) != r.key.Hash {
		return fmt.Errorf("%s: bytes do not match the name: %w", r.key, cas.ErrCorrupt)
	}
	return nil
}
