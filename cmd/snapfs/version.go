package main

import (
	"fmt"
	"runtime"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/snapshot"
)

// version is set by the build.
var version = "0.1.0-dev"

var versionCommand = &cli.Command{
	Name:  "version",
	Usage: "print the version",
	Action: func(c *cli.Context) error {
		if err := arguments(c, 0, 0); err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(struct {
				Version string `json:"version"`
				Format  int    `json:"format"`
				Go      string `json:"go"`
			}{version, snapshot.Format, runtime.Version()})
		}
		_, err := fmt.Fprintf(stdout, "snapfs %s (store format %d, %s)\n", version, snapshot.Format, runtime.Version())
		return err
	},
}
