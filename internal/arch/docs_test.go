package arch

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documents returns the text of each Markdown file by its path from the root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := make(map[string]string)
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/decisions/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			relative, err := filepath.Rel(root, f)
			if err != nil {
				t.Fatal(err)
			}
			texts[filepath.ToSlash(relative)] = read(t, f)
		}
	}
	return texts
}

// Every Go snippet of a document, and of the package comment, is also part of an
// example file, so it compiles, and the output it promises is checked. Those of
// docs/MIGRATING.md are in a module of their own, whose tests run them.
func TestDocs_SnippetsCompile(t *testing.T) {
	var examples string
	for _, pattern := range []string{"/example*_test.go", "/*/example*_test.go", "/contrib/*/example*_test.go", "/contrib/migrating/*.go"} {
		files, err := filepath.Glob(root + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			examples += flat(read(t, f))
		}
	}
	shown := map[string][]string{"doc.go": indented(read(t, root+"/doc.go"))}
	for name, text := range documents(t) {
		shown[name] = blocks(text, "go")
	}
	for _, name := range []string{"README.md", "docs/GUIDE.md", "doc.go"} {
		if len(shown[name]) == 0 {
			t.Errorf("%s: no Go snippet found", name)
		}
	}
	for name, snippets := range shown {
		for _, s := range snippets {
			if !strings.Contains(examples, flat(s)) {
				t.Errorf("%s: this snippet is in no example*_test.go, nor in contrib/migrating; write it there first, then copy it:\n%s", name, s)
			}
		}
	}
}

// quoted matches what a document sets in code font on one line.
var quoted = regexp.MustCompile("`([^`\n]+)`")

func TestDocs_NameExistingFiles(t *testing.T) {
	var files []string
	for _, s := range loadAll(t) {
		files = append(files, s.path)
	}
	for name, text := range documents(t) {
		for _, m := range quoted.FindAllStringSubmatch(text, -1) {
			file := m[1]
			// The end of a path is enough where the folder is clear.
			is := func(path string) bool { return path == file || strings.HasSuffix(path, "/"+file) }
			if strings.HasSuffix(file, ".go") && !strings.ContainsAny(file, " *") && !slices.ContainsFunc(files, is) {
				t.Errorf("%s: there is no file %s", name, file)
			}
			if place.MatchString(file) && !strings.Contains(file, "NAME") {
				if _, err := os.Stat(filepath.Join(root, file)); err != nil {
					t.Errorf("%s: there is no file or folder %s", name, file)
				}
			}
		}
	}
}

// place matches the path of a file or folder of this repository.
var place = regexp.MustCompile(`^(?:cluster|conclavetest|contrib|docs|examples|internal|raftlog|storage|tools)(?:/[\w.-]+)*$`)

// testName matches a test named in a document, without its subtests.
var testName = regexp.MustCompile("`((?:Test|Fuzz|Benchmark|Example)[A-Za-z0-9_]*)")

func TestDocs_NameExistingTests(t *testing.T) {
	known := make(map[string]bool)
	for _, s := range loadAll(t) {
		for _, d := range s.file.Decls {
			known[nameOf(d)] = true
		}
	}
	for name, text := range documents(t) {
		for _, m := range testName.FindAllStringSubmatch(text, -1) {
			if !known[m[1]] {
				t.Errorf("%s: there is no test %s", name, m[1])
			}
		}
	}
}

// link matches a Markdown link.
var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestDocs_LinksResolve(t *testing.T) {
	texts := documents(t)
	for name, text := range texts {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, ":") {
				continue // a URL
			}
			path := name
			if target != "" {
				path = filepath.ToSlash(filepath.Join(filepath.Dir(name), target))
			}
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s: link to %s: no such file", name, m[1])
			} else if anchor != "" && !slices.Contains(anchors(texts[path]), anchor) {
				t.Errorf("%s: link to %s: no such heading", name, m[1])
			}
		}
	}
}

