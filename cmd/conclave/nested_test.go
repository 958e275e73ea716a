//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// nest runs conclave lock under conclave lock. It returns when the outer lock is held; begin has the command run the inner one.
func nest(t *testing.T, n *conclave.Node, outer, inner string) (p *process, begin func()) {
	t.Helper()
	return nestCommands(t, n, []string{"lock", outer, "--label", "outer"}, []string{"lock", inner, "--label", "inner"})
}

// nestCommands is nest with lock or elect.
func nestCommands(t *testing.T, n *conclave.Node, outer, inner []string) (p *process, begin func()) {
	t.Helper()
	r, w, err := os.Pipe()
	must0(t, err)
	t.Cleanup(func() { _ = r.Close() })
	t.Cleanup(func() { _ = w.Close() })
	args := slices.Concat([]string{"--addr", n.Addr()}, outer, []string{"--", "sh", "-c", `echo holds; read x; exec "$0" "$@"`, os.Args[0], "--addr", n.Addr()}, inner)
	p = startWith(t, r, append(args, "--", "true")...)
	p.line("holds")
	return p, func() {
		_, err := w.WriteString("go\n")
		must0(t, err)
	}
}

// Commands that share a lock are all waited for: the one of them that waits inside is not the first.
func TestNested_CycleThroughShared(t *testing.T) {
	n := member(t, "")
	reader, _ := nestCommands(t, n, []string{"lock", "a", "--shared", "--label", "reader"}, []string{"lock", "unused"})
	outer, beginOuter := nestCommands(t, n, []string{"lock", "a", "--shared", "--label", "outer"}, []string{"lock", "b", "--label", "inner"})
	writer, beginWriter := nest(t, n, "b", "a")
	beginOuter()
	awaitWaiters(t, n.FencedLock("b"), 1)
	beginWriter()
	awaitWaiters(t, n.FencedLock("a"), 1)
	if out := must(t, n, "explain", "a"); strings.Count(out, "DEADLOCK?  sessions wait for commands inside them") != 1 {
		t.Error(out)
	}
	cycles := decoded[[][]waitView](t, must(t, n, "cycles", "-o", "json"))
	if len(cycles) != 1 || len(cycles[0]) != 2 {
		t.Fatalf("%+v", cycles)
	}
	for _, w := range cycles[0] {
		if w.Lock == "a" && (!w.Holder.Shared || w.Holder.Label != "outer") {
			t.Errorf("%+v", w)
		}
	}
	for _, p := range []*process{reader, outer, writer} {
		p.kill()
	}
}

// A set that waits for the lock of a command has the lock reserved for which that runs another command.
func TestNested_CycleThroughReservation(t *testing.T) {
	n := member(t, "")
	p, begin := nest(t, n, "a", "b")
	b := n.FencedLock("b")
	waiting, withdraw := context.WithCancel(within(t))
	defer withdraw()
	go func() { _, _ = n.LockSet([]string{"a", "b"}, conclave.WithLabel("set")).Lock(waiting) }()
	awaitWaiters(t, b, 1)
	for range 4 {
		_, err := b.Lock(within(t))
		must0(t, err)
		must0(t, b.Unlock(within(t)))
	}
	begin()
	awaitWaiters(t, b, 2)
	cycles := decoded[[][]waitView](t, must(t, n, "cycles", "-o", "json"))
	if len(cycles) != 1 || len(cycles[0]) != 2 {
		t.Fatalf("%+v", cycles)
	}
	for _, w := range cycles[0] {
		if w.Lock == "a" && w.Waiter.Set != 2 || w.Lock == "b" && (w.Holder.Label != "set" || !w.Holder.Reserved) {
			t.Errorf("%+v", w)
		}
	}
	out := must(t, n, "explain", "b")
	if !strings.Contains(out, "not held: a set waits") || !strings.Contains(out, "set of 2, reserved") || !strings.Contains(out, "DEADLOCK?") {
		t.Error(out)
	}
	p.kill()
}

