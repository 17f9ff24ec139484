package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"github.com/xrash/smetrics"
	"go.yaml.in/yaml/v3"

	"github.com/snapfs/snapfs/snapshot"
)

// maxYAML is how long such a file may be, in bytes.
const maxYAML = 1 << 20

// readYAML reads a file with one YAML document into a struct, see decodeYAML. In
// errors what stands before the file's name.
func readYAML(ctx context.Context, what, path string, into any) error {
	data, err := readInput(ctx, path, maxYAML)
	if err != nil {
		return usage(fmt.Errorf("%s: %w", what, err))
	}
	if err := decodeYAML(bytes.NewReader(data), into); err != nil {
		return usage(fmt.Errorf("%s %s: %w", what, quote(path), err))
	}
	return nil
}

// decodeYAML reads one YAML document into a struct whose fields have yaml tags.
// A key that the struct does not know is refused with the nearest one that it
// does, and so are a second key of one name, a second document, and a list where
// one value is due. Errors have a line number where there is one.
func decodeYAML(data io.Reader, into any) error {
	dec := yaml.NewDecoder(data)
	var doc yaml.Node
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return nil // an empty file says nothing
	}
	if err == nil && !errors.Is(dec.Decode(new(yaml.Node)), io.EOF) {
		err = errors.New("more than one document")
	}
	if err == nil {
		err = checkYAML(doc.Content[0], reflect.TypeOf(into).Elem(), "")
	}
	if err == nil {
		err = doc.Decode(into)
	}
	var typed *yaml.TypeError
	if errors.As(err, &typed) { // whose own text has several lines
		err = errors.New(strings.Join(typed.Errors, "; "))
	}
	return err
}

// checkYAML compares the form of a value with the type that it is for. What is
// null is as if it were not there. path is the value's key.
func checkYAML(node *yaml.Node, t reflect.Type, path string) error {
	want, kind := "one value", yaml.ScalarNode
	switch {
	case isMapping(t):
		want, kind = "keys and values", yaml.MappingNode
	case t.Kind() == reflect.Slice:
		want, kind = "a list", yaml.SequenceNode
	}
	if node.ShortTag() == "!!null" {
		return nil
	}
	if node.Kind != kind {
		return fmt.Errorf("line %d: %swant %s", node.Line, strings.TrimPrefix(path+": ", ": "), want)
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch tag := node.ShortTag(); {
	case t.Kind() == reflect.Bool && tag != "!!bool":
		return fmt.Errorf("line %d: %s: %s: want true or false", node.Line, path, quote(node.Value))
	case t.Kind() == reflect.Int && (tag != "!!int" || !isDecimal(node.Value)):
		return fmt.Errorf("line %d: %s: %s: want a whole number", node.Line, path, quote(node.Value))
	}
	switch kind {
	case yaml.SequenceNode:
		for _, n := range node.Content {
			if isMapping(t.Elem()) && n.ShortTag() != "!!null" {
				if err := checkYAML(n, t.Elem(), path); err != nil {
					return err
				}
				continue
			}
			if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
				return fmt.Errorf("line %d: %s: want one value each", n.Line, path)
			}
		}
	case yaml.MappingNode:
		return checkKeys(node, t, path)
	}
	return nil
}

// isDecimal reports whether a number is written as people do: YAML takes 010 for eight.
func isDecimal(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && strconv.Itoa(n) == text
}

// isMapping reports whether a struct is for keys and values, and reads none of its own.
func isMapping(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(reflect.TypeFor[yaml.Unmarshaler]())
}

// checkKeys compares a mapping's keys with the fields of a struct.
func checkKeys(node *yaml.Node, t reflect.Type, path string) error {
	if path != "" {
		path += "."
	}
	fields := map[string]reflect.Type{}
	for f := range t.Fields() {
		fields[f.Tag.Get("yaml")] = f.Type
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		field, known := fields[key.Value]
		switch {
		case !known:
			err := fmt.Errorf("line %d: unknown key %q", key.Line, path+key.Value)
			return snapshot.WithHint(err, "did you mean %s?", path+nearest(key.Value, fields))
		case seen[key.Value]:
			return fmt.Errorf("line %d: key %q is there twice", key.Line, path+key.Value)
		}
		seen[key.Value] = true
		if err := checkYAML(node.Content[i+1], field, path+key.Value); err != nil {
			return err
		}
	}
	return nil
}

// nearest finds the known key that is most like a wrong one.
func nearest(key string, known map[string]reflect.Type) string {
	best, least := "", -1
	for k := range known {
		d := smetrics.WagnerFischer(strings.ToLower(key), strings.ToLower(k), 1, 1, 1)
		if least < 0 || d < least || (d == least && k < best) {
			best, least = k, d
		}
	}
	return best
}
