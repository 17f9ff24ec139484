package fs

import "sync/atomic"

// op is a kind of request.
type op int

const (
	opLookup op = iota
	opForget
	opGetattr
	opReadlink
	opOpen
	opRead
	opFlush
	opOpendir
	opReaddir
	opReaddirplus
	opStatfs
	opGetxattr
	opListxattr
	opOther // what would change something
	opStore // no request: contents that were given ahead
	opCount
)

// opNames are the kernel's names of the requests (linux/fuse.h).
var opNames = [opCount]string{
	opLookup: "LOOKUP", opForget: "FORGET", opGetattr: "GETATTR", opReadlink: "READLINK", opOpen: "OPEN", opRead: "READ",
	opFlush: "FLUSH", opOpendir: "OPENDIR", opReaddir: "READDIR", opReaddirplus: "READDIRPLUS", opStatfs: "STATFS", opGetxattr: "GETXATTR", opListxattr: "LISTXATTR", opOther: "OTHER", opStore: "STORE",
}

type counter struct{ atomic.Uint64 }

func (f *FS) count(o op) { f.counts[o].Add(1) }

// addRequests adds the mount's counts of requests by name to sums.
func (f *FS) addRequests(sums map[string]uint64) {
	for o := range f.counts {
		sums[opNames[o]] += f.counts[o].Load()
	}
}
