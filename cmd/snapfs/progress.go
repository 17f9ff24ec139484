package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/progress"
)

const (
	barPatience = 300 * time.Millisecond // what is over sooner shows no bar
	barEvery    = 100 * time.Millisecond
	jsonEvery   = time.Second
)

// watch shows how far an operation with the returned context is, as --progress says.
// done ends that; items is what the operation's items are called.
func watch(c *cli.Context, items string) (ctx context.Context, done func()) {
	how := c.String("progress")
	if how == "auto" && !c.Bool("quiet") && isTerminal(os.Stderr) {
		how = "on"
	}
	var show shower
	switch how {
	case "on":
		show = &bar{w: stderr, verb: verbName(c), items: items, start: time.Now()}
	case "json":
		show = &jsonLines{w: stderr, verb: verbName(c), start: time.Now()}
	default:
		return c.Context, func() {}
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
	return progress.With(c.Context, m), func() { close(stop); wg.Wait() }
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
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
	shown       bool
}

// clearLine goes back to the line's beginning and empties it.
const clearLine = "\r\x1b[K"

func (b *bar) every() time.Duration { return barEvery }

func (b *bar) show(s progress.State) {
	elapsed := time.Since(b.start)
	if elapsed < barPatience {
		return
	}
	b.shown = true
	line := fmt.Sprintf("%s%s: %s %s, %s", clearLine, b.verb, humanize.Comma(s.Items), b.items, size(s.Bytes))
	// A workspace may have grown since the last save: then nobody knows how much is
	// left.
	known := s.AllBytes > 0 && s.Bytes <= s.AllBytes
	if known {
		line += fmt.Sprintf(" of %s (%d%%)", size(s.AllBytes), 100*s.Bytes/s.AllBytes)
	}
	rate, eta := pace(s, elapsed)
	line += fmt.Sprintf(", %s/s", size(rate))
	if known && rate > 0 {
		line += fmt.Sprintf(", %s left", eta.Round(time.Second))
	}
	_, _ = io.WriteString(b.w, line) // nobody to tell
}

func (b *bar) end(progress.State) {
	if b.shown {
		_, _ = io.WriteString(b.w, clearLine)
	}
}

// pace is how many bytes a second were done since the beginning, and how long the
// rest takes at that; 0: nobody knows.
func pace(s progress.State, elapsed time.Duration) (rate int64, eta time.Duration) {
	if elapsed > 0 {
		rate = int64(float64(s.Bytes) / elapsed.Seconds())
	}
	if rate > 0 && s.Bytes < s.AllBytes {
		eta = time.Duration(float64(s.AllBytes-s.Bytes) / float64(rate) * float64(time.Second))
	}
	return rate, eta
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
	elapsed := time.Since(j.start)
	rate, eta := pace(s, elapsed)
	doc := progressDoc{
		Progress: j.verb, Items: s.Items, Bytes: s.Bytes, TotalItems: s.AllItems, TotalBytes: s.AllBytes,
		Elapsed: elapsed.Seconds(), Rate: rate, ETA: eta.Seconds(), Done: done,
	}
	_ = json.NewEncoder(j.w).Encode(doc) // nobody to tell
}