// anchors returns the anchors of a document's headings, as GitHub makes them.
func anchors(text string) []string {
	var found []string
	for line := range strings.Lines(text) {
		title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if !ok || !strings.HasPrefix(line, "#") {
			continue
		}
		title = strings.ToLower(strings.TrimSpace(title))
		title = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(title, "")
		found = append(found, strings.ReplaceAll(title, " ", "-"))
	}
	return found
}

// Each sentinel error of the library is in the table of errors, and each error in the table
// exists.
func TestDocs_ErrorsExist(t *testing.T) {
	sentinels := make(map[string]bool)
	for _, s := range load(t) {
		if s.path != "errors.go" {
			continue
		}
		for _, d := range s.file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, spec := range g.Specs {
				for _, name := range spec.(*ast.ValueSpec).Names {
					sentinels[name.Name] = name.IsExported()
				}
			}
		}
	}
	if len(sentinels) == 0 {
		t.Fatal("errors.go: no sentinel errors found")
	}
	_, section, _ := strings.Cut(documents(t)["docs/OPERATIONS.md"], "\n## Errors\n")
	section, _, _ = strings.Cut(section, "\n## ")
	listed := make(map[string]bool)
	for line := range strings.Lines(section) {
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if !strings.HasPrefix(line, "| `Err") {
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(first, -1) {
			if listed[m[1]] = true; !sentinels[m[1]] {
				t.Errorf("docs/OPERATIONS.md: there is no error %s", m[1])
			}
		}
	}
	for name, exported := range sentinels {
		if exported && !listed[name] {
			t.Errorf("docs/OPERATIONS.md: the table of errors lacks %s", name)
		}
	}
}

func literal(n ast.Node) (text string, ok bool) {
	lit, ok := n.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	return strings.Trim(lit.Value, "\"`"), true
}

const maxReadme = 200

func TestDocs_ReadmeIsShort(t *testing.T) {
	if n := strings.Count(documents(t)["README.md"], "\n"); n > maxReadme {
		t.Errorf("README.md has %d lines, at most %d: move details to docs/", n, maxReadme)
	}
}

const maxArchitecture = 6000

func TestDocs_ArchitectureIsShort(t *testing.T) {
	if n := len(strings.Fields(documents(t)["docs/ARCHITECTURE.md"])); n > maxArchitecture {
		t.Errorf("docs/ARCHITECTURE.md has %d words, at most %d: write a page of docs/decisions", n, maxArchitecture)
	}
}

// Each decision is a page that docs/ARCHITECTURE.md lists.
func TestDocs_DecisionsAreListed(t *testing.T) {
	texts := documents(t)
	for name := range texts {
		if page, ok := strings.CutPrefix(name, "docs/"); ok && strings.HasPrefix(page, "decisions/") && !strings.Contains(texts["docs/ARCHITECTURE.md"], "]("+page+")") {
			t.Errorf("docs/ARCHITECTURE.md does not list %s", page)
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

// blocks returns the fenced code blocks of a language.
func blocks(text, language string) []string {
	var found []string
	for i, part := range strings.Split(text, "\n```") {
		if code, ok := strings.CutPrefix(part, language+"\n"); ok && i%2 == 1 {
			found = append(found, code)
		}
	}
	return found
}

// indented returns the code of a file's comments: consecutive lines that start
// with a tab.
func indented(text string) []string {
	var found []string
	var code string
	for line := range strings.Lines(text + "\n") {
		line = strings.TrimPrefix(line, "//")
		if strings.HasPrefix(line, "\t") || code != "" && strings.TrimSpace(line) == "" {
			code += line
			continue
		}
		if code != "" {
			found = append(found, strings.TrimSpace(code))
		}
		code = ""
	}
	return found
}

// flat removes the indentation.
func flat(code string) string {
	var lines []string
	for line := range strings.Lines(code) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n") + "\n"
}
