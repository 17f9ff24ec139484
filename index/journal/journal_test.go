package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/internal/disk"
)

func event(n int) Publish {
	return Publish{
		Org: "acme", Checkpoint: fmt.Sprintf("c%d", n), Thread: "t", Record: cas.Data.Sum([]byte{byte(n)}),
		ExpectedHead: fmt.Sprintf("c%d", n-1), Name: fmt.Sprintf("name %d", n),
	}
}

func open(t *testing.T, dir string, opt Options) *Journal {
	t.Helper()
	j, err := Open(dir, opt)
	require.NoError(t, err)
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func appendN(t *testing.T, j *Journal, n int) {
	t.Helper()
	for range n {
		want := j.Last() + 1
		e, err := j.Append(event(int(want)))
		require.NoError(t, err)
		require.Equal(t, want, e.Seq)
	}
}

// replayed checks that the journal holds the events from, from+1 ... last.
func replayed(t *testing.T, j *Journal, from, last uint64) {
	t.Helper()
	require.Equal(t, last, j.Last())
	next := from
	for e, err := range j.Replay(from) {
		require.NoError(t, err)
		require.Equal(t, next, e.Seq)
		require.Equal(t, event(int(next)), e.Event)
		require.WithinDuration(t, time.Now(), e.Time, time.Hour)
		require.NotZero(t, e.Sum)
		next++
	}
	require.Equal(t, max(last+1, from), next)
}

func TestAppendReplay(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	j := open(t, dir, Options{})
	replayed(t, j, 1, 0)
	appendN(t, j, 5)
	replayed(t, j, 1, 5)
	replayed(t, j, 4, 5)
	replayed(t, j, 6, 5)
	for range j.Replay(1) {
		break
	}
	_, err := Open(dir, Options{})
	require.ErrorIs(t, err, index.ErrInUse)
	require.NoError(t, j.Close())
	require.NoError(t, j.Close())
	_, err = j.Append(event(6))
	require.ErrorIs(t, err, index.ErrClosed)
	j = open(t, dir, Options{})
	replayed(t, j, 1, 5)
	appendN(t, j, 1)
	replayed(t, j, 1, 6)
	require.Zero(t, j.Cut())
	st, err := os.Stat(filepath.Join(dir, "00000001.log"))
	require.NoError(t, err)
	require.EqualValues(t, 0o600, st.Mode().Perm())
}

func TestSum(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	e, err := j.Append(event(1))
	require.NoError(t, err)
	for got, err := range j.Replay(1) {
		require.NoError(t, err)
		require.Equal(t, e, got)
	}
}

// TestTornTail cuts the last entry at every byte or leaves zeros there, and
// expects the entries before to live and the journal to go on. One that is all
// there but for a flipped bit was acknowledged for all we know: nothing is changed.
func TestTornTail(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	appendN(t, j, 2)
	kept := int(j.size)
	appendN(t, j, 1)
	require.NoError(t, j.Close())
	whole, err := os.ReadFile(filepath.Join(dir, "00000001.log"))
	require.NoError(t, err)

	tails := map[string][]byte{"zeros": make([]byte, 5000), "zeros after a part": append(bytes.Clone(whole[kept:kept+30]), make([]byte, 1000)...)}
	for n := kept + 1; n < len(whole); n++ {
		tails[fmt.Sprintf("cut at %d", n)] = whole[kept:n]
	}
	large := appendFrame(nil, bytes.Repeat([]byte("0123456789"), 300))
	clear(large[2*512-kept : 3*512-kept]) // a sector that did not reach the disk
	tails["a hole"] = large
	for i := kept; i < len(whole); i++ {
		for _, bit := range []byte{0x01, 0x10, 0x80} {
			dir := t.TempDir()
			path := filepath.Join(dir, "00000001.log")
			flipped := bytes.Clone(whole)
			flipped[i] ^= bit
			require.NoError(t, os.WriteFile(path, flipped, 0o600))
			_, err := Open(dir, Options{})
			require.ErrorIs(t, err, index.ErrCorrupt, "byte %d", i)
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, flipped, after)
		}
	}
	for name, tail := range tails {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "00000001.log"), append(bytes.Clone(whole[:kept]), tail...), 0o600))
		var log bytes.Buffer
		j, err := Open(dir, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err, name)
		require.EqualValues(t, len(tail), j.Cut(), name)
		require.Contains(t, log.String(), "cut an unfinished entry", name)
		replayed(t, j, 1, 2)
		appendN(t, j, 1)
		replayed(t, j, 1, 3)
		require.NoError(t, j.Close())
	}
}

// TestDamagedMiddle flips every byte before the last entry.
func TestDamagedMiddle(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	appendN(t, j, 2)
	end := int(j.size)
	appendN(t, j, 1)
	require.NoError(t, j.Close())
	path := filepath.Join(dir, "00000001.log")
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for i := range end {
		damaged := bytes.Clone(whole)
		damaged[i] ^= 0x40
		require.NoError(t, os.WriteFile(path, damaged, 0o600))
		_, err := Open(dir, Options{})
		require.ErrorIs(t, err, index.ErrCorrupt, "byte %d", i)
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, damaged, after, "nothing is changed")
	}
}

