package main

import (
	"context"
	"strings"
	"testing"

	"github.com/conclave-go/conclave"
)

// runShards has a worker work on all shards of a set until the test ends, and returns when it works on all of them.
func runShards(t *testing.T, shards *conclave.Shards, count int) (ended <-chan error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	begun, end := make(chan int, count), make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		end <- shards.Run(ctx, func(ctx context.Context, shard int, _ conclave.Fence) error {
			begun <- shard
			<-ctx.Done()
			return nil
		})
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	for range count {
		select {
		case <-begun:
		case <-within(t).Done():
			t.Fatal("the shards do not begin")
		}
	}
	return end
}

func TestShards(t *testing.T) {
	n := member(t, "")
	if out := must(t, n, "shards"); strings.Count(out, "\n") != 1 {
		t.Error(out)
	}
	want(t, conclaveAt(n, "shards", "orders"), 4, "no such set")
	ended := runShards(t, n.Shards("orders", 3), 3)

	out := must(t, n, "shards")
	if !strings.Contains(out, "orders") || strings.Count(out, "\n") != 2 {
		t.Error(out)
	}
	if s := decoded[shardSetView](t, must(t, n, "shards", "-o", "json")); s.Name != "orders" || s.Count != 3 || s.Owned != 3 || s.Moving != 0 || s.Waiting != 0 || s.Next != 0 {
		t.Errorf("%+v", s)
	}
	for _, args := range [][]string{{"shards"}, {"shards", "orders"}} {
		if fresh, stale := must(t, n, args...), must(t, n, append(args, "--stale")...); fresh != stale {
			t.Errorf("%s\nand stale\n%s", fresh, stale)
		}
	}
	out = must(t, n, "shards", "orders")
	for _, part := range []string{"3: 3 owned, of these 0 moving; 0 waiting", "working", "anna", "SHARD  STATE  NUMBER  WORKER", "NUMBER  WORKER  PROCESS", "CAPACITY  ASSIGNED  OWNED  MOVING", "1         3         3      0"} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is missing in\n%s", part, out)
		}
	}
	s := decoded[shardSetView](t, must(t, n, "shards", "orders", "-o", "json"))
	if len(s.Workers) != 1 || len(s.Shards) != 3 {
		t.Fatalf("%+v", s)
	}
	if w := s.Workers[0]; w.Name != "anna" || w.NodeName != "anna" || !w.Live || w.Shards != 3 || w.Owned != 3 || w.Moving != 0 || w.Capacity != 1 || w.Session == nil || w.Number == 0 {
		t.Errorf("%+v", w)
	}
	if sh := s.Shards[2]; sh.Shard != 2 || sh.State != "owned" || sh.Name != "anna" || sh.Fence == nil || sh.Worker != s.Workers[0].Number || *sh.Session != *s.Workers[0].Session {
		t.Errorf("%+v", sh)
	}
	if r := conclaveAt(n, "__complete", "shards", ""); !strings.HasPrefix(r.out, "orders\n:") {
		t.Errorf("completion: %q", r.out)
	}

	want(t, conclaveAt(n, "shards", "orders", "--resize", "0"), 2, "want 1 to 4096")
	want(t, conclaveAt(n, "shards", "invoices", "--resize", "5"), 4, "no such set")
	for _, says := range []string{"has 3 shards already", "has 5 shards once"} {
		if out := must(t, n, "shards", "orders", "--resize", says[4:5]); !strings.Contains(out, says) {
			t.Error(out)
		}
	}
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "5") {
			t.Errorf("Run returns %v, want that of another count", err)
		}
	case <-within(t).Done():
		t.Error("Run does not return")
	}
	runShards(t, n.Shards("orders", 5), 5)
	if s := decoded[shardSetView](t, must(t, n, "shards", "-o", "json")); s.Count != 5 {
		t.Errorf("%+v", s)
	}
}

// The shards of a process that has ended wait for its name; no terminal obeys what that contains.
func TestShards_Waiting(t *testing.T) {
	n := member(t, "")
	const hostile = "\x1b[2Jred"
	s, err := n.NewSession(within(t), &conclave.SessionConfig{Name: hostile})
	must0(t, err)
	ended := runShards(t, s.Shards("orders", 2), 2)
	must0(t, s.Close(within(t)))
	<-ended
	out := must(t, n, "shards", "orders")
	if strings.Contains(out, hostile) || !strings.Contains(out, `\x1b[2Jred`) || !strings.Contains(out, "ended: its shards wait ") || !strings.Contains(out, "2 waiting") {
		t.Errorf("%q", out)
	}
	v := decoded[shardSetView](t, must(t, n, "shards", "orders", "-o", "json"))
	if w := v.Workers[0]; w.Live || w.Session != nil || w.Remaining <= 0 || w.Shards != 2 || v.Waiting != 2 || v.Shards[0].State != "reserved" || v.Shards[0].Reserved != hostile {
		t.Errorf("%+v", v)
	}
}

