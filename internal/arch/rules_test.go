package arch

import (
	"go/token"
	"strings"
	"testing"
)

// Each rule is run on code that violates it and on similar code that does not.
func TestRules_FindViolations(t *testing.T) {
	for _, c := range ruleCases {
		t.Run(c.name, func(t *testing.T) { expect(t, c.rule(snippet(t, c.path, c.code)), c.want) })
	}
}

func guarded(s *source) []string { return panicking(s, make(map[string]bool)) }
func lasting(s *source) []string { return globals(s, make(map[string]bool)) }

func held(s *source) []string  { return heldWhileWaiting([]*source{s}, make(map[string]bool)) }
func onced(s *source) []string { return waitingOnce(s, make(map[string]bool)) }

// locking is a function that locks a mutex around code, beside functions that it may call.
func locking(code string) string {
	return `import "sync"
		type t struct { mu sync.Mutex; c chan int; file interface{ Sync() error }; changed *sync.Cond; wg sync.WaitGroup; once sync.Once }
		func (x *t) receive() int { return <-x.c }
		func (x *t) poll() { select { case <-x.c: default: } }
		func (x *t) f() {` + code + `}`
}

var ruleCases = []struct {
	name, path, code string
	rule             rule
	want             string // in the one finding; "" is none
}{
	{"upward", "storage/x.go", `import "github.com/conclave-go/conclave/raftlog"`, downward, "storage may not import"},
	{"the root from cluster", "cluster/x.go", `import "github.com/conclave-go/conclave"`, downward, "cluster may not import"},
	{"another package's part", "x.go", `import "github.com/conclave-go/conclave/cluster/transport"`, downward, ". may not import"},
	{"a test package in a library", "x.go", `import "github.com/conclave-go/conclave/conclavetest"`, downward, "may not import"},
	{"the same in a test", "x_test.go", `import "github.com/conclave-go/conclave/conclavetest"`, downward, ""},
	{"down", "x.go", `import "github.com/conclave-go/conclave/cluster"`, downward, ""},
	{"an internal package in an example", "examples/a/x.go", `import "github.com/conclave-go/conclave/cluster"`, downward, "may not import"},
	{"no floor", "attic/x.go", ``, downward, "has no floor"},
	{"Pebble in the cluster", "cluster/x.go", `import "github.com/cockroachdb/pebble/v2"`, staysPut, "is confined to [storage raftlog]"},
	{"its file system", "cluster/x.go", `import "github.com/cockroachdb/pebble/v2/vfs"`, staysPut, ""},
	{"new dependency", "cluster/x.go", `import "google.golang.org/grpc"`, staysPut, "a new dependency"},
	{"testing", "cluster/x.go", `import "testing/synctest"`, staysPut, "is for tests"},

	{"exit", "x.go", `import "os"; func f() { os.Exit(1) }`, guest, "os.Exit"},
	{"another package's Exit", "x.go", `import os "example.org/os"; func f() { os.Exit(1) }`, guest, ""},
	{"a variable called os", "x.go", `import "os"; var _ = os.Args; func f(os struct{ Exit func(int) }) { os.Exit(1) }`, guest, ""},
	{"a program's exit", "examples/a/x.go", `import "os"; func f() { os.Exit(1) }`, guest, ""},
	{"fatal, under another name", "x.go", `import l "log"; func f() { l.Fatalf("") }`, guest, "log.Fatalf"},
	{"a logger of one's own", "x.go", `import "log"; var _ = log.New(nil, "", 0)`, guest, ""},
	{"global slog", "x.go", `import "log/slog"; func f() { slog.Info("") }`, guest, "log/slog.Info"},
	{"signals", "x.go", `import "os/signal"; func f() { signal.Notify(nil) }`, guest, "os/signal.Notify"},
	{"sleep", "x_test.go", `import "time"; func f() { time.Sleep(1) }`, awake, "a sleep"},
	{"sleep with a reason", "x_test.go", "import \"time\"; func f() {\ntime.Sleep(1) // the length of it is what is tested\n}", awake, ""},
	{"the same in the library", "x.go", "import \"time\"; func f() {\ntime.Sleep(1) // because\n}", awake, "a sleep"},
	{"bare time.After", "x.go", `import "time"; func f() { <-time.After(1) }`, awake, "a sleep"},
	{"time.After as the only case", "x.go", `import "time"; func f() { select { case <-time.After(1): } }`, awake, "a sleep"},
	{"time.After with other cases", "x.go", `import "time"; func f(c chan int) { select { case <-time.After(1): case <-c: } }`, awake, ""},
	{"sleep in a bubble", "x_test.go", `import ("time"; "testing/synctest"); var _ = synctest.Wait; func f() { time.Sleep(1) }`, awake, ""},
	{"a search of removed members", "cluster/x.go", `import "slices"; func f(s *Status) { slices.Contains(s.removed, 1) }`, selective, "linear search"},
	{"one of the machine's", "cluster/core/x.go", `import "slices"; func f(m Machine) { slices.IndexFunc(m.Removed(), g) }`, selective, "linear search"},
	{"a binary search", "cluster/x.go", `import "slices"; func f(s *Status) { slices.BinarySearch(s.removed, 1) }`, selective, ""},
	{"a search of others", "cluster/x.go", `import "slices"; func f(s *Status) { slices.Contains(s.admitted, 1) }`, selective, ""},
	{"a visit of all former members", "internal/machine/x.go", `func f(m *Machine) { for range m.former.byID {} }`, selective, "a visit of all"},
	{"panic", "lock.go", `func (l *FencedLock) f() { panic(1) }`, guarded, "FencedLock.f"},
	{"a cleanup behind a yield", "x.go", `func g(yield func() bool) { if !yield() { finish() } }`, deferred, "use a defer"},
	{"a cleanup in a loop with one", "x.go", `func g(yield func() bool) { for { if failed { s.Close(); continue }; yield() } }`, deferred, "use a defer"},
	{"a place that is freed behind one", "x.go", `func g(f func()) { f(); <-places }`, deferred, "use a defer"},
	{"a deferred one", "x.go", `func g(f func()) { defer finish(); f() }`, deferred, ""},
	{"a wait behind one", "x.go", `func g(f func()) { f(); select { case <-done: } }`, deferred, ""},
	{"a documented panic", "locker.go", `func (l locker) Lock() { panic(1) }`, guarded, ""},
	{"a panic in a test", "lock_test.go", `func f() { panic(1) }`, guarded, ""},

	{"a clock in the core", "cluster/core/x.go", `import "time"; func f() { time.Now() }`, driven, "time.Now in the core"},
	{"a timer in the core", "cluster/core/x.go", `import "time"; func f() { time.AfterFunc(1, f) }`, driven, "time.AfterFunc in the core"},
	{"random source in the core", "cluster/core/x.go", `import "math/rand/v2"; func f() { rand.N(6) }`, driven, "rand/v2.N in the core"},
	{"random source passed in", "cluster/core/x.go", `import "math/rand/v2"; func f(r *rand.Rand) { r.IntN(6) }`, driven, ""},
	{"a goroutine in the core", "cluster/core/x.go", `func f() { go f() }`, driven, "a goroutine or a select"},
	{"a goroutine around the core", "cluster/x.go", `func f() { go f() }`, driven, ""},

	{"a file for all", "x.go", `import "os"; func f() { os.Create("x") }`, private, "use mode 0600"},
	{"a file for a group", "cmd/conclave/x.go", `import "os"; func f() { os.WriteFile("x", nil, 0o640) }`, private, "use mode 0600"},
	{"a directory for all", "x.go", `import "os"; func f() { os.MkdirAll("x", 0o755) }`, private, "directories 0700"},
	{"a file for its user", "x.go", `import "os"; func f() { os.OpenFile("x", os.O_CREATE, 0o600) }`, private, ""},
	{"a file in a test", "x_test.go", `import "os"; func f() { os.Create("x") }`, private, ""},
	{"the system's files", "cluster/x.go", `import "github.com/cockroachdb/pebble/v2/vfs"; var _ = vfs.Default`, private, "outside storage"},
	{"the system's files in storage", "storage/x.go", `import "github.com/cockroachdb/pebble/v2/vfs"; var _ = vfs.Default`, private, ""},

	{"a variable", "x.go", `var count int`, lasting, "variable count"},
	{"a map", "x.go", `var table = map[int]int{}`, lasting, "variable table"},
	{"a sentinel", "x.go", `import "errors"; var ErrX = errors.New("x")`, lasting, ""},
	{"another's sentinel", "x.go", `import "io/fs"; var ErrX = fs.ErrNotExist`, lasting, ""},
	{"an assertion", "x.go", `var _ interface{} = 1`, lasting, ""},
	{"init", "x.go", `func init() {}`, lasting, "init"},

	{"long", "x.go", strings.Repeat("\n", maxLines), short, "at most 400"},
	{"long table", "x.go", "func f(x int) int {\nswitch x {\n" + strings.Repeat("case 1:\nreturn 2\n", maxFunction) + "}\nreturn 0\n}", brief, ""},
	{"long switch", "x.go", "func f(x int) {\nswitch x {\n" + strings.Repeat("case 1:\nx++\nx++\nx++\nx++\n", maxFunction) + "}\n}", brief, "at most 60"},
	{"long function", "x.go", "func f() {" + strings.Repeat("\n", maxFunction) + "}", brief, "at most 60"},
	{"short function", "x.go", "func f() {" + strings.Repeat("\n", maxFunction-1) + "}", brief, ""},
	{"long test", "x_test.go", strings.Repeat("\n", maxLines), short, "at most 400"},
	{"client knows cluster", "internal/client/x.go", `import "github.com/conclave-go/conclave/cluster"`, downward, "may not import"},
	{"root knows client", "x.go", `import "github.com/conclave-go/conclave/internal/client"`, downward, ""},
	{"library imports a test package", "x.go", `import "github.com/conclave-go/conclave/internal/memnet"`, downward, "may not import"},

	{"sync.Once", "x.go", locking(`x.once.Do(x.poll)`), onced, "sync.Once"},
	{"sync.OnceFunc", "x.go", `import "sync"; func f() { sync.OnceFunc(f)() }`, onced, "sync.OnceFunc"},
	{"sync.OnceValue in a test", "x_test.go", `import "sync"; func f() { sync.OnceValue(g) }`, onced, ""},
	{"a receive under a mutex", "x.go", locking(`x.mu.Lock(); defer x.mu.Unlock(); <-x.c`), held, "t.f waits"},
	{"a receive after the mutex", "x.go", locking(`x.mu.Lock(); x.mu.Unlock(); <-x.c`), held, ""},
	{"a receive where the mutex is unlocked", "x.go", locking(`x.mu.Lock(); if x.c != nil { x.mu.Unlock(); <-x.c; return }; x.mu.Unlock()`), held, ""},
	{"a receive in a branch", "x.go", locking(`x.mu.Lock(); if x.c != nil { <-x.c }; x.mu.Unlock()`), held, "t.f waits"},
	{"a receive in a condition", "x.go", locking(`x.mu.Lock(); if n := <-x.c; n > 0 { return }; x.mu.Unlock()`), held, "t.f waits"},
	{"a receive in a case", "x.go", locking(`x.mu.Lock(); switch { case x.c != nil: <-x.c }; x.mu.Unlock()`), held, "t.f waits"},
	{"a send under a mutex", "x.go", locking(`x.mu.Lock(); x.c <- 1; x.mu.Unlock()`), held, "t.f waits"},
	{"a select under a mutex", "x.go", locking(`x.mu.Lock(); select { case <-x.c: case x.c <- 1: }; x.mu.Unlock()`), held, "t.f waits"},
	{"a select that does not wait", "x.go", locking(`x.mu.Lock(); select { case <-x.c: default: }; x.poll(); x.mu.Unlock()`), held, ""},
	{"a method that waits", "x.go", locking(`x.mu.Lock(); x.receive(); x.mu.Unlock()`), held, "t.f waits"},
	{"a literal that waits under a mutex", "x.go", locking(`go func() { x.mu.Lock(); x.receive(); x.mu.Unlock() }()`), held, "t.f waits"},
	{"a goroutine that waits", "x.go", locking(`x.mu.Lock(); go x.receive(); x.mu.Unlock()`), held, ""},
	{"the disk under a mutex", "x.go", locking(`x.mu.Lock(); x.file.Sync(); x.mu.Unlock()`), held, "t.f waits"},
	{"goroutines under a mutex", "x.go", locking(`x.mu.Lock(); x.wg.Wait(); x.mu.Unlock()`), held, "t.f waits"},
	{"a condition under its mutex", "x.go", locking(`x.mu.Lock(); x.changed.Wait(); x.mu.Unlock()`), held, ""},

	{"vague", "util/x.go", ``, named, "is vague"},
	{"no comment", "x.go", `type T struct{}`, explained, "T has no doc comment"},
	{"no comment in a group", "x.go", "// Both.\nvar (\n\tA = 1\n)", explained, "A has no doc comment"},
	{"a method without", "x.go", "// T is.\ntype T struct{}\n\nfunc (t *T) M() {}", explained, "M has no doc comment"},
	{"explained", "x.go", "// T is.\ntype T struct{}\n\n// M does.\nfunc (t *T) M() {}\n\nfunc (t *T) m() {}", explained, ""},
}

