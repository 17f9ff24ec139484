package main

import (
	"fmt"
	"io"
	"os/user"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/snapshot"
	"github.com/snapfs/snapfs/tree"
)

var lsCommand = &cli.Command{
	Name:      "ls",
	Usage:     "list a directory of a checkpoint",
	ArgsUsage: "REF [PATH]",
	Flags: []cli.Flag{
		&cli.BoolFlag{Name: "R", Usage: "all that lies below it, too"},
		zeroFlag,
	},
	Action: func(c *cli.Context) error {
		if err := arguments(c, 1, 2); err != nil {
			return err
		}
		return withStore(false, func(c *cli.Context, store *snapshot.Store) error {
			return printWhole(func(w io.Writer) error { return ls(c, store, w) })
		})(c)
	},
}

func ls(c *cli.Context, store *snapshot.Store, w io.Writer) error {
	users, groups := newOwners(userName), newOwners(groupName)
	return store.Ls(c.Context, c.Args().Get(0), c.Args().Get(1), c.Bool("R"), func(path string, e tree.Entry) error {
		var err error
		switch {
		case c.Bool("json"):
			err = writeJSON(w, newEntryDoc(path, e))
		case c.Bool("z"):
			_, err = io.WriteString(w, path+"\x00")
		default:
			name := quote(path)
			if e.Kind == tree.Symlink {
				name += " -> " + quote(e.Target)
			}
			mtime := time.Unix(e.MtimeSec, int64(e.MtimeNsec))
			_, err = fmt.Fprintf(w, "%s %-8s %-8s %11d %s %s\n", modeText(e), users.name(e.UID), groups.name(e.GID), e.Size, when(mtime), name)
		}
		return err
	})
}

// entryDoc is an entry of a checkpoint in JSON.
type entryDoc struct {
	snapshot.Path
	Kind        string `json:"kind"` // file, directory or symlink
	Mode        string `json:"mode"` // octal
	UID         uint32 `json:"uid"`
	GID         uint32 `json:"gid"`
	Size        uint64 `json:"size"`  // in bytes
	Mtime       string `json:"mtime"` // a time that a clock never showed may have a year of more than four digits
	Target      string `json:"target,omitempty"`
	TargetBytes string `json:"targetBytes,omitempty"`
	Hash        string `json:"hash,omitempty"`
	Torn        bool   `json:"torn,omitempty"`
}

func newEntryDoc(path string, e tree.Entry) entryDoc {
	doc := entryDoc{
		Path: snapshot.NewPath(path), Kind: e.Kind.String(), Mode: fmt.Sprintf("%04o", e.Mode), UID: e.UID, GID: e.GID, Size: e.Size,
		Mtime: time.Unix(e.MtimeSec, int64(e.MtimeNsec)).UTC().Format(time.RFC3339Nano),
		Torn:  e.Flags&tree.Torn != 0,
	}
	if e.Kind == tree.Symlink {
		target := snapshot.NewPath(e.Target)
		doc.Target, doc.TargetBytes = target.Text, target.Bytes
	}
	if !e.Hash.IsZero() {
		doc.Hash = e.Hash.String()
	}
	return doc
}

// modeText shows kind and permissions as ls(1) does.
func modeText(e tree.Entry) string {
	text := []byte("-rwxrwxrwx")
	switch e.Kind {
	case tree.Dir:
		text[0] = 'd'
	case tree.Symlink:
		text[0] = 'l'
	}
	for i := range 9 {
		if e.Mode&(1<<(8-i)) == 0 {
			text[1+i] = '-'
		}
	}
	if e.Mode&0o1000 != 0 { // sticky
		if text[9] == 'x' {
			text[9] = 't'
		} else {
			text[9] = 'T'
		}
	}
	return string(text)
}

// owners names users or groups as this machine knows them; it asks once for
// each.
type owners struct {
	known map[uint32]string
	ask   func(id string) (string, error)
}

func newOwners(ask func(string) (string, error)) owners { return owners{map[uint32]string{}, ask} }

func userName(id string) (string, error) {
	u, err := user.LookupId(id)
	if err != nil {
		return "", err
	}
	return u.Username, nil
}

func groupName(id string) (string, error) {
	g, err := user.LookupGroupId(id)
	if err != nil {
		return "", err
	}
	return g.Name, nil
}

func (o owners) name(id uint32) string {
	name, ok := o.known[id]
	if !ok {
		name = strconv.FormatUint(uint64(id), 10)
		if n, err := o.ask(name); err == nil {
			name = n
		}
		o.known[id] = name
	}
	return name
}