// TestLookalike: a name that contains a frame does not make a torn tail look
// like damage in the middle.
func TestLookalike(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	data, err := encodePayload(Entry{Seq: 9, Event: event(9)})
	require.NoError(t, err)
	_, err = j.Append(Publish{Org: "acme", Checkpoint: "c", Thread: string(bytes.ToValidUTF8(appendFrame(nil, data), []byte("?")))})
	require.NoError(t, err)
	end := j.size
	require.NoError(t, j.Close())
	require.NoError(t, os.Truncate(filepath.Join(dir, "00000001.log"), end-1))
	require.Zero(t, open(t, dir, Options{}).Last())
}

func TestRotation(t *testing.T) {
	dir := t.TempDir()
	opt := Options{FileSize: 300}
	j := open(t, dir, opt)
	appendN(t, j, 20)
	replayed(t, j, 1, 20)
	replayed(t, j, 11, 20)
	require.Greater(t, len(j.segments), 3)
	require.NoError(t, j.Close())
	j = open(t, dir, opt)
	replayed(t, j, 7, 20)
	appendN(t, j, 5)
	replayed(t, j, 1, 25)
	n := len(j.segments)
	first := j.segments[1].path
	require.NoError(t, j.Close())

	// A crash while the next file was made: any part of its header, or zeros.
	next := filepath.Join(dir, segmentName(n+1))
	for size := range fileHeaderSize {
		require.NoError(t, os.WriteFile(next, fileHeader(26)[:size], 0o600))
		j = open(t, dir, opt)
		replayed(t, j, 1, 25)
		appendN(t, j, 1)
		require.Equal(t, next, j.segments[n].path)
		replayed(t, j, 1, 26)
		require.NoError(t, j.Close())
	}
	// A last file without entries.
	require.NoError(t, os.WriteFile(next, fileHeader(26), 0o600))
	j = open(t, dir, opt)
	replayed(t, j, 1, 25)
	require.NoError(t, j.Close())

	// An old file is checked when it is replayed.
	data, err := os.ReadFile(first)
	require.NoError(t, err)
	data[len(data)-1] ^= 1
	require.NoError(t, os.WriteFile(first, data, 0o600))
	j = open(t, dir, opt)
	var last error
	for _, err := range j.Replay(1) {
		last = err
	}
	require.ErrorIs(t, last, index.ErrCorrupt)
	require.NoError(t, j.Close())

	require.NoError(t, os.Remove(first))
	_, err = Open(dir, opt)
	require.ErrorIs(t, err, index.ErrCorrupt)
	require.ErrorContains(t, err, "00000002.log is missing")
}

type future struct {
	Field string `cbor:"1,keyasint"`
}

func (future) Type() Type { return 4711 }

func TestNewerEvent(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	appendN(t, j, 1)
	_, err := j.Append(future{"?"})
	require.NoError(t, err)
	require.NoError(t, j.Close())
	j = open(t, dir, Options{})
	var last error
	for _, err := range j.Replay(1) {
		last = err
	}
	require.ErrorIs(t, last, index.ErrNewer)
	require.ErrorContains(t, last, "newer snapfs")
	require.NoError(t, j.Close())

	newer := fileHeader(1)
	newer[11] = 2
	binary.BigEndian.PutUint32(newer[24:], crc32.Checksum(newer[:24], castagnoli))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "00000001.log"), newer, 0o600))
	_, err = Open(dir, Options{})
	require.ErrorIs(t, err, index.ErrNewer)
}

// TestUnknownKeys: a later version may add keys that need not be understood.
func TestUnknownKeys(t *testing.T) {
	fields, err := encMode.Marshal(map[int]any{1: "acme", 2: "c1", 3: "t", 99: "later"})
	require.NoError(t, err)
	data, err := encMode.Marshal(map[int]any{1: 1, 2: 5, 3: TypePublish, 4: cbor.RawMessage(fields), 50: true})
	require.NoError(t, err)
	e, err := decodePayload(data)
	require.NoError(t, err)
	require.Equal(t, Entry{Seq: 1, Time: time.Unix(0, 5).UTC(), Event: Publish{Org: "acme", Checkpoint: "c1", Thread: "t"}}, e)
}

// failing is a file whose next operations fail.
type failing struct {
	disk.File
	write, sync, truncate error
	short                 int // bytes that reach the file before write fails
}

func (f *failing) Write(b []byte) (int, error) {
	if f.write == nil {
		return f.File.Write(b)
	}
	n, _ := f.File.Write(b[:f.short])
	return n, f.write
}

func (f *failing) Sync() error {
	if err := f.sync; err != nil {
		f.sync = nil // as the kernel does: it reports a lost page once
		return err
	}
	return f.File.Sync()
}

