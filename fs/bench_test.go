package fs

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/snapshot"
)

// BenchmarkListing answers the requests of a find over 2,000 directories with
// 7,000 files, as they come from the kernel.
func BenchmarkListing(b *testing.B) {
	store, err := snapshot.Open(b.Context(), filepath.Join(b.TempDir(), "store"), snapshot.Options{Create: true})
	require.NoError(b, err)
	defer store.Close()
	ws := b.TempDir()
	for i := range 7000 {
		dir := filepath.Join(ws, fmt.Sprint("p", i/70), fmt.Sprint("lib", i%3), fmt.Sprint("s", i%7))
		require.NoError(b, os.MkdirAll(dir, 0o755))
		require.NoError(b, os.WriteFile(filepath.Join(dir, fmt.Sprint("file", i, ".js")), []byte(fmt.Sprint("content", i)), 0o644))
	}
	res, err := store.Save(b.Context(), snapshot.SaveOptions{Workspace: ws, Thread: "t"})
	require.NoError(b, err)
	for b.Loop() {
		f := New(store, Options{})
		proto := fuse.NewProtocolServer(f, &fuse.MountOptions{MaxWrite: maxRequest, EnableSymlinkCaching: true, ExtraCapabilities: fuse.CAP_NO_OPENDIR_SUPPORT})
		in, out := make([]byte, messageSize), make([]byte, messageSize)
		requests := 0
		call := func(opcode uint32, id uint64, body []byte) []byte {
			requests++
			binary.NativeEndian.PutUint32(in[4:], opcode)
			binary.NativeEndian.PutUint64(in[8:], uint64(requests))
			binary.NativeEndian.PutUint64(in[16:], id)
			n := 40 + copy(in[40:], body)
			binary.NativeEndian.PutUint32(in, uint32(n))
			size, _ := proto.HandleRequest([][]byte{in[:n]}, [][]byte{out})
			return out[16:max(size, 16)]
		}
		initIn := make([]byte, 64)
		binary.NativeEndian.PutUint32(initIn, 7)
		binary.NativeEndian.PutUint32(initIn[4:], 40)
		call(26, 0, initIn)
		id := uint64(fuse.FUSE_ROOT_ID)
		for _, name := range []string{"threads", "t", res.Checkpoint.ID, "files"} {
			id = binary.NativeEndian.Uint64(call(1, id, append([]byte(name), 0)))
		}
		read := make([]byte, 40)
		binary.NativeEndian.PutUint32(read[16:], 128<<10)
		dirs := []uint64{id}
		for len(dirs) > 0 {
			id := dirs[len(dirs)-1]
			dirs = dirs[:len(dirs)-1]
			binary.NativeEndian.PutUint64(read[8:], 0)
			names := 0
			for _, e := range plusEntries(call(44, id, read)) {
				names++
				if e.Mode&fuse.S_IFDIR != 0 && e.NodeId != 0 {
					dirs = append(dirs, e.NodeId)
				}
			}
			binary.NativeEndian.PutUint64(read[8:], uint64(names))
			require.Empty(b, call(44, id, read))
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(requests), "ns/request")
		b.ReportMetric(float64(requests), "requests")
	}
}
