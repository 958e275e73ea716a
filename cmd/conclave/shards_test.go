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
	out = must(t, n, "shards", "orders")
	for _, part := range []string{"3: 3 owned, of these 0 moving; 0 waiting", "working", "anna", "SHARD  STATE"} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is missing in\n%s", part, out)
		}
	}
	s := decoded[shardSetView](t, must(t, n, "shards", "orders", "-o", "json"))
	if len(s.Workers) != 1 || len(s.Shards) != 3 {
		t.Fatalf("%+v", s)
	}
	if w := s.Workers[0]; w.Name != "anna" || w.NodeName != "anna" || !w.Live || w.Shards != 3 || w.Capacity != 1 || w.Session == nil {
		t.Errorf("%+v", w)
	}
	if sh := s.Shards[2]; sh.Shard != 2 || sh.State != "owned" || sh.Name != "anna" || sh.Fence == nil || *sh.Session != *s.Workers[0].Session {
		t.Errorf("%+v", sh)
	}
	if r := conclaveAt(n, "__complete", "shards", ""); !strings.HasPrefix(r.out, "orders\n:") {
		t.Errorf("completion: %q", r.out)
	}

	want(t, conclaveAt(n, "shards", "--resize", "5"), 2, "missing NAME")
	want(t, conclaveAt(n, "shards", "orders", "--resize", "0"), 2, "want 1 to 4096")
	want(t, conclaveAt(n, "shards", "invoices", "--resize", "5"), 4, "no such set")
	if out := must(t, n, "shards", "orders", "--resize", "5"); !strings.Contains(out, "has 5 shards once") {
		t.Error(out)
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
