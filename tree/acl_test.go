package tree

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestACLText: what the kernel takes has a text, and what it refuses has none.
func TestACLText(t *testing.T) {
	const user, joe, group, wheel, mask, other = "01000600ffffffff", "02000700d2040000", "04000400ffffffff", "0800030005000000", "10000700ffffffff", "20000000ffffffff"
	const version = "02000000"
	file := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for acl, want := range map[string]string{
		version + user + group + other:                                         "user::rw-,group::r--,other::---",
		version + user + joe + group + mask + other:                            "user::rw-,user:1234:rwx,group::r--,mask::rwx,other::---",
		version + user + group + wheel + wheel[:8] + "06000000" + mask + other: "user::rw-,group::r--,group:5:-wx,group:6:-wx,mask::rwx,other::---",
		"":                                                         "",
		hex.EncodeToString([]byte("junk")):                         "",
		"03000000" + user + group + other:                          "",
		version + user + group:                                     "",
		version + user + other:                                     "",
		version + group + other:                                    "",
		version + user + joe + group + other:                       "",
		version + user + group + group + other:                     "",
		version + group + user + other:                             "",
		version + user + group + other + "00":                      "",
		version + user + group + "2000080000000000":                "",
		version + user + "02000700ffffffff" + group + mask + other: "",
		version + user + group + "40000000ffffffff" + other:        "",
	} {
		value, err := hex.DecodeString(acl)
		require.NoError(t, err)
		text, err := ACLText(value)
		require.Equal(t, want, text, acl)
		if want == "" {
			require.ErrorIs(t, err, ErrInvalid, acl)
		} else {
			require.NoError(t, err)
		}
		kerr := unix.Setxattr(file, ACLAccess, value, 0)
		if kerr == unix.EOPNOTSUPP || acl == "" { // which takes the ACL away
			continue
		}
		require.Equal(t, err == nil, kerr == nil, "%s: the kernel says %v", acl, kerr)
	}
}

// FuzzACLText: no bytes are too odd.
func FuzzACLText(f *testing.F) {
	f.Add([]byte("\x02\x00\x00\x00"))
	f.Add(bytes.Repeat([]byte("\x02\x00\x00\x00"), 7))
	f.Fuzz(func(t *testing.T, acl []byte) {
		text, err := ACLText(acl)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		require.Regexp(t, `^(user|group|mask|other):[0-9]*:[r-][w-][x-](,|$)`, text)
		require.Equal(t, uint32(0o707)|NarrowMode(0o777, acl)&0o070, NarrowMode(0o777, acl))
	})
}
