package arch

import (
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// words lists the words that this repository does not use, with the word to use.
// docs/ARCHITECTURE.md begins with the glossary.
var words = []struct {
	pattern string // a regular expression, matched in lower case between word boundaries
	instead string
}{
	{`he|him|his|himself|she|her`, "it, its: a member, node, leader, caller or test is a thing"},
	{`somebody|someone`, "another owner, a caller, a member"},
	{`anybody|anyone`, "any caller, any member"},
	{`everybody|everyone`, "every member, all owners"},
	{`nobody`, "no member, no owner, none"},
	{`whoever`, "the holder, the caller, the member that"},
	{`anew`, "again, or: a new X"},
	{`farewells?|goodbyes?`, "graceful shutdown"},
	{`(take|takes|took|taken|taking) leave`, "shut down gracefully"},
	{`rumours?|rumors?|hearsay`, "false positive (of the failure detector), suspicion"},
	{`astray`, "unbound"},
	{`mend|mends|mended|mending`, "fix, repair, heal (a partition)"},
	{`regroup|regroups|regrouped`, "membership change"},
	{`see off|sees off|seen off|seeing off`, "await the removal of"},
	{`(give|gives|gave|given|giving|hand|hands|handed|handing) (it |them )?back`, "release"},
	{`(hand|hands|handed|handing) (it |them |leadership |the leadership )?over|handover|hand-over`, "transfer leadership, leadership transfer"},
	{`(hand|hands|handed|handing) (it |them )?(on|out)`, "grant (the next waiter is granted the lock)"},
	{`(give|gives|gave|given|giving) way`, "transfer leadership, step down"},
	{`(let|lets|letting) (it |them )?go`, "discard, truncate, compact"},
	{`(come|comes|came|coming) again`, "be retried, arrive twice"},
	{`come[s]? to (its|an) end`, "stop, end"},
	{`cut off`, "partitioned; truncated (of a log or a file)"},
	{`the power goes|blackout|wreck|wrecked`, "power loss"},
	{`troubles?`, "faults, or name the fault"},
	{`in office|office`, "leads, leader, leadership, term"},
	{`makes? no sense`, "is invalid: want Y, got Z"},
	{`is no (message|uuid|lock index)`, "malformed"},
	{`what can be the matter|what was the matter`, "the cause"},
	{`for good`, "permanently"},
	{`dumb twin|twin`, "reference model"},
}

// exempt are files that quote the words or are not this project's text.
var exempt = []string{"internal/arch/words_test.go", "LICENSE"}

// textual are the files besides Go's that hold text.
var textual = []string{".md", ".txt", ".proto", ".yml", ".yaml", ".sh", ".patch"}

func TestText_UsesTheGlossary(t *testing.T) {
	for _, s := range loadAll(t) {
		if !s.isGenerated() && !slices.Contains(exempt, s.path) {
			report(t, s.misworded())
		}
	}
	for path, text := range texts(t) {
		n := 0
		for line := range strings.Lines(text) {
			n++
			for _, f := range misworded(line) {
				t.Errorf("%s:%d: %s", path, n, f)
			}
		}
	}
}

// texts returns the text files that are not Go, by their path from the root.
func texts(t *testing.T) map[string]string {
	t.Helper()
	found := make(map[string]string)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "fuzz", d.IsDir() && d.Name() == ".git":
			return filepath.SkipDir
		case d.IsDir() || !slices.Contains(textual, filepath.Ext(path)) && filepath.Base(filepath.Dir(path)) != ".ci":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if slash := filepath.ToSlash(relative); !slices.Contains(exempt, slash) {
			found[slash] = string(text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// misworded looks at comments, string literals and declared names.
func (s *source) misworded() []string {
	var faults []string
	add := func(at token.Pos, text string) {
		for _, f := range misworded(text) {
			faults = append(faults, s.fault(at, "%s", f))
		}
	}
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			add(c.Pos(), c.Text)
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				add(n.Pos(), n.Value)
			}
		case *ast.FuncDecl:
			add(n.Name.Pos(), split(n.Name.Name))
		case *ast.TypeSpec:
			add(n.Name.Pos(), split(n.Name.Name))
		case *ast.ValueSpec:
			for _, name := range n.Names {
				add(name.Pos(), split(name.Name))
			}
		case *ast.Field:
			for _, name := range n.Names {
				add(name.Pos(), split(name.Name))
			}
		}
		return true
	})
	return faults
}

var unusedWords = compileWords()