func TestPurity_FindsViolations(t *testing.T) {
	imports := exported(t, "maps", "slices", "time")
	for _, c := range []struct{ name, code, want string }{
		{"clock", `import "time"; var _ = time.Now`, "may not import time"},
		{"goroutine", `func f() { go f() }`, "no goroutines"},
		{"channel", `var c chan int`, "no channels"},
		{"select", `func f() { select {} }`, "no goroutines"},
		{"float", `var x float64`, "floating point"},
		{"hidden float", `var x = 1 / 3.0`, "floating point"},
		{"map range", `var m map[int]int; func f() { for range m {} }`, "order of a map"},
		{"map range of a named type", `type set map[int]bool; func (s set) f() { for range s {} }`, "order of a map"},
		{"map range with a reason", "var m map[int]int; func f() {\nfor range m { // order: only counted\n} }", ""},
		{"unsorted keys", `import "maps"; var m map[int]int; func f() { for range maps.Keys(m) {} }`, "slices.Sorted"},
		{"sorted keys", `import ("maps"; "slices"); var m map[int]int; func f() { for range slices.Sorted(maps.Keys(m)) {} }`, ""},
		{"slice range", `func f() { for range []int{1} {} }`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect(t, impurities(t, []*source{snippet(t, machine+"/x.go", c.code)}, imports), c.want)
		})
	}
}

func snippet(t *testing.T, path, code string) *source {
	t.Helper()
	name := "x"
	if path == "util/x.go" {
		name = "util"
	}
	s, err := parse(token.NewFileSet(), path, []byte("package "+name+"\n"+code))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func expect(t *testing.T, faults []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(faults) > 0:
		t.Errorf("got %q, want no violation", faults)
	case want != "" && (len(faults) == 0 || !strings.Contains(faults[0], want)):
		t.Errorf("got %q, want %q", faults, want)
	}
}
