package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

var flagName = regexp.MustCompile(`(?m)^\s+-([a-z-]+)`)

// memberFlags returns the flags that "member -help" lists.
func memberFlags(t *testing.T) map[string]bool {
	t.Helper()
	out, err := exec.Command(filepath.Join(programs, "member"), "-help").CombinedOutput()
	if err != nil {
		t.Fatalf("member -help: %v\n%s", err, out)
	}
	found := make(map[string]bool)
	for _, m := range flagName.FindAllStringSubmatch(string(out), -1) {
		found[m[1]] = true
	}
	return found
}

func readDocument(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Each command that the README and the example itself show has only flags that the program has.
func TestDocuments_MemberCommands(t *testing.T) {
	t.Parallel()
	shown := regexp.MustCompile(`(?m)^(?:\s*//\s*)?go run \./examples/member (.*)$`)
	word := regexp.MustCompile(`(?:^| )-([a-z-]+)`)
	flags := memberFlags(t)
	for _, name := range []string{"README.md", "examples/member/main.go"} {
		commands := shown.FindAllStringSubmatch(readDocument(t, name), -1)
		if len(commands) != 3 {
			t.Errorf("%s: %d commands found, want 3", name, len(commands))
		}
		for _, c := range commands {
			for _, f := range word.FindAllStringSubmatch(c[1], -1) {
				if !flags[f[1]] {
					t.Errorf("%s: member has no flag -%s: %s", name, f[1], c[1])
				}
			}
		}
	}
}