func compileWords() []*regexp.Regexp {
	var all []*regexp.Regexp
	for _, w := range words {
		all = append(all, regexp.MustCompile(`\b(?:`+w.pattern+`)\b`))
	}
	return all
}

// clause matches a relative clause without a noun, such as "Who leaves is ...".
var clause = regexp.MustCompile(`(?:^|[.;:] )(?://\s*)?Who [a-z]`)

// citation matches the names of documents that are not in this repository.
var citation = regexp.MustCompile(`\b(?:DESIGN|FINDINGS)\b`)

// misworded returns a complaint for each unused word in a text.
func misworded(text string) []string {
	var faults []string
	lower := strings.ToLower(text)
	for i, re := range unusedWords {
		if found := re.FindString(lower); found != "" {
			faults = append(faults, `"`+found+`": use `+words[i].instead)
		}
	}
	if clause.MatchString(text) && !strings.Contains(text, "?") {
		faults = append(faults, `"Who ..." as a subject: name it (the holder, a member that ...)`)
	}
	if found := citation.FindString(text); found != "" {
		faults = append(faults, found+": cite a section of docs/, such as docs/SEMANTICS.md; the repository cites only what it contains")
	}
	return faults
}

// split separates the words of a Go name.
func split(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) || r == '_' {
			b.WriteByte(' ')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Messages must not recommend what loses data, and format IDs uniformly.
func TestMessages_FollowTheForm(t *testing.T) { check(t, phrased) }

func phrased(s *source) []string {
	if !s.isLibrary() {
		return nil
	}
	var faults []string
	warned := s.warned()
	ast.Inspect(s.file, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		text := strings.ToLower(lit.Value)
		switch {
		case (strings.Contains(text, "empty director") || strings.Contains(text, "an empty one")) && !strings.Contains(text, "as a new member") && !strings.Contains(text, "fence") && !warned[lit]:
			faults = append(faults, s.fault(lit.Pos(), "recommends an empty directory, neither to join as a new member nor with the warning that a new group restarts the fences at 1"))
		case strings.Contains(text, "member %x") || text == `"%x"`:
			faults = append(faults, s.fault(lit.Pos(), "formats an ID with %%x: use wire.MemberID, which prints 16 digits"))
		case text == `"err"`:
			faults = append(faults, s.fault(lit.Pos(), `the attribute key of an error is "error"`))
		}
		return true
	})
	return faults
}

// warned returns the literals in calls to which the warning is also passed.
func (s *source) warned() map[*ast.BasicLit]bool {
	found := make(map[*ast.BasicLit]bool)
	ast.Inspect(s.file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		var literals []*ast.BasicLit
		passed := false
		for _, arg := range call.Args {
			ast.Inspect(arg, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.BasicLit:
					literals = append(literals, n)
				case *ast.Ident:
					passed = passed || n.Name == "NewGroupWarning"
				}
				return true
			})
		}
		for _, lit := range literals {
			found[lit] = found[lit] || passed
		}
		return true
	})
	return found
}

func TestWords_FindViolations(t *testing.T) {
	for _, c := range []struct{ name, path, code, want string }{
		{"pronoun", "x.go", "// f tells him.\nfunc f() {}", `"him"`},
		{"history", "x.go", "// f reads the history; the helper is there.\nfunc f() {}", ""},
		{"string", "x.go", `const s = "somebody else holds it"`, `"somebody"`},
		{"test name", "x_test.go", "func TestNobodySleeps() {}", `"nobody"`},
		{"clause", "x.go", "// f stops. Who leaves is removed.\nfunc f() {}", "as a subject"},
		{"question", "x.go", "// f answers: Who leads?\nfunc f() {}", ""},
		{"citation", "x.go", "// f, DESIGN 4.5.\nfunc f() {}", "docs/"},
	} {
		t.Run(c.name, func(t *testing.T) { expect(t, snippet(t, c.path, c.code).misworded(), c.want) })
	}
	for _, c := range []struct{ name, code, want string }{
		{"empty directory", `const s = "start with an empty directory"`, "restarts the fences"},
		{"with the warning", `const s = "an empty directory is a new group, whose fences start at 1"`, ""},
		{"with the constant", `var s = fmt.Sprintf("choose an empty directory; %s", NewGroupWarning)`, ""},
		{"member in hex", `const s = "member %x is unknown"`, "wire.MemberID"},
		{"log key", `const s = "err"`, `"error"`},
	} {
		t.Run(c.name, func(t *testing.T) { expect(t, phrased(snippet(t, "x.go", c.code)), c.want) })
	}
}
