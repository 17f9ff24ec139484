package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/dustin/go-humanize"
)

// parseBytes reads a number of bytes: 10485760, 10M or 10MiB. K, M, G and T
// alone are powers of 1024. The empty string is 0.
func parseBytes(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	text := s
	if strings.ContainsAny(s[len(s)-1:], "kKmMgGtT") {
		text += "iB"
	}
	n, err := humanize.ParseBytes(text)
	if err != nil || n > math.MaxInt64 {
		return 0, fmt.Errorf("%s: want a size like 10485760, 10M or 10MiB", quote(s))
	}
	return int64(n), nil
}
