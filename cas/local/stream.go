package local

import (
	"io"

	"github.com/klauspost/compress/zstd"
)

// MaxWindow bounds the memory that reading a zstd stream takes, in bytes: what the
// zstd program takes without being asked for more.
const MaxWindow = 128 << 20

// A StreamWriter packs a stream as one zstd frame with a checksum at its end. Equal
// streams give equal bytes.
type StreamWriter struct{ enc *zstd.Encoder }

// NewStreamWriter returns a writer whose frame goes to w.
func NewStreamWriter(w io.Writer) (*StreamWriter, error) {
	enc, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderCRC(true), zstd.WithEncoderConcurrency(2))
	if err != nil {
		return nil, err
	}
	return &StreamWriter{enc}, nil
}

// Write implements [io.Writer].
func (s *StreamWriter) Write(b []byte) (int, error) { return s.enc.Write(b) }

// Close ends the frame. It does not close what that goes to.
func (s *StreamWriter) Close() error { return s.enc.Close() }

// Abandon frees the writer and leaves the frame without an end, so that every reader
// sees that it is not whole.
func (s *StreamWriter) Abandon() { s.enc.Reset(nil) }

// NewStreamReader unpacks a stream of zstd frames and verifies their checksums. A frame
// that needs a window of more than [MaxWindow] is refused. Closing the reader frees it,
// and does not close r.
func NewStreamReader(r io.Reader) (io.ReadCloser, error) {
	dec, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxWindow(MaxWindow))
	if err != nil {
		return nil, err
	}
	return dec.IOReadCloser(), nil
}
