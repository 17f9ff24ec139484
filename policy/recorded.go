package policy

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Settings are what decides about content beside the rules. The zero value is
// what holds unless something else is asked for.
type Settings struct {
	// GitIgnore honours the .gitignore files of the workspace, and not only
	// its .snapfsignore files.
	GitIgnore bool
	// ExcludeCaches leaves out what lies beside a CACHEDIR.TAG.
	ExcludeCaches bool
	// MaxFileSize is the length that a file may have, in bytes; 0: any.
	MaxFileSize int64
	// MaxSize is the length that all files together may have, in bytes; 0: any.
	MaxSize int64
	// SkipOver leaves out a file that is longer than MaxFileSize. Without it,
	// such a file is an error.
	SkipOver bool
	// Secrets says what becomes of files that have what looks like a secret.
	Secrets SecretsMode
}

// IgnoreFile is an ignore file of the workspace that was in force.
type IgnoreFile struct {
	Path string   // relative to the workspace, any bytes
	Hash [32]byte // BLAKE3 of its content
}

// Recorded is a policy as a checkpoint's record keeps it.
type Recorded struct {
	// Files holds the rules. NoDefaults is set: the defaults that were in
	// force are among its excludes.
	Files    FilesOptions
	Settings Settings
	// Allowed are the rules for what looks like a secret and is none, in the order in
	// which they were given.
	Allowed []AllowRule
	// Redacted says where secrets were declared: names of variables and files, never
	// what they have.
	Redacted []string
	// Ignore holds the workspace's ignore files that were in force, by
	// ascending path.
	Ignore []IgnoreFile
}

const recordedHeading = "snapfs files policy 1"

// The names of the settings in the text. Only what is not zero is written.
const (
	setGitIgnore     = "gitignore"
	setExcludeCaches = "excludeCaches"
	setMaxFileSize   = "maxFileSize"
	setMaxSize       = "maxSize"
	setOverLimit     = "overLimit"
	setSecrets       = "secrets"
)

// Record returns the policy for a checkpoint's record, before a walk has found
// ignore files.
func (f *Files) Record(s Settings) Recorded {
	plain := func(rules []rule) []Rule {
		var list []Rule
		for _, r := range rules {
			list = append(list, r.Rule)
		}
		return list
	}
	return Recorded{
		Files:    FilesOptions{NoDefaults: true, Exclude: plain(f.exclude.rules), Include: plain(f.include.rules)},
		Settings: s,
	}
}

// Encode returns the policy as text: a heading with the format's number, then
// one line a rule, excludes before includes, each in the order in which they
// are tried; one line for each setting that is not zero; one line for each rule of
// what is allowed, for each source of declared secrets, and for each ignore file.
// Strings are quoted as in Go, in ASCII. Equal policies give equal bytes.
//
//	snapfs files policy 1
//	exclude "node_modules/" "default"
//	include "/src/" "--include"
//	set gitignore true
//	set maxFileSize 1048576
//	set overLimit skip
//	set secrets warn
//	allow "testdata/" "private-key" "p.yaml:9"
//	redact "variable TOKEN"
//	ignore "a/.gitignore" 8f2c...
func (r Recorded) Encode() []byte {
	var b bytes.Buffer
	b.WriteString(recordedHeading + "\n")
	for _, rule := range r.Files.Exclude {
		fmt.Fprintf(&b, "exclude %+q %+q\n", rule.Pattern, rule.Source)
	}
	for _, rule := range r.Files.Include {
		fmt.Fprintf(&b, "include %+q %+q\n", rule.Pattern, rule.Source)
	}
	s := r.Settings
	set := func(name string, holds bool, value any) {
		if holds {
			fmt.Fprintf(&b, "set %s %v\n", name, value)
		}
	}
	set(setGitIgnore, s.GitIgnore, true)
	set(setExcludeCaches, s.ExcludeCaches, true)
	set(setMaxFileSize, s.MaxFileSize != 0, s.MaxFileSize)
	set(setMaxSize, s.MaxSize != 0, s.MaxSize)
	set(setOverLimit, s.SkipOver, "skip")
	set(setSecrets, s.Secrets != "", s.Secrets)
	for _, a := range r.Allowed {
		fmt.Fprintf(&b, "allow %+q %+q %+q\n", a.Pattern, a.Kind, a.Source)
	}
	for _, source := range r.Redacted {
		fmt.Fprintf(&b, "redact %+q\n", source)
	}
	for _, f := range r.Ignore {
		fmt.Fprintf(&b, "ignore %+q %x\n", f.Path, f.Hash)
	}
	return b.Bytes()
}

