package policy

import (
	"fmt"
	"strings"
)

// ParseIgnore cuts the content of a file in gitignore syntax into rules, whose
// sources are name:LINE. Empty lines and those that begin with "#" are no
// rules; a byte order mark and the CR of a line's end are dropped. The patterns
// are not checked: that is done where they are compiled.
func ParseIgnore(name string, content []byte) []Rule {
	text := strings.TrimPrefix(string(content), "\ufeff")
	var rules []Rule
	line := 0
	for pattern := range strings.SplitSeq(text, "\n") {
		line++
		pattern = strings.TrimSuffix(pattern, "\r")
		if trimSpaces(pattern) == "" || pattern[0] == '#' {
			continue
		}
		rules = append(rules, Rule{Pattern: pattern, Source: fmt.Sprintf("%s:%d", name, line)})
	}
	return rules
}
