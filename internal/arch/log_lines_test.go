package arch

import (
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
)

// Operators read the log with the table of docs/OPERATIONS.md beside it, and know members by their names.

// indirect has the messages that reach the Logger in a variable, with their levels.
var indirect = map[string]string{
	"member joined":                                  "info",
	"member promoted":                                "info",
	"member demoted":                                 "info",
	"member replaced":                                "info",
	"member removed":                                 "info",
	"founder refuses the group":                      "info",
	"not admitted to the group yet":                  "info",
	"connection failed":                              "warn",
	"connection refused":                             "warn",
	"inbound connection refused":                     "warn",
	"inbound handshake failed":                       "warn",
	"gossip dropped":                                 "warn",
	"log lines dropped: the Logger blocks or panics": "warn",
}

// Each line in the table is logged at its levels, by the library or the agent, and each line that they log above Debug is in the table.
func TestLog_LinesAreDocumented(t *testing.T) {
	literals, logged := make(map[string]bool), make(map[string][]string)
	for _, s := range loadAll(t) {
		if s.nested && s.pkg != "cmd/conclave" || !s.isLibrary() {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if text, ok := literal(n); ok {
				literals[text] = true
			}
			if call, ok := n.(*ast.CallExpr); ok {
				if text, level, ok := logLine(call); ok && !slices.Contains(logged[text], level) {
					logged[text] = append(logged[text], level)
				}
			}
			return true
		})
	}
	for text, level := range indirect {
		if !literals[text] || len(logged[text]) > 0 {
			t.Errorf("%q is not logged from a variable: correct the list of this test", text)
		}
		logged[text] = []string{level}
	}
	_, section, _ := strings.Cut(documents(t)["docs/OPERATIONS.md"], "\n## Log lines\n")
	report(t, undocumented(section, logged))
}

// undocumented compares the table in a section with what is logged, by message.
func undocumented(section string, logged map[string][]string) (faults []string) {
	listed := make(map[string]bool)
	for line := range strings.Lines(section) {
		columns := strings.Split(strings.TrimSpace(line), " | ")
		text, ok := strings.CutPrefix(columns[0], "| `")
		if !ok || len(columns) != 3 {
			continue
		}
		text = strings.TrimSuffix(text, "`")
		listed[text] = true
		levels, is := strings.Split(columns[1], ", "), slices.Clone(logged[text])
		slices.Sort(levels)
		slices.Sort(is)
		switch {
		case len(is) == 0:
			faults = append(faults, "docs/OPERATIONS.md: no line is logged as "+text)
		case !slices.Equal(levels, is):
			faults = append(faults, "docs/OPERATIONS.md: the levels of "+text+" are "+strings.Join(is, ", "))
		}
		if strings.TrimSpace(strings.TrimSuffix(columns[2], "|")) == "" {
			faults = append(faults, "docs/OPERATIONS.md: what does "+text+" mean, and what is to be done?")
		}
	}
	for _, text := range slices.Sorted(maps.Keys(logged)) {
		if !listed[text] {
			faults = append(faults, "docs/OPERATIONS.md: the table of log lines lacks "+text)
		}
	}
	return faults
}

// logLine returns the constant message of a call that logs at Info, Warn or Error, and the level.
func logLine(call *ast.CallExpr) (text, level string, ok bool) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 || !slices.Contains([]string{"Info", "Warn", "Error"}, method.Sel.Name) {
		return "", "", false
	}
	text, ok = literal(call.Args[0])
	return text, strings.ToLower(method.Sel.Name), ok
}

func TestLog_TableCompared(t *testing.T) {
	logged := map[string][]string{"quorum lost": {"warn"}, "changed": {"warn", "info"}, "stopped": {"error"}}
	for _, test := range []struct {
		section string
		want    int
	}{
		{"| `quorum lost` | warn | start voters |\n| `changed` | info, warn | x |\n| `stopped` | error | x |", 0},
		{"| `quorum lost` | warn | start voters |\n| `changed` | info, warn | x |", 1},
		{"| `quorum lost` | info | start voters |\n| `changed` | info, warn | x |\n| `stopped` | error | x |", 1},
		{"| `quorum lost` | warn | start voters |\n| `changed` | info | x |\n| `stopped` | error | x |\n| `gone` | info | x |", 2},
		{"| `quorum lost` | warn |  |\n| `changed` | info, warn | x |\n| `stopped` | error | x |", 1},
	} {
		if got := undocumented(test.section, logged); len(got) != test.want {
			t.Errorf("%q: %q", test.section, got)
		}
	}
}

// memberKeys are the attributes that identify members.
var memberKeys = []string{"member", "leader", "last", "by", "from", "to", "down"}

// Members are identified in log lines by a wire.MemberID, after which the Logger adds the name (internal/memberlog).
func TestLog_IdentifiesMembersByType(t *testing.T) {
	for _, s := range load(t) {
		if s.isLibrary() {
			report(t, nameless(s))
		}
	}
}

func nameless(s *source) (faults []string) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		var pairs []ast.Expr
		switch n := n.(type) {
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Debug", "Info", "Warn", "Error", "Log"}, f.Sel.Name) {
				pairs = n.Args
			}
			if f, ok := n.Fun.(*ast.Ident); ok && f.Name == "append" {
				pairs = n.Args
			}
		case *ast.CompositeLit:
			if list, ok := n.Type.(*ast.ArrayType); ok {
				if of, ok := list.Elt.(*ast.Ident); ok && of.Name == "any" {
					pairs = n.Elts
				}
			}
		}
		for i, x := range pairs {
			key, ok := literal(x)
			if !ok || !slices.Contains(memberKeys, key) || i+1 == len(pairs) || isMemberID(pairs[i+1]) {
				continue
			}
			if _, constant := literal(pairs[i+1]); !constant { // as from=raft
				faults = append(faults, s.fault(x.Pos(), "%s is no wire.MemberID, so the line lacks the member's name", key))
			}
		}
		return true
	})
	return faults
}

func isMemberID(x ast.Expr) bool {
	call, ok := x.(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	return ok && (f.Sel.Name == "MemberID" || f.Sel.Name == "MemberIDs")
}

func TestLog_NamelessFound(t *testing.T) {
	const code = `package x
func f() {
	log.Info("m", "member", wire.MemberID(id), "down", wire.MemberIDs(ids), "from", "raft")
	log.Warn("m", "leader", id)
	log.Log(ctx, level, "m", "by", id.String())
	attrs = append(attrs, "to", id)
	attrs := []any{"member", id}
	pprof.Labels("member", id)
	names := []string{"member", id}
}`
	s, err := parse(token.NewFileSet(), "x.go", []byte(code))
	if err != nil {
		t.Fatal(err)
	}
	if got := nameless(s); len(got) != 4 {
		t.Errorf("%q", got)
	}
}
