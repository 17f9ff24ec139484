// Package policy decides, and does nothing else: it reads no file, asks no
// clock and knows no store. What a program may save or show follows from its
// arguments alone, so that every decision can be explained and tested.
//
// # Which files
//
// [CompileFiles] turns rules in gitignore syntax into [Files], which says for
// each entry of a workspace whether it is content. A walk asks top-down, one
// [Scope] a directory:
//
//	var walk func(dir string, s policy.Scope)
//	walk = func(dir string, s policy.Scope) {
//		for _, e := range entriesOf(dir) {
//			d, sub := s.Decide(e.Name(), e.IsDir())
//			if d.Keep {
//				store(dir, e)
//			}
//			if d.Descend {
//				walk(dir+"/"+e.Name(), sub)
//			}
//		}
//	}
//	walk(workspace, files.Root())
//
// A directory that is not descended into need not be opened, nor an entry that
// is not kept be looked at: its name was enough.
//
// # What a pattern means
//
// The meaning is git's, to the byte, and the tests ask git itself:
//
//	build          an entry of this name at any depth, file or directory
//	build/         only a directory
//	/build         only in the workspace's root
//	doc/*.txt      a slash in the middle anchors too; * and ? stop at slashes
//	**/doc/x       doc/x at any depth;  a/**/b  any number of folders between
//	dist/**        all below dist, but not dist itself: it is kept, empty
//	!keep.log      lifts what earlier rules exclude
//	[a-c] [!a] [[:digit:]]   one byte of a set; ? is one byte, not one letter
//	[^/]*.log      a slash in a set is never matched, and anchors as any other
//	\#x \!x \*     the character itself
//
// The last rule that matches an entry decides. What is below an excluded
// directory is out, whatever a later rule says. Names are bytes: they need not
// be UTF-8, and case counts.
//
// Where git passes in silence over a pattern that cannot match anything, such
// as an unclosed bracket, [CompileFiles] refuses it: somebody believes that
// this rule keeps a secret out.
//
// # Who decides
//
// Three kinds of rules meet, and each can only take away from what the others
// leave:
//
//   - excludes, in the order [Defaults], policy file, flags;
//   - includes, when there are any: only what they match, and what is below a
//     directory that they match, is content;
//   - ignore files inside the workspace ([Scope.Narrow]). The workspace's
//     content is untrusted: its "!.env" lifts its own rules only.
//
// What was decided by is written down with what it let through:
// [Recorded.Encode] makes the text and [Decode] reads it.
//
// # How it is fast
//
// A pattern is cut at its slashes into components and run as a small
// automaton. A Scope holds the positions that are still open in its directory:
// none, for almost every directory. Components that are plain names are found
// by one map lookup, whatever the number of rules, and an empty list of open
// positions is also the proof that no include can match further down.
//
// The matcher is our own. go-git's gitignore package (v5.19.3) was tried
// against git and differs: it keeps what git leaves out ("**/a/b" fails on
// a/x/a/b, "[!a]c" and "[[:lower:]]c" on bc; "!a/*" lifts a/b/c out of
// "a/*/*"), leaves out what git keeps ("dist/**" takes dist itself, "caf?"
// takes café), and needs fifty times as long.
package policy
