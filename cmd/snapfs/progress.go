package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/snapfs/snapfs/internal/progress"
)

const (
	barPatience = 300 * time.Millisecond // what is over sooner shows no bar
	barEvery    = 100 * time.Millisecond
	jsonEvery   = time.Second
)

// watch shows how far an operation with the returned context is, as --progress says.
// done ends that; items is what the operation's items are called.
func watch(c *cli.Context, items string) (ctx context.Context, done func(), err error) {
	how := c.String("progress")
	if err := checkProgress(how); err != nil {
		return nil, nil, usagef("--progress %w", err)
	}
	if how == "auto" && !c.Bool("quiet") && term.IsTerminal(int(os.Stderr.Fd())) {
		how = "on"
	}
	var show shower
	switch how {
	case "on":
		show = &bar{w: os.Stderr, verb: verbName(c), items: items}
	case "json":
		show = &jsonLines{w: os.Stderr, verb: verbName(c), start: time.Now()}
	default:
		return c.Context, func() {}, nil
	}
	m := &progress.Meter{}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(show.every())
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				show.show(m.State())
			case <-stop:
				show.end(m.State())
				return
			}
		}
	})
	return progress.With(c.Context, m), func() { close(stop); wg.Wait() }, nil
}

// checkProgress checks how progress is shown.
func checkProgress(s string) error {
	switch s {
	case "auto", "on", "off", "json":
		return nil
	}
	return fmt.Errorf("%s: want auto, on, off or json", quote(s))
}

// A shower shows progress now and then, and its end.
type shower interface {
	every() time.Duration
	show(progress.State)
	end(progress.State)
}

// bar is one line on a terminal.
type bar struct {
	w           io.Writer
	verb, items string
	start       time.Time
	line        *progressbar.ProgressBar // nil: not yet
	known       bool                     // how much there is in all
	shown       bool
}

func (b *bar) every() time.Duration { return barEvery }

func (b *bar) show(s progress.State) {
	if b.line == nil {
		b.start, b.known = time.Now(), s.AllBytes > 0
		all := int64(-1)
		if b.known {
			all = s.AllBytes
		}
		b.line = progressbar.NewOptions64(all, progressbar.OptionSetWriter(b.w), progressbar.OptionShowBytes(true), progressbar.OptionShowCount(),
			progressbar.OptionUseIECUnits(true), progressbar.OptionSetWidth(20), progressbar.OptionSetPredictTime(true), progressbar.OptionSetElapsedTime(true))
	}
	if time.Since(b.start) < barPatience {
		return
	}
	b.shown = true
	if b.known { // a workspace may have grown since the last save
		b.line.ChangeMax64(max(s.AllBytes, s.Bytes))
	}
	b.line.Describe(fmt.Sprintf("%s: %d %s", b.verb, s.Items, b.items))
	_ = b.line.Set64(s.Bytes) // nobody to tell
}

func (b *bar) end(progress.State) {
	if b.shown {
		_ = b.line.Clear()
	}
}

// jsonLines is one document a line.
type jsonLines struct {
	w     io.Writer
	verb  string
	start time.Time
}

// progressDoc is how far an operation is.
type progressDoc struct {
	Progress   string  `json:"progress"` // the verb
	Items      int64   `json:"items"`    // files of a save or a restore, objects of verify and gc
	Bytes      int64   `json:"bytes"`
	TotalItems int64   `json:"totalItems,omitempty"` // absent: not known
	TotalBytes int64   `json:"totalBytes,omitempty"`
	Elapsed    float64 `json:"elapsed"`        // in seconds
	Rate       int64   `json:"rate"`           // bytes a second since the beginning
	ETA        float64 `json:"eta,omitempty"`  // in seconds, about; absent: not known
	Done       bool    `json:"done,omitempty"` // the last line, whether it succeeded or not
}

func (j *jsonLines) every() time.Duration { return jsonEvery }

func (j *jsonLines) show(s progress.State) { j.print(s, false) }

func (j *jsonLines) end(s progress.State) { j.print(s, true) }

func (j *jsonLines) print(s progress.State, done bool) {
	elapsed := time.Since(j.start).Seconds()
	doc := progressDoc{Progress: j.verb, Items: s.Items, Bytes: s.Bytes, TotalItems: s.AllItems, TotalBytes: s.AllBytes, Elapsed: elapsed, Done: done}
	if rate := float64(s.Bytes) / elapsed; rate > 0 {
		doc.Rate = int64(rate)
		if s.AllBytes > s.Bytes {
			doc.ETA = float64(s.AllBytes-s.Bytes) / rate
		}
	}
	_ = json.NewEncoder(j.w).Encode(doc) // nobody to tell
}
