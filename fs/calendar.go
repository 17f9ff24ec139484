package fs

import (
	"sync"
	"time"
)

// A calendar keeps the times of directories that changed since the mount began.
// The index notes when a thread was last published to; a rename and a deletion
// leave no trace there, and a machine's clock may be set back. The time that a
// directory shows grows with every change all the same, so that who remembers a
// listing by its directory's time does not miss one.
type calendar struct {
	mu    sync.Mutex
	times map[string]time.Time // by directory; only of those that changed
}

// at returns the time of a directory that the index says was last written to at t.
func (c *calendar) at(dir string, t time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if later := c.times[dir]; later.After(t) {
		return later
	}
	return t
}

// changed notes that a directory changed at t. It shows a later time from now on
// than it did, be it what shown says or what was noted before.
func (c *calendar) changed(dir string, t, shown time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, before := range []time.Time{shown, c.times[dir]} {
		if !t.After(before) {
			t = before.Add(1)
		}
	}
	if c.times == nil {
		c.times = map[string]time.Time{}
	}
	c.times[dir] = t
}

// forget drops what was noted of a directory that is gone.
func (c *calendar) forget(dir string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.times, dir)
}

// shown is the latest time that a directory node gave the kernel.
type shown struct {
	mu   sync.Mutex
	time time.Time
}

// at notes that t is shown now. It returns it, or the time shown before if that
// is later.
func (s *shown) at(t time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.After(s.time) {
		s.time = t
	}
	return s.time
}

// last returns the latest time that was shown; zero: none.
func (s *shown) last() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.time
}