// Each of two commands holds a lock and runs conclave lock for that of the other. The group sees four sessions of which none waits
// for itself.
func TestNested_CycleIsFound(t *testing.T) {
	n := member(t, "")
	first, beginFirst := nest(t, n, "a", "b")
	second, beginSecond := nest(t, n, "b", "a")
	if out := must(t, n, "cycles"); out != "none\n" {
		t.Error(out)
	}
	beginFirst()
	awaitWaiters(t, n.FencedLock("b"), 1)
	if out := must(t, n, "cycles"); out != "none\n" {
		t.Error(out)
	}
	beginSecond()
	awaitWaiters(t, n.FencedLock("a"), 1)
	out := must(t, n, "cycles")
	if strings.Count(out, "\n") != 1 || strings.Count(out, "inside that session a command waits") != 2 {
		t.Error(out)
	}
	cycles := decoded[[][]waitView](t, must(t, n, "cycles", "-o", "json"))
	if len(cycles) != 1 || len(cycles[0]) != 2 || cycles[0][0].Lock == cycles[0][1].Lock || cycles[0][0].Waiter.Label != "inner" || cycles[0][0].Holder.Label != "outer" {
		t.Errorf("%+v", cycles)
	}
	for i, w := range cycles[0] {
		next := cycles[0][(i+1)%2].Waiter
		if outer, ok := outerOf(next.SessionName); !ok || outer != w.Holder.Session {
			t.Errorf("%q is not inside session %s", next.SessionName, w.Holder.Session)
		}
	}
	for _, lock := range []string{"a", "b"} {
		if out := must(t, n, "explain", lock); !strings.Contains(out, "DEADLOCK?  sessions wait for commands inside them") {
			t.Error(out)
		}
		if e := decoded[explanationView](t, must(t, n, "explain", lock, "-o", "json")); len(e.Cycle) != 2 {
			t.Errorf("%+v", e)
		}
	}
	first.kill()
	second.kill()
}

// A command that waits for the lock under which it runs waits for itself.
func TestNested_SameLock(t *testing.T) {
	n := member(t, "")
	_, begin := nest(t, n, "a", "a")
	begin()
	awaitWaiters(t, n.FencedLock("a"), 1)
	if cycles := decoded[[][]waitView](t, must(t, n, "cycles", "-o", "json")); len(cycles) != 1 || len(cycles[0]) != 1 {
		t.Errorf("%+v", cycles)
	}
}

// One command leads and runs conclave lock, another one holds that lock and campaigns.
func TestNested_CycleThroughElection(t *testing.T) {
	n := member(t, "")
	leader, beginLeader := nestCommands(t, n, []string{"elect", "boss, inside"}, []string{"lock", "b", "--label", "inner"})
	holder, beginHolder := nestCommands(t, n, []string{"lock", "b", "--label", "outer"}, []string{"elect", "boss, inside"})
	beginLeader()
	awaitWaiters(t, n.FencedLock("b"), 1)
	if out := must(t, n, "cycles"); out != "none\n" {
		t.Error(out)
	}
	beginHolder()
	var cycles [][]waitView
	for late := time.Now().Add(patience); len(cycles) == 0 && time.Now().Before(late); { // the campaign is not listed
		<-time.After(time.Millisecond)
		cycles = decoded[[][]waitView](t, must(t, n, "cycles", "-o", "json"))
	}
	if len(cycles) != 1 || len(cycles[0]) != 2 {
		t.Fatalf("%+v", cycles)
	}
	for _, w := range cycles[0] {
		name, forElection := electionOf(w.Waiter.SessionName)
		if w.Election != (w.Lock == "boss, inside") || w.Election != forElection || w.Election && name != w.Lock || !w.Waiter.Client || !w.Holder.Client {
			t.Errorf("%+v", w)
		}
	}
	if out := must(t, n, "cycles"); strings.Count(out, "\n") != 1 || !strings.Contains(out, `waits for election "boss, inside"`) || !strings.Contains(out, `waits for lock "b"`) {
		t.Error(out)
	}
	if out := must(t, n, "explain", "b"); !strings.Contains(out, "DEADLOCK?") {
		t.Error(out)
	}
	holder.kill()
	leader.kill()
}

// A candidate that waits for nothing but the next turn is in no cycle, nor is the session of a leader.
func TestNested_ElectionWithoutCycle(t *testing.T) {
	n := member(t, "")
	start(t, "--addr", n.Addr(), "elect", "boss", "--", "sh", "-c", "echo leads; exec sleep 600").line("leads")
	_, begin := nestCommands(t, n, []string{"lock", "b"}, []string{"elect", "boss"})
	begin()
	for late := time.Now().Add(patience); strings.Count(must(t, n, "sessions"), `for election "boss"`) < 2; <-time.After(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("there is no candidate")
		}
	}
	if out := must(t, n, "cycles"); out != "none\n" {
		t.Error(out)
	}
}