// Shards that wait for a session without a name are not free.
func TestShards_WaitingWithoutName(t *testing.T) {
	n := member(t, "")
	s, err := n.NewSession(within(t), nil)
	must0(t, err)
	ended := runShards(t, s.Shards("orders", 2), 2)
	must0(t, s.Close(within(t)))
	<-ended
	if out := must(t, n, "shards", "orders"); !strings.Contains(out, "1      reserved  1       -       -      -") || strings.Contains(out, "free") {
		t.Errorf("%s", out)
	}
	if v := decoded[shardSetView](t, must(t, n, "shards", "orders", "-o", "json")); v.Shards[0].State != "reserved" || v.Shards[0].Reserved != "" {
		t.Errorf("%+v", v)
	}
}

// A set whose processes have all ended has no count to change, and what waits for them goes on waiting.
func TestShards_ResizeWithoutProcess(t *testing.T) {
	n := member(t, "")
	s, err := n.NewSession(within(t), &conclave.SessionConfig{Name: "web-1"})
	must0(t, err)
	ended := runShards(t, s.Shards("orders", 2), 2)
	must0(t, s.Close(within(t)))
	<-ended
	want(t, conclaveAt(n, "shards", "--resize", "5"), 2, "missing NAME")
	want(t, conclaveAt(n, "shards", "orders", "--resize", "12"), 4, "all that did have ended")
	if v := decoded[shardSetView](t, must(t, n, "shards", "orders", "-o", "json")); v.Count != 2 || v.Next != 0 || v.Waiting != 2 {
		t.Errorf("%+v", v)
	}
}

// A shard is explained with its owner, and with what it waits for when that has ended.
func TestShards_Explained(t *testing.T) {
	n := member(t, "")
	want(t, conclaveAt(n, "shards", "--shard", "1"), 2, "missing NAME")
	want(t, conclaveAt(n, "shards", "orders", "--shard", "1"), 4, "no such set")
	s, err := n.NewSession(t.Context(), &conclave.SessionConfig{Name: "web-1"})
	if err != nil {
		t.Fatal(err)
	}
	runShards(t, s.Shards("orders", 2), 2)
	want(t, conclaveAt(n, "shards", "orders", "--shard", "2"), 2, "want 0 to 1")
	for _, args := range [][]string{nil, {"--stale"}} {
		out := must(t, n, append([]string{"shards", "orders", "--shard", "1"}, args...)...)
		for _, part := range []string{"1 of orders", "member anna with fence ", "with 2 of 2 shards", "web-1: ", "left of 10s", "it stays with its owner"} {
			if !strings.Contains(out, part) {
				t.Errorf("%q is missing in\n%s", part, out)
			}
		}
	}
	e := decoded[shardExplanationView](t, must(t, n, "shards", "orders", "--shard", "1", "-o", "json"))
	if e.Set != "orders" || e.Shard.Shard != 1 || e.Shard.Name != "web-1" || e.Reason != "stays" || e.Count != 2 || e.Takers != 1 || e.Shards != 2 ||
		e.Capacity != 1 || !e.Alive || e.NodeName != "anna" || *e.TTL != 10 || *e.Remaining <= 0 {
		t.Errorf("%+v", e)
	}
	if err := n.CloseSession(t.Context(), s.ID()); err != nil {
		t.Fatal(err)
	}
	out := must(t, n, "shards", "orders", "--shard", "1")
	for _, part := range []string{"none", `return of "web-1"`} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is missing in\n%s", part, out)
		}
	}
	if e := decoded[shardExplanationView](t, must(t, n, "shards", "orders", "--shard", "1", "-o", "json")); e.Reason != "settles" || e.Settles <= 0 || e.TTL != nil || e.Shard.Reserved != "web-1" {
		t.Errorf("%+v", e)
	}
	want(t, conclaveAt(n, "shards", "orders", "--shard", "1", "--resize", "5"), 2, "resize")
}
