package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/snapshot"
)

// listGraph draws threads with their checkpoints, newest first, and the forks of a
// checkpoint below it. thread is the one to begin with; "": all.
func listGraph(c *cli.Context, store *snapshot.Store, thread string) error {
	g := graph{forks: map[snapshot.Origin][]string{}, checkpoints: map[string][]snapshot.Checkpoint{}, drawn: map[string]bool{}}
	threads, err := store.Threads(c.Context, snapshot.Page{})
	if err != nil {
		return err
	}
	var order []string
	for _, t := range threads {
		cps, err := store.Checkpoints(c.Context, t.ID, snapshot.Page{})
		if errors.Is(err, index.ErrThreadNotFound) { // deleted meanwhile
			continue
		}
		if err != nil {
			return err
		}
		g.add(t.ID, cps, c.Bool("all"))
		order = append(order, t.ID)
	}
	if thread != "" {
		if _, ok := g.checkpoints[thread]; !ok {
			_, err := store.Thread(c.Context, thread)
			return err
		}
		g.thread(thread, "", "")
	} else {
		for _, id := range order {
			if g.root(id) {
				g.thread(id, "", "")
			}
		}
		for _, id := range order { // two that came from one another, as ids that were used again can do
			if !g.drawn[id] {
				g.thread(id, "", "")
			}
		}
	}
	_, err = stdout.Write([]byte(g.out.String()))
	return err
}

// A graph is threads and what they were forked from.
type graph struct {
	checkpoints map[string][]snapshot.Checkpoint // by thread, newest first
	forks       map[snapshot.Origin][]string     // threads by their origin
	drawn       map[string]bool                  // threads
	out         strings.Builder
}

// add takes a thread's checkpoints; not ready ones only with all.
func (g *graph) add(thread string, cps []snapshot.Checkpoint, all bool) {
	g.checkpoints[thread] = nil
	for _, cp := range cps {
		if all || cp.Status == string(index.Ready) {
			g.checkpoints[thread] = append(g.checkpoints[thread], cp)
		}
	}
	if from := g.origin(thread); from != nil {
		g.forks[*from] = append(g.forks[*from], thread)
	}
}

// origin is what a thread was forked from, as its first checkpoint says; nil: it was not, or
// that one is gone.
func (g *graph) origin(thread string) *snapshot.Origin {
	cps := g.checkpoints[thread]
	if len(cps) == 0 {
		return nil
	}
	first := cps[len(cps)-1]
	if first.Reason == string(index.Imported) { // it came from who knows which store
		return nil
	}
	return first.Origin
}

// root reports whether a thread stands by itself.
func (g *graph) root(thread string) bool {
	from := g.origin(thread)
	if from == nil {
		return true
	}
	for _, cp := range g.checkpoints[from.Thread] {
		if cp.ID == from.Checkpoint {
			return false
		}
	}
	return true
}

// thread draws one and what was forked from it. first stands before its own line, rest
// before those below it.
func (g *graph) thread(id, first, rest string) {
	if g.drawn[id] {
		return
	}
	g.drawn[id] = true
	fmt.Fprintf(&g.out, "%s%s", first, quote(id))
	if from := g.origin(id); from != nil && first == "" {
		fmt.Fprintf(&g.out, " (forked from %s, %s)", quote(from.Thread), quote(from.Checkpoint))
	}
	g.out.WriteByte('\n')
	cps := g.checkpoints[id]
	for i, cp := range cps {
		branch, below := "├─ ", "│  "
		if i == len(cps)-1 {
			branch, below = "└─ ", "   "
		}
		fmt.Fprintf(&g.out, "%s%s%s  %s  %s\n", rest, branch, quote(cp.ID), when(cp.Created), what(cp))
		forks := g.forks[snapshot.Origin{Thread: id, Checkpoint: cp.ID}]
		for j, fork := range forks {
			if j == len(forks)-1 {
				g.thread(fork, rest+below+"└─ ", rest+below+"   ")
			} else {
				g.thread(fork, rest+below+"├─ ", rest+below+"│  ")
			}
		}
	}
}

// what says in a few words what a checkpoint is.
func what(cp snapshot.Checkpoint) string {
	words := []string{quote(cp.Reason)}
	if cp.Name != "" {
		words = append(words, quote(cp.Name))
	}
	if cp.Status != string(index.Ready) {
		words = append(words, cp.Status)
	}
	return strings.Join(words, "  ")
}
