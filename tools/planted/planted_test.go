package main

import (
	"errors"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const repository = "../.."

// The table fits the source as it is: each piece is there exactly once, what
// takes its place is Go, and the test that is named exists. So a change that
// makes the table stale shows at once, and not when the bugs are planted next.
func TestTableFitsTheSource(t *testing.T) {
	names := make(map[string]bool)
	for _, b := range table() {
		t.Run(b.name, func(t *testing.T) {
			if names[b.name] {
				t.Error("there are two of that name")
			}
			names[b.name] = true
			changed, err := b.plant(repository)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := parser.ParseFile(token.NewFileSet(), b.file, changed, 0); err != nil {
				t.Error(err)
			}
			if !hasTest(t, b.test) {
				t.Errorf("there is no test %s", b.test)
			}
		})
	}
}

func hasTest(t *testing.T, wanted test) bool {
	t.Helper()
	function, part, _ := strings.Cut(wanted.run, "/")
	if function == "TestScripts" {
		_, err := os.Stat(filepath.Join(repository, wanted.pkg, "testdata", part+".txt"))
		return err == nil
	}
	files, err := filepath.Glob(filepath.Join(repository, wanted.pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+function+"(t *testing.T)") {
			return true
		}
	}
	return false
}

func TestJudge(t *testing.T) {
	failed := errors.New("exit status 1")
	for name, test := range map[string]struct {
		out  string
		err  error
		want verdict
		line string
	}{
		"passes":           {"ok  \tconclave\t0.1s\n", nil, survived, ""},
		"fails":            {"--- FAIL: TestX (0.00s)\n    x_test.go:7: 1, not 2\nFAIL\nFAIL\tconclave\t0.1s\n", failed, killed, "x_test.go:7: 1, not 2"},
		"hangs":            {"panic: test timed out after 1m0s\nFAIL\tconclave\t60s\n", failed, killed, "panic: test timed out after 1m0s"},
		"is not there":     {"ok  \tconclave\t0.1s [no tests to run]\n", nil, broken, "there is no such test"},
		"does not compile": {"# conclave\n./x.go:3:1: undefined: y\nFAIL\tconclave [build failed]\n", failed, broken, "does not compile: ./x.go:3:1: undefined: y"},
		"is not run":       {"go: no such tool\n", failed, broken, "exit status 1"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, line := judge(test.out, test.err); got != test.want || line != test.line {
				t.Errorf("%s, %q; want %s, %q", got, line, test.want, test.line)
			}
		})
	}
}
