package main

import (
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/snapshot"
)

var exportCommand = &cli.Command{
	Name:      "export",
	Usage:     "print a checkpoint as an archive: files, artifacts, conversation and record",
	ArgsUsage: "REF",
	Flags: []cli.Flag{
		&cli.StringFlag{Name: "format", Value: string(snapshot.Tar), Usage: "`FORMAT` of the archive: tar or tar.zst"},
	},
	Action: func(c *cli.Context) error {
		if err := arguments(c, 1, 1); err != nil {
			return err
		}
		format, err := snapshot.ParseArchiveFormat(c.String("format"))
		if err != nil {
			return usagef("--format %w", err)
		}
		if isTerminal(os.Stdout) {
			err := usagef("export: an archive is nothing for a terminal")
			return snapshot.WithHint(err, "snapfs export %s >FILE.%s, or pipe it to tar or to snapfs import", c.Args().First(), format)
		}
		return withStore(false, func(c *cli.Context, store *snapshot.Store) error {
			var cp snapshot.Checkpoint
			ctx, done := watch(c, "files")
			err := printContent(func(w io.Writer) (err error) {
				cp, err = store.Export(ctx, c.Args().First(), w, format)
				return err
			})
			done()
			if err == nil {
				summary(c, "exported %s, %s, %s of checkpoint %s", plural(cp.Files, "file", "files"), plural(cp.Dirs, "directory", "directories"), size(cp.Bytes), quote(cp.ID))
			}
			return err
		})(c)
	},
}
