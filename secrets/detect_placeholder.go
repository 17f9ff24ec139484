package secrets

import "bytes"

// placeholderWords stand in what is written in place of a token. Random text of the
// length of a token has one of these less than once in 100,000 times.
var placeholderWords = [][]byte{
	[]byte("example"), []byte("xxxxx"), []byte("placeholder"), []byte("dummy"), []byte("sample"),
	[]byte("redacted"), []byte("changeme"), []byte("replace"), []byte("insert"), []byte("notreal"),
	[]byte("your_"), []byte("your-"), []byte("fake_"), []byte("fake-"), []byte("test_"), []byte("test-"),
	[]byte("secret"), []byte("token"), []byte("apikey"),
}

// isPlaceholder reports whether a token is one that somebody made up: token is what
// stands behind the prefix, body its longest part without punctuation, of its class.
func isPlaceholder(token, body []byte, of *class) bool {
	if len(body) == 0 {
		return false
	}
	const wordsWithin = 100 // bytes: a placeholder says so at once
	for _, w := range placeholderWords {
		if containsFold(token[:min(len(token), wordsWithin)], w) {
			return true
		}
	}
	const manyAlike, manyInOrder = 7, 7
	alike, inOrder := longest(body)
	if alike >= manyAlike && (len(body) < 100 || alike >= 2*manyAlike) || inOrder >= manyInOrder || isPeriodic(body) {
		return true
	}
	if distinct(body) < min(10, len(body)/4) {
		return true
	}
	return of.mixed && changes(body) < len(body)/5
}

// containsFold reports whether b has the lower-case word in it, in any case.
func containsFold(b, word []byte) bool {
	for i := 0; i+len(word) <= len(b); i++ {
		if b[i]|0x20 == word[0]|0x20 && bytes.EqualFold(b[i:i+len(word)], word) {
			return true
		}
	}
	return false
}

// longest returns the lengths of the longest stretch of one byte and of the longest
// that counts up or down: "abcdefg", "7654321".
func longest(b []byte) (alike, inOrder int) {
	alike, inOrder = 1, 1
	same, order, step := 1, 1, 0
	for i := 1; i < len(b); i++ {
		d := int(b[i]|0x20) - int(b[i-1]|0x20)
		if d == 0 {
			same++
		} else {
			same = 1
		}
		switch {
		case d != 1 && d != -1:
			order = 1
		case d == step:
			order++
		default:
			order = 2
		}
		step = d
		alike, inOrder = max(alike, same), max(inOrder, order)
	}
	return alike, inOrder
}

// isPeriodic reports whether b repeats its first few bytes: "abc1abc1abc1".
func isPeriodic(b []byte) bool {
	for p := 1; p <= 12 && 2*p <= len(b); p++ {
		if bytes.Equal(b[p:], b[:len(b)-p]) {
			return true
		}
	}
	return false
}

// distinct counts different bytes.
func distinct(b []byte) int {
	var seen [4]uint64
	n := 0
	for _, c := range b {
		if seen[c>>6]&(1<<(c&63)) == 0 {
			seen[c>>6] |= 1 << (c & 63)
			n++
		}
	}
	return n
}

// changes counts how often upper case, lower case and digits follow one another. Words
// in any style have few of them.
func changes(b []byte) int {
	n, last := 0, byte(0)
	for _, c := range b {
		var now byte
		switch {
		case c >= 'a' && c <= 'z':
			now = 'a'
		case c >= 'A' && c <= 'Z':
			now = 'A'
		case c >= '0' && c <= '9':
			now = '0'
		default:
			continue
		}
		if last != 0 && now != last {
			n++
		}
		last = now
	}
	return n
}
