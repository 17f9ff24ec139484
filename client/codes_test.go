package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapfs/snapfs/cas"
	"github.com/snapfs/snapfs/client"
	"github.com/snapfs/snapfs/index"
	"github.com/snapfs/snapfs/snapshot"
)

// across sends an error through the wire's form.
func across(t *testing.T, err error) error {
	t.Helper()
	data, jerr := json.Marshal(client.NewErrorBody(err))
	require.NoError(t, jerr)
	var body client.ErrorBody
	require.NoError(t, json.Unmarshal(data, &body))
	return body.Err()
}

func TestSentinelsCrossTheWire(t *testing.T) {
	codes := map[client.Code]bool{client.CodeInternal: true, client.CodeBadRequest: true, client.CodeNoRoute: true}
	for _, s := range client.Sentinels() {
		require.False(t, codes[s.Code], "code %s stands twice", s.Code)
		codes[s.Code] = true
		here := fmt.Errorf("do this to that: %w", s.Err)
		there := across(t, here)
		require.EqualError(t, there, here.Error())
		require.Empty(t, snapshot.Hint(there))
		for _, other := range client.Sentinels() {
			require.Equal(t, errors.Is(here, other.Err), errors.Is(there, other.Err), "%s as %s", s.Code, other.Code)
		}
		hinted := across(t, fmt.Errorf("outside: %w", snapshot.WithHint(here, "type %q", "this")))
		require.ErrorIs(t, hinted, s.Err)
		require.EqualError(t, hinted, "outside: "+here.Error())
		require.Equal(t, `type "this"`, snapshot.Hint(hinted))
	}
}

func TestErrorsThatAreMoreOrLess(t *testing.T) {
	both := across(t, fmt.Errorf("a: %w: %w", cas.ErrCorrupt, index.ErrNewer))
	require.ErrorIs(t, both, cas.ErrCorrupt)
	require.ErrorIs(t, both, index.ErrNewer)
	var e *client.Error
	require.ErrorAs(t, across(t, errors.New("some trouble")), &e)
	require.Equal(t, client.CodeInternal, e.Code)
	require.Empty(t, e.Unwrap())
	require.EqualError(t, client.ErrorBody{Code: "FROM_A_NEWER_DAEMON", Message: "so"}.Err(), "so")
}

// TestSentinelsAreComplete reads the sources: whatever sentinel somebody adds
// must stand in the table.
func TestSentinelsAreComplete(t *testing.T) {
	missing := map[string]int{} // by text
	for _, s := range client.Sentinels() {
		missing[s.Err.Error()]--
	}
	for _, pkg := range []string{"snapshot", "index", "cas", "capture", "restore", "tree"} {
		files, err := filepath.Glob("../" + pkg + "/*.go")
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, text := range sentinelTexts(t, file) {
				missing[text]++
			}
		}
	}
	for text, n := range missing {
		require.LessOrEqual(t, n, 0, "an error %q has no code", text)
	}
}

// sentinelTexts finds Err... = errors.New("...") among a file's variables.
func sentinelTexts(t *testing.T, file string) (texts []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	for _, decl := range parsed.Decls {
		vars, ok := decl.(*ast.GenDecl)
		if !ok || vars.Tok != token.VAR {
			continue
		}
		for _, spec := range vars.Specs {
			v := spec.(*ast.ValueSpec)
			for i, name := range v.Names {
				if !strings.HasPrefix(name.Name, "Err") || i >= len(v.Values) {
					continue
				}
				call, ok := v.Values[i].(*ast.CallExpr)
				require.True(t, ok, "%s: %s", file, name.Name)
				text, err := strconv.Unquote(call.Args[0].(*ast.BasicLit).Value)
				require.NoError(t, err)
				texts = append(texts, text)
			}
		}
	}
	return texts
}
