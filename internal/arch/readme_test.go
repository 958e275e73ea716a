package arch

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every piece of Go in the README stands in one of the example files as well, so
// it compiles, and what it claims about its output is checked.
func TestReadmeCompiles(t *testing.T) {
	files, err := filepath.Glob(root + "/example*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var examples string
	for _, f := range files {
		examples += flat(read(t, f))
	}
	snippets := blocks(read(t, root+"/README.md"), "go")
	if len(snippets) == 0 {
		t.Error("no Go in README.md")
	}
	for _, s := range snippets {
		if !strings.Contains(examples, flat(s)) {
			t.Errorf("this is in README.md and in no example*_test.go; write it there first, then copy it:\n%s", s)
		}
	}
}

// A walk through the source that names files which have moved leads nowhere.
func TestDocumentsNameFilesThatExist(t *testing.T) {
	var files []string
	for _, s := range load(t) {
		files = append(files, s.path)
	}
	for _, document := range []string{"README.md", "docs/ARCHITECTURE.md", "docs/TESTING.md", "docs/PERFORMANCE.md"} {
		for _, quoted := range strings.Split(read(t, root+"/"+document), "`") {
			// A file may be named by the end of its path, where the folder is clear.
			isIt := func(file string) bool { return file == quoted || strings.HasSuffix(file, "/"+quoted) }
			if strings.HasSuffix(quoted, ".go") && !strings.ContainsAny(quoted, " *\n") && !slices.ContainsFunc(files, isIt) {
				t.Errorf("%s speaks of %s, and there is no such file: say where it is now", document, quoted)
			}
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocks returns what stands between the fences of a language.
func blocks(text, language string) []string {
	var found []string
	for i, part := range strings.Split(text, "\n```") {
		if code, ok := strings.CutPrefix(part, language+"\n"); ok && i%2 == 1 {
			found = append(found, code)
		}
	}
	return found
}

// flat makes the indentation not matter.
func flat(code string) string {
	var lines []string
	for line := range strings.Lines(code) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n") + "\n"
}
