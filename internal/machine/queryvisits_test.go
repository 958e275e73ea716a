package machine

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/conclave-go/conclave/internal/machine/ordered"
	"github.com/conclave-go/conclave/internal/wire"
)

// crowd is how much the state below has of what has no smaller limit: more than a query may look at.
const crowd = MaxVisits + MaxVisits/8

// crowded has very much of everything that a query could look at: holders of one semaphore, some
// of them ended; locks, elections, keys and names that are not merged yet; long queues in
// a row of processes that wait for each other; sessions, ended and not; checks, clients, and
// members that were removed.
func crowded(t *testing.T) *driver {
	d := atClientLevel(t)
	open := func(s string) wire.ID { d.line(wire.Code_OK, "open %s ttl=24h", s); return makeID(s) }
	ended, holder := open("ended"), open("s")
	d.many(100_000, func(int) *wire.Command { return growthAcquire(ended, 1, false) })
	d.many(crowd, func(int) *wire.Command { return growthAcquire(holder, 1, false) })
	d.many(crowd, func(i int) *wire.Command { return lockCommand(fmt.Sprint("l", i), holder, 1) })
	d.many(100_000, func(i int) *wire.Command { return keyCommand(fmt.Sprint("k", i), holder) })
	d.many(10_000, func(i int) *wire.Command {
		c := electionCommand(fmt.Sprint("e", i), holder)
		c.GetLock().Value = make([]byte, 4<<10)
		return c
	})
	d.many(MaxChecks, func(i int) *wire.Command {
		return &wire.Command{Op: &wire.Command_SetCheck{SetCheck: &wire.SetCheck{Name: fmt.Sprint("check", i), Register: true}}}
	})
	d.removedMembers(2000)
	d.many(2*ordered.MaxMerged, func(i int) *wire.Command {
		return &wire.Command{Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Name: fmt.Sprint("few", i), Session: holder[:], Limit: 1, Permits: 1}}}
	})
	d.registerClients(0, MaxClients, MaxClientTTL, second)
	d.rowOfQueues(10)
	d.manyEnded()
	d.inc, d.seq = wire.ID{1}, 10_000_000
	d.do(closeCommand(ended))
	d.many(3000, func(i int) *wire.Command { return lockCommand(fmt.Sprint("new", i), holder, 1) })
	return d
}

// removedMembers has members register and leave.
func (d *driver) removedMembers(n int) {
	for i := range n {
		p := &driver{tb: d.tb, m: d.m, disk: d.disk, inc: wire.ID{200, byte(i >> 8), byte(i)}, index: d.index}
		p.another(uint64(1000 + i))
		p.want(wire.Code_OK, p.do(&wire.Command{Op: &wire.Command_RemoveMember{RemoveMember: &wire.RemoveMember{Voters: []uint64{1}}}}))
		d.index = p.index
	}
}

// another registers the driver's incarnation for a member.
func (d *driver) another(member uint64) {
	register := registerCommand(member, MaxTTL)
	register.GetRegister().FeatureLevel = wire.LevelClient
	d.want(wire.Code_OK, d.do(register))
}

// rowOfQueues makes n processes of which each waits many times for the lock of the next.
func (d *driver) rowOfQueues(n int) {
	for i := range n {
		s := makeID(fmt.Sprint("row", i))
		d.inc, d.seq = wire.ID{byte(100 + i)}, 0
		d.another(uint64(100 + i))
		d.do(openCommand(s, MaxTTL, 0))
		d.want(wire.Code_OK, d.do(lockCommand(fmt.Sprint("row", i), s, 1)))
		if i > 0 {
			d.many(MaxQueued-100, func(int) *wire.Command { return lockCommand(fmt.Sprint("row", i-1), s, 9) })
		}
	}
}

// manyEnded ends a process with as many sessions as a member can have. Each has a key and a lock,
// so that most are being released for a while.
func (d *driver) manyEnded() {
	d.inc, d.seq = wire.ID{90}, 0
	d.another(90)
	id := func(i int) wire.ID { return numberedID(uint64(i)) }
	d.many(MaxSessions-1, func(i int) *wire.Command { return openCommand(id(i), MaxTTL, 0) })
	d.many(MaxSessions-1, func(i int) *wire.Command { return keyCommand(fmt.Sprint("ended", i), id(i)) })
	d.many(MaxSessions-1, func(i int) *wire.Command { return lockCommand(fmt.Sprint("ended", i), id(i), 1) })
	d.m.split = 1
	d.do(&wire.Command{Op: &wire.Command_Deregister{Deregister: &wire.Deregister{}}})
}

// visitRows are the most expensive queries of each type, besides those of codecRows.
func visitRows() []Query {
	e := wire.Space_ELECTION
	return append(codecRows(),
		SemaphoreQuery{"many"}, SemaphoresQuery{After: "a"}, HoldersQuery{Name: "many"}, HoldersQuery{Name: "many", Limit: 1},
		LocksQuery{After: "l"}, LocksQuery{Prefix: "new"}, LeadersQuery{Prefix: "e"}, LocksQuery{Space: e},
		LockQuery{Name: "row0"}, ExplainQuery{Name: "row5", Limit: MaxPage}, ExplainQuery{Space: e, Name: "e7"},
		SessionQuery{numberedID(7)}, SessionsQuery{After: SessionCursor{CreateIndex: 3}},
		KeysQuery{"k"}, KeyNamesQuery{"k", "1"}, KeyPageQuery{Prefix: "k", Separator: "1"}, KeyQuery{"ended7"}, KeyQuery{"ended19000"}, RemovedQuery{1500}, ChecksQuery{After: CheckCursor{1, "check2"}},
		WaitCyclesQuery{wire.Ticket{Incarnation: wire.ID{100}}}, WaitCyclesQuery{wire.Ticket{Incarnation: wire.ID{105}, Seq: 9000}},
	)
}