// Decode is the inverse of [Recorded.Encode], and takes nothing but what that
// writes. The patterns are not compiled. An error names the line.
func Decode(text []byte) (Recorded, error) {
	r := Recorded{Files: FilesOptions{NoDefaults: true}}
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		if i == 0 {
			if line != recordedHeading {
				return Recorded{}, fmt.Errorf("recorded policy: its first line is not %q", recordedHeading)
			}
			continue
		}
		if err := r.decodeLine(line); err != nil {
			return Recorded{}, fmt.Errorf("recorded policy: line %d: %w", i+1, err)
		}
	}
	for i := 1; i < len(r.Ignore); i++ {
		if r.Ignore[i-1].Path >= r.Ignore[i].Path {
			return Recorded{}, errors.New("recorded policy: its ignore files are not in order")
		}
	}
	if !bytes.Equal(r.Encode(), text) {
		return Recorded{}, errors.New("recorded policy: not written as it has to be")
	}
	return r, nil
}

// decodeLine adds what one line behind the heading says.
func (r *Recorded) decodeLine(line string) error {
	kind, rest, _ := strings.Cut(line, " ")
	switch kind {
	case "exclude", "include":
		text, err := allQuoted(rest, 2)
		if err != nil {
			return fmt.Errorf("want %s, a pattern and a source: %w", kind, err)
		}
		rules := &r.Files.Exclude
		if kind == "include" {
			rules = &r.Files.Include
		}
		*rules = append(*rules, Rule{Pattern: text[0], Source: text[1]})
		return nil
	case "allow":
		text, err := allQuoted(rest, 3)
		if err != nil {
			return fmt.Errorf("want allow, a pattern, a kind and a source: %w", err)
		}
		r.Allowed = append(r.Allowed, AllowRule{Pattern: text[0], Kind: text[1], Source: text[2]})
		return nil
	case "redact":
		text, err := allQuoted(rest, 1)
		if err != nil {
			return fmt.Errorf("want redact and a source: %w", err)
		}
		r.Redacted = append(r.Redacted, text[0])
		return nil
	case "set":
		name, value, _ := strings.Cut(rest, " ")
		return r.Settings.set(name, value)
	case "ignore":
		path, rest, err := cutQuoted(rest)
		if err != nil {
			return err
		}
		f := IgnoreFile{Path: path}
		if len(rest) != hex.EncodedLen(len(f.Hash)) {
			return errors.New("want ignore, a path and a hash")
		}
		if _, err := hex.Decode(f.Hash[:], []byte(rest)); err != nil {
			return fmt.Errorf("hash: %w", err)
		}
		r.Ignore = append(r.Ignore, f)
		return nil
	}
	return fmt.Errorf("unknown kind %q", kind)
}

// set gives the setting of that name the value of a text.
func (s *Settings) set(name, value string) (err error) {
	switch name {
	case setGitIgnore:
		s.GitIgnore, err = strconv.ParseBool(value)
	case setExcludeCaches:
		s.ExcludeCaches, err = strconv.ParseBool(value)
	case setMaxFileSize:
		s.MaxFileSize, err = strconv.ParseInt(value, 10, 64)
	case setMaxSize:
		s.MaxSize, err = strconv.ParseInt(value, 10, 64)
	case setOverLimit:
		s.SkipOver = value == "skip"
	case setSecrets:
		s.Secrets, err = ParseSecretsMode(value)
	default:
		return fmt.Errorf("unknown setting %q", name)
	}
	if err == nil && (s.MaxFileSize < 0 || s.MaxSize < 0) {
		err = errors.New("want no negative number")
	}
	if err != nil {
		return fmt.Errorf("setting %s: %w", name, err)
	}
	return nil
}

// allQuoted reads n quoted strings and nothing else.
func allQuoted(text string, n int) ([]string, error) {
	list := make([]string, n)
	for i := range list {
		var err error
		if list[i], text, err = cutQuoted(text); err != nil {
			return nil, err
		}
	}
	if text != "" {
		return nil, errors.New("there is more")
	}
	return list, nil
}

// cutQuoted cuts a quoted string and the space behind it off the beginning of
// text.
func cutQuoted(text string) (s, rest string, err error) {
	quoted, err := strconv.QuotedPrefix(text)
	if err == nil {
		s, err = strconv.Unquote(quoted)
	}
	if err != nil {
		return "", "", errors.New("want a string in quotes")
	}
	return s, strings.TrimPrefix(text[len(quoted):], " "), nil
}
