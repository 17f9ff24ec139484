package capture

import (
	"fmt"
	"strings"

	"github.com/snapfs/snapfs/policy"
	"github.com/snapfs/snapfs/tree"
)

// suspect notes a rule that takes something out of a directory in the root by a
// pattern of several parts. If nothing is left there in the end, it may have been
// meant otherwise.
func (c *walker) suspect(d *directory, decision policy.Decision) {
	rule := decision.Rule
	if d.parent == nil || decision.Ignored || rule.Source == policy.DefaultSource || !rule.Several() {
		return
	}
	top, _, _ := strings.Cut(d.path, "/")
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.suspects[top]; !ok {
		c.suspects[top] = rule
	}
}

// emptied warns of a directory in the root of which nothing but directories is left.
func (c *walker) emptied(d *directory, files uint64) {
	if files > 0 || d.parent == nil || d.parent.parent != nil || !d.entry.keep {
		return
	}
	c.mu.Lock()
	rule, ok := c.suspects[d.name()]
	c.mu.Unlock()
	if ok {
		c.warn(d.name(), fmt.Sprintf("%s: no file in it is saved; one of the rules that leave them out is %s (%s)", tree.Quote(d.name()), tree.Quote(rule.Pattern), rule.Source))
	}
}

// lost warns, once all is done, of a tree without any file though something was left
// out, and of includes that have matched nothing. Unlike other warnings these begin with
// no path, and come first.
func (c *walker) lost() {
	if c.root.Totals.Files == 0 {
		if why := c.mostLeft(); why != "" {
			c.warn("", "no file is saved: "+why)
		} else if c.passed.Load() {
			c.warn("", "no file is saved: the includes match none")
		}
	}
	but := ""
	if c.excluded > 0 {
		but = " that is not excluded"
	}
	for _, r := range c.unmatched() {
		c.warn("", fmt.Sprintf("%s %s: nothing in the workspace matches%s", r.Source, tree.Quote(r.Pattern), but))
	}
}

// mostLeft says why most of what was left out was; of two as frequent reasons the one
// that comes first in order of paths. The list is in this order.
func (c *walker) mostLeft() string {
	count, total, most := map[string]int{}, 0, ""
	for _, o := range c.left {
		if o.Why != setuidDropped { // left out is the bit alone
			count[o.Why]++
			total++
		}
	}
	for _, o := range c.left {
		if count[o.Why] > count[most] {
			most = o.Why
		}
	}
	switch {
	case total == 0:
		return ""
	case total == 1:
		return "1 entry is left out: " + most
	case count[most] == total:
		return fmt.Sprintf("%d entries are left out: %s", total, most)
	}
	return fmt.Sprintf("%d entries are left out, %d of them: %s", total, count[most], most)
}