// No query looks at more than MaxVisits on the goroutine that applies the log, however much there
// is; and it counts all that it lists.
func TestQuery_VisitsBounded(t *testing.T) {
	d := crowded(t)
	if dead, list := d.m.ending.Len, d.m.byCreation.Len(); dead < 15_000 || list < 10 {
		t.Fatalf("%d sessions have ended, %d live", dead, list)
	}
	asked := make(map[string]bool)
	for i, q := range visitRows() {
		c, _ := codecFor(func(c codec) bool { return c.is(q) })
		asked[c.kind] = true
		if i%2 == 0 { // so that listings have names to merge
			session := makeID("s")
			d.many(2*ordered.MaxMerged, func(j int) *wire.Command { return lockCommand(fmt.Sprint("again", i, "/", j), session, 1) })
		}
		before := d.m.visits.Total()
		finish := q.Begin(d.m)
		visits := d.m.visits.Total() - before
		if visits > MaxVisits {
			t.Errorf("%+v looks at %d objects, and may at %d", q, visits, MaxVisits)
		}
		switch q.(type) {
		case KeysQuery, KeyNamesQuery, KeyPageQuery: // they list what finish looks at
		default:
			answer := finish()
			if listed := uint64(countListed(reflect.ValueOf(answer))); listed > visits {
				t.Errorf("%+v lists %d objects, but counts %d", q, listed, visits)
			}
			if body, err := encodedAnswer(answer); err != nil || len(body) > 4*pageBytes {
				t.Errorf("%+v is answered by %d bytes, %v", q, len(body), err)
			}
		}
	}
	for _, c := range codecs() {
		if !asked[c.kind] {
			t.Errorf("no query of kind %q is asked", c.kind)
		}
	}
	before := d.m.visits.Total()
	if views := d.m.Liveness(); len(views) > MaxMembers || d.m.visits.Total()-before != uint64(len(views)) {
		t.Errorf("the liveness of %d members", len(views))
	}
}

// countListed counts the structs in the slices of an answer.
func countListed(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			n = countListed(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			if at := v.Index(i); at.Kind() == reflect.Struct || at.Kind() == reflect.Slice {
				n += countListed(at)
			}
		}
		if v.Type().Elem().Kind() == reflect.Struct {
			n += v.Len()
		}
	case reflect.Struct:
		for i := range v.NumField() {
			n += countListed(v.Field(i))
		}
	}
	return n
}

// Every loop of a query counts what it looks at, or has a bound of its own: TestQuery_VisitsBounded
// would not see the others.
func TestQuery_LoopsCount(t *testing.T) {
	bounded := map[string]string{
		"listedBytes":  "checks of one session",
		"codecFor":     "types of queries",
		"encodeEach":   "runs on any goroutine",
		"AnswerSize":   "likewise",
		"Cycle":        "likewise",
		"each":         "likewise",
		"anyOf":        "likewise",
		"EncodeAnswer": "likewise",
		"page":         "of keys: likewise",
		"requests":     "its caller counts",
	}
	files, err := filepath.Glob("query*.go")
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	for _, name := range append(files, "view.go", "cycles.go", "explain.go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && bounded[f.Name.Name] == "" {
				for _, loop := range uncountedLoops(f) {
					t.Errorf("%s: %s: %s counts nothing", name, f.Name.Name, loop)
				}
			}
		}
	}
}

// uncountedLoops returns the loops and the iterations over trees in f that do not call a method that
// counts. What a query returns as a function runs elsewhere.
func uncountedLoops(f *ast.FuncDecl) (loops []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ReturnStmt:
			if len(n.Results) == 1 && f.Name.Name == "Begin" {
				_, finish := n.Results[0].(*ast.FuncLit)
				return !finish
			}
		case *ast.RangeStmt:
			if !counts(n.Body) {
				loops = append(loops, "a range")
			}
		case *ast.ForStmt:
			if !counts(n.Body) {
				loops = append(loops, "a for")
			}
		case *ast.CallExpr:
			for _, arg := range n.Args {
				if body, ok := arg.(*ast.FuncLit); ok && !counts(body) && strings.HasPrefix(calledName(n), "Ascend") {
					loops = append(loops, calledName(n))
				}
			}
		}
		return true
	})
	return loops
}

func calledName(n *ast.CallExpr) string {
	if s, ok := n.Fun.(*ast.SelectorExpr); ok {
		return s.Sel.Name
	}
	return ""
}

func counts(body ast.Node) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok && slices.Contains([]string{"Count", "add", "visit", "begin"}, calledName(c)) {
			found = true
		}
		return !found
	})
	return found
}
