package main

import (
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

func TestListings(t *testing.T) {
	n := member(t, "")
	ctx := within(t)
	const hostile = "\x1b[2Jred\nline"
	for _, name := range []string{"a", "b", "c", hostile} {
		must0(t, lockNow(t, n, name))
	}
	_, err := n.Semaphore("pool", 3).Acquire(ctx, 2)
	must0(t, err)
	_, err = n.Election("boss").Campaign(ctx, []byte("10.0.0.1:80"))
	must0(t, err)

	r := conclaveAt(n, "locks", "--limit", "2")
	if lines := strings.Count(r.out, "\n"); lines != 3 || r.code != 0 || !strings.Contains(r.err, "only the first 2") {
		t.Errorf("%+v", r)
	}
	if out := must(t, n, "locks"); strings.Contains(out, hostile) || !strings.Contains(out, `\x1b[2Jred\nline`) || !strings.Contains(out, "anna") {
		t.Errorf("%q", out)
	}
	if l := decoded[lockView](t, must(t, n, "locks", "b", "-o", "json")); l.Name != "b" || !l.Held || l.NodeName != "anna" || l.Fence == nil || l.Since == nil {
		t.Errorf("%+v", l)
	}
	if out := must(t, n, "locks", "zzz"); strings.Count(out, "\n") != 1 {
		t.Error(out)
	}
	if s := decoded[semaphoreView](t, must(t, n, "semaphores", "-o", "json")); s.Limit != 3 || s.Available != 1 || len(s.Holders) != 1 || s.Holders[0].Permits != 2 {
		t.Errorf("%+v", s)
	}
	if out := must(t, n, "elections"); !strings.Contains(out, "boss") || !strings.Contains(out, "10.0.0.1:80") {
		t.Error(out)
	}
	if out := must(t, n, "sessions"); !strings.Contains(out, "anna") || !strings.Contains(out, "10s") {
		t.Error(out)
	}
	if out := must(t, n, "cycles"); out != "none\n" {
		t.Error(out)
	}
	if r := conclaveAt(n, "__complete", "explain", ""); !strings.HasPrefix(r.out, "a\nb\nc\n:") {
		t.Errorf("completion: %q", r.out)
	}
}

// A client's name is that of its session: its ID is random, and nothing else shows it.
func TestListings_NameClients(t *testing.T) {
	n := member(t, "")
	ctx := within(t)
	c, err := conclave.Dial(ctx, &conclave.ClientConfig{Name: "vm, process 7", Addresses: []string{n.Status().Members[0].Addr}})
	must0(t, err)
	defer c.Close(ctx)
	_, err = c.FencedLock("nightly").Lock(ctx)
	must0(t, err)
	_, err = c.Election("boss").Campaign(ctx, nil)
	must0(t, err)
	_, err = c.Semaphore("pool", 3).Acquire(ctx, 2)
	must0(t, err)
	for _, listing := range []string{"locks", "elections"} {
		if out := must(t, n, listing); !strings.Contains(out, "vm, process 7 (client)") || strings.Contains(out, c.ID().String()) {
			t.Errorf("%s:\n%s", listing, out)
		}
	}
	if out := must(t, n, "sessions"); !strings.Contains(out, "vm, process 7") || !strings.Contains(out, "  client  ") || strings.Contains(out, c.ID().String()) {
		t.Error(out)
	}
	if l := decoded[lockView](t, must(t, n, "locks", "-o", "json")); l.SessionName != "vm, process 7" || !l.Client || *l.Node != c.ID() {
		t.Errorf("%+v", l)
	}
	if e := decoded[electionView](t, must(t, n, "elections", "-o", "json")); e.SessionName != "vm, process 7" || !e.Client {
		t.Errorf("%+v", e)
	}
	if s := decoded[semaphoreView](t, must(t, n, "semaphores", "-o", "json")); s.Holders[0].SessionName != "vm, process 7" || !s.Holders[0].Client {
		t.Errorf("%+v", s)
	}
	if got := (memberNames{}).holder(c.ID(), true, ""); got != c.ID().String()+" (client)" {
		t.Errorf("of an earlier build's member: %s", got)
	}
}

// No terminal obeys what a name contains, in JSON either, which means the same.
func TestListings_HostileNamesInJSON(t *testing.T) {
	n := member(t, "")
	const hostile = "\u009b2Jred\u202e\x7f"
	must0(t, lockNow(t, n, hostile))
	_, err := n.KV().Put(within(t), hostile, []byte("x"))
	must0(t, err)
	for _, command := range [][]string{{"locks"}, {"explain", hostile}, {"kv", "ls"}} {
		out := must(t, n, append(command, "-o", "json")...)
		if strings.ContainsAny(out, hostile[:2]+"\u202e\x7f") || !strings.Contains(out, `\u009b2Jred\u202e\u007f`) {
			t.Errorf("%v: %q", command, out)
		}
	}
	if l := decoded[lockView](t, must(t, n, "locks", "-o", "json")); l.Name != hostile {
		t.Errorf("%q", l.Name)
	}
}

func TestExplain(t *testing.T) {
	n := member(t, "")
	l := n.FencedLock("x", conclave.WithLabel("invoice run"))
	f, err := l.Lock(within(t))
	must0(t, err)
	waiting := make(chan error, 1)
	go func() {
		_, err := n.FencedLock("x", conclave.WithLabel("report run")).Lock(t.Context())
		waiting <- err
	}()
	v := decoded[explanationView](t, must(t, n, "explain", "x", "-o", "json"))
	for v.Waiters == 0 {
		<-time.After(time.Millisecond)
		v = decoded[explanationView](t, must(t, n, "explain", "x", "-o", "json"))
	}
	if v.Holder == nil || v.Holder.Label != "invoice run" || v.Holder.NodeName != "anna" || !v.Holder.Alive || *v.Fence != f || v.Queue[0].Label != "report run" {
		t.Errorf("%+v", v)
	}
	out := must(t, n, "explain", "x")
	for _, part := range []string{"held by member anna", "invoice run", "report run", "waiters:", "left of 10s"} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is missing in\n%s", part, out)
		}
	}
	if out := must(t, n, "explain", "free"); !strings.Contains(out, "free") {
		t.Error(out)
	}
	must0(t, l.Unlock(within(t)))
	must0(t, <-waiting)
}
