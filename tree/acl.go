package tree

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// A POSIX ACL as the kernel stores it (linux/posix_acl_xattr.h): a version of 4 bytes,
// then entries of tag (2), permissions (2) and id (4), little-endian.
const (
	aclVersion   = 2
	aclHeader    = 4
	aclEntrySize = 8
	aclNoID      = 1<<32 - 1
	aclGroup     = 0x04 // tag of the owning group
)

// aclTags are the kinds of entries in their only order, with their names in texts (acl(5)).
var aclTags = []struct {
	tag   uint16
	name  string
	named bool // of a user or a group by its id; any number of them
}{
	{0x01, "user", false}, {0x02, "user", true}, {aclGroup, "group", false}, {0x08, "group", true}, {0x10, "mask", false}, {0x20, "other", false},
}

// ACLText returns a POSIX ACL, the value of [ACLAccess] or [ACLDefault], as acl(5) writes
// it, with ids as numbers and commas between the entries. It refuses with [ErrInvalid]
// what the kernel does, which no file can have.
func ACLText(acl []byte) (string, error) {
	bad := func(why string) (string, error) { return "", invalid("POSIX ACL", "%s", why) }
	if len(acl) < aclHeader || binary.LittleEndian.Uint32(acl) != aclVersion || len(acl)%aclEntrySize != aclHeader {
		return bad("its length, or its version, is none")
	}
	var entries []string
	var count [6]int // by place in aclTags
	at := 0
	for b := acl[aclHeader:]; len(b) > 0; b = b[aclEntrySize:] {
		tag, rights, id := binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint16(b[2:]), binary.LittleEndian.Uint32(b[4:])
		for at < len(aclTags) && aclTags[at].tag != tag {
			at++
		}
		if at == len(aclTags) {
			return bad("an entry is unknown, or out of order")
		}
		t := aclTags[at]
		if count[at]++; count[at] > 1 && !t.named || rights > 7 || t.named && id == aclNoID {
			return bad("an entry is there twice, or has rights or an id that are none")
		}
		who := ""
		if t.named {
			who = fmt.Sprint(id)
		}
		text := []byte("rwx")
		for i := range text {
			if rights&(4>>i) == 0 {
				text[i] = '-'
			}
		}
		entries = append(entries, t.name+":"+who+":"+string(text))
	}
	if count[0] == 0 || count[2] == 0 || count[5] == 0 || count[1]+count[3] > 0 && count[4] == 0 {
		return bad("an entry is missing")
	}
	return strings.Join(entries, ","), nil
}

// NarrowMode returns the mode that shows no more rights than a file with this
// POSIX ACL grants, where the ACL itself cannot be shown or restored: the group's
// bits, which hold the ACL's mask, become the owning group's own entry, never
// wider.
func NarrowMode(mode uint32, acl []byte) uint32 {
	group := uint32(0)
	for b := acl; len(b) >= aclHeader+aclEntrySize; b = b[aclEntrySize:] {
		if binary.LittleEndian.Uint16(b[aclHeader:]) == aclGroup {
			group = uint32(b[aclHeader+2]) & 7
			break
		}
	}
	return mode & (^uint32(0o070) | group<<3)
}
