package main

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// What an agent logs, and what commands print, names flags. A member's name stays as it is.
func TestAgent_LogNamesFlags(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log := newLogger(&out, format)
		log.With("reason", "found no group to join: start its members, or, to form a new one, set Expect to the number of its founders").
			Warn("no Dir: after a restart this process joins as a new member, and the group removes the former one after ReplaceAfter",
				"error", errors.New("set Config.Group or use another Dir"), "remedy", "check Config.Advertise of that member", "name", "Config.Join")
		for _, want := range []string{"set --expect to the number", "no --dir: after", "after --replace-after", "set --group or use another --dir", "check --advertise of", "Config.Join"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s, want %q", out.String(), want)
			}
		}
	}
}

// Whatever the library says about a setting for which the agent has a flag is said about the flag.
func TestInFlags_CoversLibrary(t *testing.T) {
	setting := regexp.MustCompile(`\b(Config\.[A-Z]\w+|Dir|Bind|Advertise|Join|Expect|Voters|ReplaceAfter|RemoveAfter)\b`)
	excepted := []string{ // no flag stands for it, an agent's flags exclude it, or a part of a text that names flags as a whole
		"Config.TLS", "Config.Listener", "Config.Logger", "Config.Events", "Config.Dial", "Config.Tracer",
		"Voters: want", "Expect: want", "Expect: 1 forms", "%w Voters:", "%w ReplaceAfter:", "%w RemoveAfter:", "%q is a wildcard: set",
	}
	texts := libraryTexts(t)
	if len(texts) < 1000 {
		t.Fatalf("%d texts found", len(texts))
	}
	found := 0
	for _, text := range texts {
		if !strings.Contains(text, " ") || !setting.MatchString(text) {
			continue // a name, or no setting
		}
		found++
		if left := setting.FindString(inFlags(text)); left != "" && !slices.ContainsFunc(excepted, func(e string) bool { return strings.Contains(text, e) }) {
			t.Errorf("%q names %s, not its flag: add it to flagNames", text, left)
		}
	}
	if found < 15 {
		t.Errorf("%d texts name settings", found)
	}
}

// libraryTexts returns the literals of the packages of which an agent consists.
func libraryTexts(t *testing.T) (texts []string) {
	t.Helper()
	skip := []string{"bench", "cmd", "contrib", "conclavetest", "conclavehttp", "examples", "fencing", "tools", "arch", "grouptest", "hostile", "sim", "wire", "testdata"}
	must0(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains(skip, d.Name()) || strings.HasPrefix(d.Name(), ".") && d.Name() != ".."):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				text, _ := strconv.Unquote(l.Value) // the parser has accepted it
				texts = append(texts, text)
			}
			return true
		})
		return nil
	}))
	return texts
}

// A job of a further group is GROUP=JOB; the job's name may contain = too.
func TestMeasuredGroupJobs(t *testing.T) {
	got, err := measuredGroupJobs([]string{"tenant=report", "tenant=a=b", "other=report"})
	if err != nil || len(got) != 2 || !slices.Equal(got["tenant"], []string{"report", "a=b"}) || !slices.Equal(got["other"], []string{"report"}) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := measuredGroupJobs([]string{"report"}); err == nil || !strings.Contains(err.Error(), `--measured-group-jobs: want GROUP=JOB, got "report"`) {
		t.Error(err)
	}
}