func (f *failing) Truncate(n int64) error {
	if f.truncate != nil {
		return f.truncate
	}
	return f.File.Truncate(n)
}

func TestFailedAppend(t *testing.T) {
	full := &os.PathError{Op: "write", Path: "x", Err: unix.ENOSPC}
	tests := []struct {
		name    string
		f       failing
		noSpace bool
		refuses bool
	}{
		{name: "no space", f: failing{write: full, short: 20}, noSpace: true},
		{name: "quota", f: failing{write: unix.EDQUOT}, noSpace: true},
		{name: "no space at fsync", f: failing{sync: full}, noSpace: true},
		{name: "i/o error", f: failing{write: unix.EIO, short: 5}},
		{name: "not undone", f: failing{write: full, short: 20, truncate: unix.EIO}, noSpace: true, refuses: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir, Options{})
			appendN(t, j, 2)
			f := test.f
			f.File = j.f
			j.f = &f
			_, err := j.Append(event(3))
			require.Error(t, err)
			require.Equal(t, test.noSpace, errors.Is(err, cas.ErrNoSpace), err)
			replayed(t, j, 1, 2)
			f.write, f.truncate = nil, nil
			if test.refuses {
				_, err := j.Append(event(3))
				require.ErrorContains(t, err, "open it again")
			} else {
				appendN(t, j, 1)
				replayed(t, j, 1, 3)
			}
			last := j.Last()
			require.NoError(t, j.Close())
			replayed(t, open(t, dir, Options{}), 1, last)
		})
	}
}

func FuzzOpen(f *testing.F) {
	frame := func(seq uint64) []byte {
		data, err := encodePayload(Entry{Seq: seq, Time: time.Unix(1, 0), Event: event(1)})
		require.NoError(f, err)
		return appendFrame(nil, data)
	}
	two := append(frame(1), frame(2)...)
	f.Add(two)
	f.Add(two[:len(two)-3])
	f.Add(frame(2))
	f.Add(append(frame(1), make([]byte, 50)...))
	f.Fuzz(func(t *testing.T, frames []byte) {
		dir := t.TempDir()
		path := filepath.Join(dir, "00000001.log")
		data := append(fileHeader(1), frames...)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		j, err := Open(dir, Options{})
		if err != nil {
			require.ErrorIs(t, err, index.ErrCorrupt)
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, data, after)
			return
		}
		defer func() { _ = j.Close() }()
		for _, err := range j.Replay(1) {
			if err != nil && !errors.Is(err, index.ErrNewer) {
				require.ErrorIs(t, err, index.ErrCorrupt)
			}
		}
		_, err = j.Append(event(1))
		require.NoError(t, err)
	})
}

func FuzzFrame(f *testing.F) {
	f.Add(appendFrame(nil, []byte("payload")))
	f.Add(appendFrame(nil, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		payload, sum, size, err := readFrame(b)
		if err == nil {
			require.Equal(t, appendFrame(nil, payload), b[:size])
			require.Equal(t, sum, frameSum(b[4:8], payload))
		}
		if i := findFrame(b); i >= 0 {
			_, _, _, err := readFrame(b[i:])
			require.NoError(t, err)
		}
	})
}

// TestEntries: how they are written is part of the format.
func TestEntries(t *testing.T) {
	for _, c := range []struct {
		event Event
		want  string
	}{
		{
			AcquireLease{Org: "o", Thread: "t", Token: cas.Hash{1, 31: 2}, Owner: "me", Expires: 5, TTL: 6},
			"a4" + "0107" + "0203" + "0308" + "04a6" + "01616f" + "026174" + "035820" + "01" + strings.Repeat("00", 30) + "02" + "04626d65" + "0505" + "0606",
		},
		{ReleaseLease{Org: "o", Thread: "t", Fence: 7}, "a4" + "0107" + "0203" + "0309" + "04a3" + "01616f" + "026174" + "0307"},
		{Deleting{Org: "o", Checkpoints: []string{"a", "b"}}, "a4" + "0107" + "0203" + "030a" + "04a2" + "01616f" + "028261616162"},
		{Deleting{Org: "o", Thread: "t"}, "a4" + "0107" + "0203" + "030a" + "04a2" + "01616f" + "036174"},
		{DeleteSome{Org: "o", Checkpoints: []string{"a", "b"}}, "a4" + "0107" + "0203" + "030c" + "04a2" + "01616f" + "028261616162"},
		{Receive{Publish: Publish{Org: "o", Checkpoint: "c", Thread: "t"}, Store: "s", Seq: 9}, "a4" + "0107" + "0203" + "030b" + "04a5" + "01616f" + "026163" + "036174" + "086173" + "0909"},
	} {
		data, err := encodePayload(Entry{Seq: 7, Time: time.Unix(0, 3), Event: c.event})
		require.NoError(t, err)
		require.Equal(t, c.want, hex.EncodeToString(data))
		e, err := decodePayload(data)
		require.NoError(t, err)
		require.Equal(t, c.event, e.Event)
	}
}
