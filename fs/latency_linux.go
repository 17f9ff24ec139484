package fs

import (
	"encoding/binary"
	"log/slog"
	"os"
	"strings"
	"time"
)

// latency keeps the processors of a virtual machine from halting while requests
// come one after the other. A program waits for each answer; if its processor
// halts meanwhile, waking it takes an interrupt through the hypervisor, 20 to 50
// microseconds, several times what the answer took. The kernel offers to poll
// instead (its PM QoS interface), to root only. On real hardware a halted
// processor wakes fast, so nothing is asked for there.
type latency struct {
	log    *slog.Logger
	path   string   // empty: not for us
	held   *os.File // nil: nothing is asked for; as long as it is open the kernel heeds it
	streak int      // requests that came soon after the one before
}

const (
	// streaming is how many requests in a row make it worth while.
	streaming = 64
	// calm is how long nothing is asked before the processors may halt again.
	calm = 10 * time.Millisecond
)

// newLatency looks at what machine this is.
func newLatency(log *slog.Logger) latency {
	driver, err := os.ReadFile("/sys/devices/system/cpu/cpuidle/current_driver")
	if err != nil || strings.TrimSpace(string(driver)) != "haltpoll" {
		return latency{log: log}
	}
	return latency{log: log, path: "/dev/cpu_dma_latency"}
}

// soon notes a request that came soon after the one before.
func (l *latency) soon() {
	if l.path == "" || l.held != nil {
		return
	}
	if l.streak++; l.streak < streaming {
		return
	}
	f, err := os.OpenFile(l.path, os.O_WRONLY, 0)
	if err == nil {
		if _, err = f.Write(binary.NativeEndian.AppendUint32(nil, 0)); err == nil {
			l.held = f
			return
		}
		_ = f.Close()
	}
	l.log.Debug("processors may halt between requests", "error", err)
	l.path = ""
}

// pause notes that the next request did not come soon.
func (l *latency) pause() {
	if l.held == nil {
		l.streak = 0
	}
}

// later lets the processors halt again.
func (l *latency) later() {
	l.streak = 0
	if l.held != nil {
		_ = l.held.Close()
		l.held = nil
	}
}
