package main

import (
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/snapfs/snapfs/index/journal"
)

// decided STORE ID... has the deletion of checkpoints decided and not done, as a process
// that is killed leaves it; with --thread ID that of a thread.
func decided(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: decided STORE ID... or decided STORE --thread ID")
	}
	ev := journal.Deleting{Org: "default", Checkpoints: args[1:]}
	if args[1] == "--thread" {
		ev = journal.Deleting{Org: "default", Thread: args[2]}
	}
	j, err := journal.Open(filepath.Join(ts.MkAbs(args[0]), "journal"), journal.Options{Existing: true})
	ts.Check(err)
	_, err = j.Append(ev)
	ts.Check(err)
	ts.Check(j.Close())
}
