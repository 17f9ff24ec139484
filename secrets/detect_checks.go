package secrets

import (
	"bytes"
	"encoding/base64"
)

// isUUID reports whether the last 36 bytes of a token are a UUID.
func isUUID(b []byte, n int) bool {
	for i, c := range b[n-36 : n] {
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (c == '-') {
			return false
		}
	}
	return true
}

// beginsWithDigits checks a number of bytes of a token from an offset on.
func beginsWithDigits(from, count int) func(b []byte, n int) bool {
	return func(b []byte, n int) bool {
		for _, c := range b[from : from+count] {
			if !digits.in[c] {
				return false
			}
		}
		return true
	}
}

// hasOpenAIMark: OpenAI's keys have "OpenAI" in base64 in the middle, those of users
// 20 bytes on both sides of it, the others many on both.
func hasOpenAIMark(b []byte, n int) bool {
	at := bytes.Index(b[:n], []byte("T3BlbkFJ"))
	if at < 0 {
		return false
	}
	before, behind := at-len("sk-"), n-at-8
	if before == 20 {
		return behind == 20
	}
	return before >= 40 && behind >= 20
}

// snowflake64 is what the first four bytes of a decimal number can be in base64, and
// so the next four.
var snowflake64 = [4]string{"MNO", "DTjz", "AEIMQUYcgk", "wxyz012345"}

// beginsWithSnowflake: a Discord bot token begins with the number of the bot, in base64.
func beginsWithSnowflake(b []byte, _ int) bool {
	first, _, _ := bytes.Cut(b, []byte("."))
	number, err := base64.RawStdEncoding.DecodeString(string(first))
	if err != nil || len(number) < 17 || len(number) > 20 {
		return false
	}
	for _, c := range number {
		if !digits.in[c] {
			return false
		}
	}
	return true
}

// isAWSSecret: 40 bytes of base64, unlike a SHA-1, are assigned to the name that b
// begins with.
func isAWSSecret(b []byte, n int) bool {
	value := bytes.TrimLeft(b[n:min(len(b), n+12)], "\"' \t")
	assigned := bytes.TrimLeft(value, ":=>")
	if len(assigned) == len(value) {
		return false
	}
	assigned = bytes.TrimLeft(assigned, "\\\"' \t")
	value = b[min(len(b), n+12)-len(assigned):]
	m, body, of := match(value, shape(exactly(&base64s, 40)), false)
	return m > 0 && (m == len(value) || value[m] != '=') && !isHex(body) && !isPlaceholder(value[:m], body, of)
}

// isHex reports whether all bytes are hex digits.
func isHex(b []byte) bool {
	for _, c := range b {
		if !anyHex.in[c] {
			return false
		}
	}
	return true
}

// isKeyInBase64: what b begins with is a private key as text, in base64 once more.
func isKeyInBase64(b []byte, n int) bool {
	n -= n % 4
	text := make([]byte, base64.StdEncoding.DecodedLen(n))
	m, err := base64.StdEncoding.Decode(text, b[:n])
	if err != nil {
		return false
	}
	at, _ := privateKeyHeader(text[:m])
	return at == 0
}

// isPuTTYKey: the lines behind the first are headers and base64.
func isPuTTYKey(b []byte, _ int) bool {
	line := bytes.IndexAny(b, "\n\\")
	return line > 0 && keyMaterial(b[line:]) > 0
}
