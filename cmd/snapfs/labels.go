package main

import (
	"strings"

	"github.com/urfave/cli/v2"
)

// labels reads the values of --label, K=V each.
func labels(c *cli.Context) (map[string]string, error) {
	var all map[string]string
	for _, text := range c.StringSlice("label") {
		key, val, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return nil, usagef("--label %s: want KEY=VALUE", quote(text))
		}
		if _, twice := all[key]; twice {
			return nil, usagef("--label %s: the key is there twice", quote(key))
		}
		if all == nil {
			all = map[string]string{}
		}
		all[key] = val
	}
	return all, nil
}
