package policy

import (
	"fmt"
	"strings"
)

// ParseIgnore cuts the content of a file in gitignore syntax into rules, whose
// sources are name:LINE. Empty lines and those that begin with "#" are no
// rules; a byte order mark and the CR of a line's end are dropped. The patterns
// are not checked: that is done where they are compiled. Git ends a line at its first
// NUL byte: such a line is a rule as git has it, and one as it stands, which is refused
// there and so not passed over in silence.
func ParseIgnore(name string, content []byte) []Rule {
	text := strings.TrimPrefix(string(content), "\ufeff")
	var rules []Rule
	line := 0
	for text := range strings.SplitSeq(text, "\n") {
		line++
		text = strings.TrimSuffix(text, "\r")
		source := fmt.Sprintf("%s:%d", name, line)
		pattern, _, cut := strings.Cut(text, "\x00")
		if !isNoRule(pattern) {
			rules = append(rules, Rule{Pattern: pattern, Source: source})
		}
		if cut && !strings.HasPrefix(text, "#") {
			rules = append(rules, Rule{Pattern: text, Source: source})
		}
	}
	return rules
}

// isNoRule tells of an empty line or a comment.
func isNoRule(line string) bool { return trimSpaces(line) == "" || line[0] == '#' }
