package snapshot

import (
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/zeebo/blake3"
)

// MaxFileName is the length of the longest file name, in bytes (NAME_MAX).
const MaxFileName = 255

const (
	maxKept  = 200 // bytes of a long id that stay readable
	upperHex = "0123456789ABCDEF"
)

// The names that a thread's directory in a mount has for itself.
const (
	LatestName = "latest"
	ByNameName = "by-name"
)

func reserved(id string) bool { return id == LatestName || id == ByNameName }

// EncodeName makes a file name of an id, reversibly: '/', '%', control bytes
// and a leading dot are written as %XX, as is the first byte of a reserved
// name. An id whose name would be longer than 255 bytes keeps at most 200 bytes
// of it and ends in %h and half of its BLAKE3 hash in hex; no escape or
// character is cut in two.
func EncodeName(id string) string {
	var b strings.Builder
	for i := range len(id) {
		c := id[i]
		if c < ' ' || c == 0x7f || c == '/' || c == '%' || (i == 0 && (c == '.' || reserved(id))) {
			b.WriteByte('%')
			b.WriteByte(upperHex[c>>4])
			b.WriteByte(upperHex[c&15])
			continue
		}
		b.WriteByte(c)
	}
	if b.Len() <= MaxFileName {
		return b.String()
	}
	sum := blake3.Sum256([]byte(id))
	return cutName(b.String()) + "%h" + hex.EncodeToString(sum[:16])
}

// cutName returns the longest start of an encoded name that has at most maxKept
// bytes and ends between two characters.
func cutName(name string) string {
	end := 0
	for end < len(name) {
		n := 3 // an escape
		if name[end] != '%' {
			_, n = utf8.DecodeRuneInString(name[end:])
		}
		if end+n > maxKept {
			break
		}
		end += n
	}
	return name[:end]
}

// DecodeName returns the id whose name this is. A name that EncodeName would
// not make has none. long says that the name was cut: then the id cannot be
// told from it, and only an id that encodes to it is right.
func DecodeName(name string) (id string, long, ok bool) {
	if len(name) > 34 && name[len(name)-34:len(name)-32] == "%h" {
		return "", true, true
	}
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] != '%' {
			b.WriteByte(name[i])
			continue
		}
		if i+2 >= len(name) {
			return "", false, false
		}
		hi, lo := strings.IndexByte(upperHex, name[i+1]), strings.IndexByte(upperHex, name[i+2])
		if hi < 0 || lo < 0 {
			return "", false, false
		}
		b.WriteByte(byte(hi<<4 | lo))
		i += 2
	}
	id = b.String()
	return id, false, EncodeName(id) == name
}

// ArtifactNames returns the file names of artifacts, no two of which are the same. Of
// several with one name the first has it, the others get ~ and their id behind it; whose
// name is that already gets its own id, too.
func ArtifactNames(list []Artifact) []string {
	names := make([]string, len(list))
	taken := map[string]bool{}
	for i, a := range list {
		name := a.Name
		names[i] = EncodeName(name)
		for taken[names[i]] {
			name += "~" + a.ID
			names[i] = EncodeName(name)
		}
		taken[names[i]] = true
	}
	return names
}
