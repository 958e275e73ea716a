package conclave_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
)

// What a sentinel means for the call that returned it.
type meaning struct {
	effect effect
	retry  string // of the same call: as the table of OPERATIONS begins
}

type effect int

const (
	none     effect = iota // the call had no effect
	unknown                // it may have had one
	standing               // a part of the effect stands: what the error is about
)

// meanings has one meaning for each sentinel. A second one needs a second sentinel.
func meanings() map[string]meaning {
	return map[string]meaning{
		"ErrLocked": {none, "yes"}, "ErrLockDelay": {none, "yes"}, "ErrNotHeld": {none, "no"}, "ErrLockOwnershipLost": {none, "no"}, "ErrHoldExpired": {none, "no"},
		"ErrAcquireLimitReached": {none, "no"}, "ErrDeadlock": {none, "no"}, "ErrJobDone": {none, ""}, "ErrShardMoved": {none, ""}, "ErrSessionExpired": {none, "no"}, "ErrSessionNotFound": {none, "no"}, "ErrGroupNotFound": {none, "no"},
		"ErrSessionBound": {none, "when"}, "ErrCheckCritical": {none, "when"}, "ErrStaleFence": {none, "no"}, "ErrStaleSequencer": {none, "no"},
		"ErrLimitMismatch": {none, "no"}, "ErrNoLimit": {none, "no"}, "ErrKeyNotFound": {none, ""}, "ErrCompareFailed": {none, ""}, "ErrCompacted": {none, ""},
		"ErrNoLeader": {none, ""}, "ErrUnavailable": {none, "yes"}, "ErrUnknown": {unknown, "read first"}, "ErrClosed": {none, "no"},
		"ErrIncomplete": {standing, "yes"}, "ErrCorrupt": {none, "no"}, "ErrTooLarge": {none, "no"}, "ErrBusy": {none, "yes"},
		"ErrInvalid": {none, "no"}, "ErrNotLeader": {none, "yes"}, "ErrLastVoter": {none, "no"}, "ErrUpgradeRequired": {none, "no"},
		"ErrRemoved": {none, "no"},
	}
}

// declared returns the sentinels of errors.go with their doc comments.
func declared(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.VAR {
			continue
		}
		for _, spec := range g.Specs {
			v := spec.(*ast.ValueSpec)
			if name := v.Names[0].Name; strings.HasPrefix(name, "Err") {
				found[name] = v.Doc.Text()
			}
		}
	}
	return found
}

// Each sentinel is in the table above, in one row of OPERATIONS and described where it is declared,
// with the same advice.
func TestSentinels_OneMeaning(t *testing.T) {
	operations, err := os.ReadFile("docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string][]string) // the third cell of each row that begins with a sentinel
	for line := range strings.Lines(string(operations)) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.Contains(cells[1], "`Err") {
			continue
		}
		for _, name := range regexp.MustCompile("`(Err[A-Za-z]+)`").FindAllStringSubmatch(cells[1], -1) {
			rows[name[1]] = append(rows[name[1]], strings.TrimSpace(cells[3]))
		}
	}
	docs, advised := declared(t), regexp.MustCompile(`(?i)\b(worth a retry|retry (later|when|once))\b`)
	for name, m := range meanings() {
		doc := strings.Join(strings.Fields(docs[name]), " ")
		if !strings.HasPrefix(doc, name+": ") {
			t.Errorf("%s: errors.go does not describe it: %q", name, doc)
		}
		if retried := advised.MatchString(doc); retried != (m.retry == "yes" || m.retry == "when") {
			t.Errorf("%s: its doc comment and the table disagree on a retry: %q", name, doc)
		}
		if len(rows[name]) != 1 || !strings.HasPrefix(rows[name][0], m.retry) || m.retry == "" && rows[name][0] != "" {
			t.Errorf("%s: OPERATIONS has it in the rows %q, want one that says %q", name, rows[name], m.retry)
		}
		delete(docs, name)
		delete(rows, name)
	}
	for name := range docs {
		t.Errorf("%s has no meaning in the table of this test", name)
	}
	for name := range rows {
		t.Errorf("OPERATIONS has %s, which is no sentinel", name)
	}
}

// No comment gives a sentinel another effect than the table.
func TestSentinels_DocCommentsAgree(t *testing.T) {
	sentinel := regexp.MustCompile(`\bErr[A-Z][A-Za-z]+`)
	may := regexp.MustCompile(`\b(may|might|can) (still |yet )?(take effect|have taken|be (stored|removed|queued|changed)|move)\b`)
	nothing := regexp.MustCompile(`\bno effect\b|\bnothing (was|has|is)\b`)
	table := meanings()
	agree := func(path, text string) {
		for clause := range strings.FieldsFuncSeq(strings.Join(strings.Fields(text), " "), func(r rune) bool { return r == '.' || r == ';' }) {
			names := sentinel.FindAllString(clause, -1)
			if len(names) != 1 {
				continue
			}
			m, known := table[names[0]]
			switch {
			case !known:
			case m.effect == unknown && nothing.MatchString(clause):
				t.Errorf("%s: the outcome is unknown after %s, but: %s", path, names[0], clause)
			case m.effect == none && may.MatchString(clause) && !nothing.MatchString(clause):
				t.Errorf("%s: %s has no effect, but: %s", path, names[0], clause)
			}
		}
	}
	eachFile(t, func(path string, file *ast.File) {
		for _, c := range file.Comments {
			agree(path, c.Text())
		}
	})
}
