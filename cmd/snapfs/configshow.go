package main

import (
	"github.com/urfave/cli/v2"
)

var configCommand = &cli.Command{
	Name:  "config",
	Usage: "show the configuration",
	Subcommands: []*cli.Command{{
		Name:  "show",
		Usage: "print every setting with where it comes from",
		Action: func(c *cli.Context) error {
			if err := arguments(c, 0, 0); err != nil {
				return err
			}
			return showConfig(c)
		},
	}},
}

func showConfig(c *cli.Context) error {
	found, _ := c.App.Metadata[configRead].(config)
	var all []value
	for _, s := range settings {
		v := s.value(c, found)
		if s.key == "store" {
			dir, err := storeDir(c)
			if err != nil {
				return err
			}
			v.Value = dir
		}
		all = append(all, v)
	}
	if c.Bool("json") {
		return printLines(all)
	}
	return table("KEY\tVALUE\tSOURCE", func(row func(string, ...any)) {
		for _, v := range all {
			text := "-"
			if v.Value != "" {
				text = quote(v.Value)
			}
			row("%s\t%s\t%s", v.Key, text, quote(v.Source))
		}
	})
}
