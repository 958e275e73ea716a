package migrating

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// marker matches the line before a snippet, and the one that ends the last snippet of a file.
var marker = regexp.MustCompile(`(?m)^//snippet:(\S+)\n`)

// snippets returns the code between the markers of the files, by name.
func snippets(t *testing.T) map[string]string {
	t.Helper()
	found := make(map[string]string)
	files, err := filepath.Glob("*.go")
	must(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		must(t, err)
		marks := marker.FindAllSubmatchIndex(text, -1)
		for i, m := range marks {
			name := string(text[m[2]:m[3]])
			if name == "end" {
				continue
			}
			if i+1 == len(marks) {
				t.Fatalf("%s: no //snippet:end", file)
			}
			if found[name] != "" {
				t.Errorf("%s: snippet %s is defined twice", file, name)
			}
			found[name] = strings.Trim(string(text[m[1]:marks[i+1][0]]), "\n") + "\n"
		}
	}
	return found
}

// blocks returns the fenced Go code of a document.
func blocks(document string) []string {
	var found []string
	for i, part := range strings.Split(document, "\n```") {
		if code, ok := strings.CutPrefix(part, "go\n"); ok && i%2 == 1 {
			found = append(found, code+"\n")
		}
	}
	return found
}

func TestDocument_ShowsTheCompiledCode(t *testing.T) {
	text, err := os.ReadFile("../../docs/MIGRATING.md")
	must(t, err)
	code := snippets(t)
	if len(code) == 0 {
		t.Fatal("no snippets found")
	}
	shown := blocks(string(text))
	for _, block := range shown {
		known := false
		for _, s := range code {
			known = known || s == block
		}
		if !known {
			t.Errorf("docs/MIGRATING.md: no snippet of this folder has this code, byte for byte:\n%s", block)
		}
	}
	for name, s := range code {
		if !slices.Contains(shown, s) {
			t.Errorf("docs/MIGRATING.md lacks the snippet %s", name)
		}
	}
}
