package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

// parseDuration reads a length of time: 90s, 2m, 36h, 1h30m or 7d. A day has 24 hours.
func parseDuration(s string) (time.Duration, error) {
	const day = 24 * time.Hour
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 63); err == nil && n <= uint64(math.MaxInt64/day) {
			return time.Duration(n) * day, nil
		}
	} else if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return d, nil
	}
	return 0, fmt.Errorf("%s: want a length of time like 90s, 2m, 36h or 7d", quote(s))
}

// durationFlag reads a flag; without it 0.
func durationFlag(c *cli.Context, name string) (time.Duration, error) {
	if !c.IsSet(name) {
		return 0, nil
	}
	d, err := parseDuration(c.String(name))
	if err != nil {
		return 0, usagef("--%s %w", name, err)
	}
	return d, nil
}