// The name of a session has what it is for and inside which one it runs, whatever the election is called.
func TestSessionName(t *testing.T) {
	outer := conclave.SessionID{7}
	for _, election := range []string{"boss", `a "b"`, "x, inside session " + outer.String(), `y, for election "z"`, "", strings.Repeat("\n", 300)} {
		for _, nested := range []bool{false, true} {
			t.Setenv(sessionVariable, "")
			if nested {
				t.Setenv(sessionVariable, outer.String())
			}
			name := sessionName(election)
			got, isFor := electionOf(name)
			if in, ok := outerOf(name); ok != nested || ok && in != outer || isFor != (election != "" && len(election) < 300) || isFor && got != election || len(name) > longestName {
				t.Errorf("%q: for %q, inside %v %v", name, got, in, ok)
			}
		}
	}
}

// A search that fails leaves what is known of the lock: it is printed. cycles prints what was found before, and fails.
func TestNested_SearchFails(t *testing.T) {
	n := member(t, "")
	must0(t, lockNow(t, n, "b"))
	_, begin := nest(t, n, "a", "b")
	begin()
	awaitWaiters(t, n.FencedLock("b"), 1)
	c, err := conclave.Dial(within(t), &conclave.ClientConfig{Addresses: []string{n.Addr()}})
	must0(t, err)
	defer c.Close(within(t))
	e, err := c.Explain(within(t), "b")
	must0(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s := searchNested(ended, groupClient{c, c.Group}, "b")
	if !mayBeNested(e) || s.err == nil {
		t.Fatalf("%+v of %+v", s, e)
	}
	var out, errs bytes.Buffer
	p := &program{stdout: &out, stderr: &errs, format: "table"}
	must0(t, p.showExplanation(e, s))
	if !strings.Contains(out.String(), "held by") || !strings.Contains(out.String(), "waiters:") || !strings.Contains(errs.String(), "not all commands inside sessions were searched") {
		t.Errorf("%s%s", out.String(), errs.String())
	}
	out.Reset()
	if err := p.showCycles(nil, s); !errors.Is(err, context.Canceled) || out.Len() > 0 {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// The search reads a bounded number of queues, that of the lock in question among them, and says so.
func TestNested_ManyLocks(t *testing.T) {
	n := member(t, "")
	for i := range explainedAtOnce {
		name := fmt.Sprintf("m%03d", i)
		must0(t, lockNow(t, n, name))
		go func() { _, _ = n.FencedLock(name).Lock(t.Context()) }()
	}
	_, begin := nest(t, n, "z", "z")
	begin()
	awaitWaiters(t, n.FencedLock("z"), 1)
	for i := range explainedAtOnce {
		awaitWaiters(t, n.FencedLock(fmt.Sprintf("m%03d", i)), 1)
	}
	r := conclaveAt(n, "cycles")
	if want(t, r, 0, "in the queues of 200 locks, not in those of 1 other"); r.out != "none\n" {
		t.Error(r.out)
	}
	if out := must(t, n, "explain", "z"); !strings.Contains(out, "DEADLOCK?") {
		t.Error(out)
	}
}

// A wait that is not in a cycle is none, also of a command inside a session.
func TestNesting_Cycle(t *testing.T) {
	id := func(b byte) conclave.SessionID { return conclave.SessionID{b} }
	waits := func(pairs ...byte) *nesting {
		n := newNesting()
		n.inner = map[conclave.SessionID][]conclave.SessionID{id(1): {id(2)}, id(2): {id(3)}}
		for i := 0; i < len(pairs); i += 2 {
			w := conclave.Wait{Lock: fmt.Sprint(pairs[i+1]), Waiter: conclave.LockOwner{Session: id(pairs[i])}}
			n.add(nestedWait{Wait: w}, conclave.LockOwner{Session: id(pairs[i+1])})
		}
		return n
	}
	for _, test := range []struct {
		pairs []byte
		want  int
	}{
		{[]byte{3, 4}, 0}, {[]byte{3, 4, 4, 5}, 0}, {[]byte{3, 1}, 1}, {[]byte{3, 2}, 1}, {[]byte{3, 4, 4, 1}, 2},
		{[]byte{3, 4, 4, 3}, 0}, // the group finds it
		{[]byte{3, 4, 4, 3, 4, 1}, 2},
	} {
		if got := waits(test.pairs...).cycle(id(3)); len(got) != test.want {
			t.Errorf("%v: %d waits, want %d", test.pairs, len(got), test.want)
		}
	}
	for name, nested := range map[string]bool{
		"vm, process 1": false, "vm, process 1, inside session x": false, "": false,
		"vm, process 1, inside session " + id(7).String(): true,
	} {
		if outer, ok := outerOf(name); ok != nested || ok && outer != id(7) {
			t.Errorf("%q: %v", name, ok)
		}
	}
}
