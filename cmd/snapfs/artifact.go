package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/snapshot"
)

var artifactCommand = &cli.Command{
	Name:  "artifact",
	Usage: "work on the generated files that belong to a thread",
	Subcommands: []*cli.Command{
		{
			Name:      "add",
			Usage:     "give a thread an artifact and print its id; the next checkpoint holds it",
			ArgsUsage: "THREAD FILE",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "name", Usage: "its `NAME`; the file's own if not given"},
				&cli.StringFlag{Name: "type", Usage: "its media `TYPE`; told by the name or the content if not given"},
				redactEnvFlag,
				redactFileFlag,
				secretsFlag,
			},
			Action: func(c *cli.Context) error {
				if err := arguments(c, 2, 2); err != nil {
					return err
				}
				if _, err := os.Stat(c.Args().Get(1)); err != nil { // before a store is made
					return absent(fmt.Errorf("artifact: %w", err))
				}
				mode, err := policy.ParseSecretsMode(c.String(secretsFlag.Name))
				if err != nil {
					return usagef("--%s %w", secretsFlag.Name, err)
				}
				declared, err := declare(c, c.StringSlice(redactEnvFlag.Name), c.StringSlice(redactFileFlag.Name))
				if err != nil {
					return err
				}
				return withStore(true, func(c *cli.Context, store *snapshot.Store) error { return addArtifact(c, store, mode, declared) })(c)
			},
		},
		{
			Name:      "list",
			Usage:     "list the artifacts that a checkpoint holds",
			ArgsUsage: "REF",
			Action: func(c *cli.Context) error {
				if err := arguments(c, 1, 1); err != nil {
					return err
				}
				return withStore(false, listArtifacts)(c)
			},
		},
		{
			Name:      "read",
			Usage:     "print an artifact that a checkpoint holds",
			ArgsUsage: "REF ID",
			Action: func(c *cli.Context) error {
				if err := arguments(c, 2, 2); err != nil {
					return err
				}
				return withStore(false, func(c *cli.Context, store *snapshot.Store) error {
					return printContent(func(w io.Writer) error {
						return store.ReadArtifact(c.Context, c.Args().Get(0), c.Args().Get(1), w)
					})
				})(c)
			},
		},
		{
			Name:      "remove",
			Usage:     "take an artifact away from a thread; checkpoints that hold it keep it",
			ArgsUsage: "THREAD ID",
			Action: func(c *cli.Context) error {
				if err := arguments(c, 2, 2); err != nil {
					return err
				}
				return withStore(false, func(c *cli.Context, store *snapshot.Store) error {
					return store.RemoveArtifact(c.Context, c.Args().Get(0), c.Args().Get(1))
				})(c)
			},
		},
	},
}

func addArtifact(c *cli.Context, store *snapshot.Store, mode policy.SecretsMode, declared snapshot.SecretsOptions) error {
	file := snapshot.ArtifactFile{Path: c.Args().Get(1), Name: c.String("name"), MediaType: c.String("type")}
	a, found, err := store.AddArtifact(c.Context, c.Args().Get(0), file, mode, declared)
	if err != nil {
		return err
	}
	summary(c, "added %s (%s, %s) to thread %s", quote(a.Name), quote(a.MediaType), size(a.Size), quote(c.Args().Get(0)))
	tellSecrets(c, found, "")
	return printMade(c, "artifact", a.ID, a)
}

func listArtifacts(c *cli.Context, store *snapshot.Store) error {
	list, err := store.Artifacts(c.Context, c.Args().First())
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printLines(list)
	}
	return table("ARTIFACT\tCREATED\tSIZE\tTYPE\tNAME", func(row func(string, ...any)) {
		for _, a := range list {
			row("%s\t%s\t%s\t%s\t%s", quote(a.ID), when(a.Created), size(a.Size), quoteOr(a.MediaType), quote(a.Name))
		}
	})
}

// artifactFiles reads the flags --artifact.
func artifactFiles(c *cli.Context) ([]snapshot.ArtifactFile, error) {
	var files []snapshot.ArtifactFile
	for _, text := range c.StringSlice("artifact") {
		file, err := artifactFile(text)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// artifactFile reads NAME=FILE[;type=MEDIA]. A name may have = in it: it ends at the first
// one that is followed by a file that is there. The type begins at the last ;type=.
func artifactFile(text string) (snapshot.ArtifactFile, error) {
	name, path, ok := strings.Cut(text, "=")
	const kind = ";type="
	media := ""
	if at := strings.LastIndex(path, kind); at >= 0 {
		path, media = path[:at], path[at+len(kind):]
	}
	if !ok || name == "" || path == "" {
		return snapshot.ArtifactFile{}, usagef("--artifact %s: want NAME=FILE or NAME=FILE;type=MEDIA", quote(text))
	}
	first := name
	_, missing := os.Stat(path)
	for err := missing; err != nil; _, err = os.Stat(path) {
		more, behind, ok := strings.Cut(path, "=")
		if !ok || behind == "" {
			return snapshot.ArtifactFile{}, absent(fmt.Errorf("artifact %s: %w", quote(first), missing))
		}
		name, path = name+"="+more, behind
	}
	return snapshot.ArtifactFile{Path: path, Name: name, MediaType: media}, nil
}
