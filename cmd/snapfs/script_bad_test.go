package main

import (
	"os"
	"path/filepath"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/snapfs/snapfs/internal/disk/disktest"
)

// ordinary is the user of scripts that need one without rights.
const ordinary = 1000

// user N PROGRAM ARGUMENTS... runs a program as an ordinary user, whose home is
// the directory "user"; it has to end with exit code N.
func asUser(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: user N PROGRAM ARGUMENTS...")
	}
	home := ts.MkAbs("user")
	ts.Check(os.MkdirAll(home, 0o755))
	run := []string{args[0]}
	if os.Geteuid() == 0 {
		ts.Check(os.Chown(home, ordinary, ordinary))
		// Directories on the way that only the tests' own user may enter.
		bin := filepath.SplitList(ts.Getenv("PATH"))[0] // of the program
		ts.Check(disktest.LetIn(filepath.Dir(filepath.Dir(ts.MkAbs("x"))), filepath.Dir(ts.MkAbs("x")), bin, filepath.Dir(bin)))
		id := strconv.Itoa(ordinary)
		run = append(run, "setpriv", "--reuid="+id, "--regid="+id, "--clear-groups")
	}
	code(ts, false, append(append(run, "env", "HOME="+home), args[1:]...))
}

// spoil PATTERN cut|tail|garbage damages the files: the last bytes are cut off,
// some are added, or the first 300 become others.
func spoil(ts *testscript.TestScript, neg bool, args []string) {
	paths, err := filepath.Glob(ts.MkAbs(args[0]))
	ts.Check(err)
	if neg || len(args) != 2 || len(paths) == 0 {
		ts.Fatalf("usage: spoil PATTERN cut|tail|garbage, and the files have to be there")
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		ts.Check(err)
		switch args[1] {
		case "cut":
			data = data[:len(data)-5]
		case "tail":
			data = append(data, "garbage"...)
		case "garbage":
			for i := range data[:min(300, len(data))] {
				data[i] ^= byte(0x5a + i)
			}
		}
		ts.Check(os.WriteFile(path, data, 0o600))
	}
}
