package consultest

import (
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

// write is a write of Consul's API that states its condition, so that its repetition has no second effect.
type write struct {
	name    string
	prepare func(t *testing.T, c *api.Client, session string)
	do      func(c *api.Client, session string) (bool, error)
	again   bool // the answer to a repetition: true where it holds already, false where the condition has gone
	applied func(p *api.KVPair, session string) bool
}

// conditional are the writes that can be retried. Each is of the key k, of which kIndex is the modify index
// before it.
func conditional(kIndex *uint64) []write {
	existing := func(t *testing.T, c *api.Client, _ string) {
		_, err := c.KV().Put(&api.KVPair{Key: "k", Value: []byte("before")}, nil)
		must(t, err)
		*kIndex = get(t, c, "k").ModifyIndex
	}
	held := func(t *testing.T, c *api.Client, session string) {
		ok, _, err := c.KV().Acquire(&api.KVPair{Key: "k", Value: []byte("before"), Session: session}, nil)
		if must(t, err); !ok {
			t.Fatal("not acquired")
		}
		*kIndex = get(t, c, "k").ModifyIndex
	}
	after := []byte("after")
	return []write{
		{"cas", existing, func(c *api.Client, _ string) (bool, error) {
			ok, _, err := c.KV().CAS(&api.KVPair{Key: "k", Value: after, ModifyIndex: *kIndex}, nil)
			return ok, err
		}, false, func(p *api.KVPair, _ string) bool { return p != nil && string(p.Value) == "after" }},
		{"acquire", existing, func(c *api.Client, s string) (bool, error) {
			ok, _, err := c.KV().Acquire(&api.KVPair{Key: "k", Value: after, Session: s}, nil)
			return ok, err
		}, true, func(p *api.KVPair, s string) bool { return p != nil && p.Session == s && p.LockIndex == 1 }},
		{"release", held, func(c *api.Client, s string) (bool, error) {
			ok, _, err := c.KV().Release(&api.KVPair{Key: "k", Value: after, Session: s}, nil)
			return ok, err
		}, false, func(p *api.KVPair, _ string) bool { return p != nil && p.Session == "" && string(p.Value) == "after" }},
		{"delete-cas", existing, func(c *api.Client, _ string) (bool, error) {
			ok, _, err := c.KV().DeleteCAS(&api.KVPair{Key: "k", ModifyIndex: *kIndex}, nil)
			return ok, err
		}, true, func(p *api.KVPair, _ string) bool { return p == nil }},
		{"txn", existing, func(c *api.Client, s string) (bool, error) {
			ok, _, _, err := c.KV().Txn(api.KVTxnOps{
				{Verb: api.KVCheckIndex, Key: "k", Index: *kIndex},
				{Verb: api.KVLock, Key: "k", Value: after, Session: s},
			}, nil)
			return ok, err
		}, false, func(p *api.KVPair, s string) bool { return p != nil && p.Session == s && p.LockIndex == 1 }},
	}
}

// modified is a key's modify index; 0: it does not exist.
func modified(t *testing.T, c *api.Client) uint64 {
	t.Helper()
	pair, _, err := c.KV().Get("k", nil)
	must(t, err)
	if pair == nil {
		return 0
	}
	return pair.ModifyIndex
}

func TestRetries_Conditional(t *testing.T) {
	a := start(t, 2)
	c, r := through(t, a, 0)
	direct := a.client(1)
	var index uint64
	for _, w := range conditional(&index) {
		for name, f := range map[string]fault{"cut before": cutBefore, "cut after": cutAfter, "twice": twice} {
			t.Run(w.name+"/"+name, func(t *testing.T) {
				id := session(t, direct, &api.SessionEntry{LockDelay: time.Millisecond})
				t.Cleanup(func() { // the next subtest begins without the key
					_, err := direct.Session().Destroy(id, nil)
					must(t, err)
					_, err = direct.KV().Delete("k", nil)
					must(t, err)
				})
				w.prepare(t, direct, id)
				var once uint64
				r.arm(f, func() { once = modified(t, direct) })
				ok, err := w.do(c, id)
				if f == twice {
					w.checkTwice(t, direct, r, ok, err, id, once)
					return
				}
				if err == nil {
					t.Errorf("no error from a connection that broke, result %v", ok)
				}
				before := modified(t, direct)
				if took := w.applied(pairOf(t, direct), id); took != (f == cutAfter) {
					t.Errorf("took effect: %v", took)
				}
				ok, err = w.do(c, id)
				must(t, err)
				if want := f == cutBefore || w.again; ok != want {
					t.Errorf("the retry returned %v, want %v", ok, want)
				}
				if !w.applied(pairOf(t, direct), id) {
					t.Errorf("after the retry: %+v", pairOf(t, direct))
				}
				if f == cutAfter && modified(t, direct) != before {
					t.Errorf("the retry changed the key again: index %d after %d", modified(t, direct), before)
				}
			})
		}
	}
}

func pairOf(t *testing.T, c *api.Client) *api.KVPair {
	t.Helper()
	pair, _, err := c.KV().Get("k", nil)
	must(t, err)
	return pair
}

func (w write) checkTwice(t *testing.T, c *api.Client, r *relay, ok bool, err error, id string, once uint64) {
	t.Helper()
	if !ok || err != nil {
		t.Errorf("the first time: %v, %v", ok, err)
	}
	answers := r.answered()
	if len(answers) != 2 {
		t.Fatalf("the handler has answered %+v", answers)
	}
	if same := answers[0] == answers[1]; same != w.again {
		t.Errorf("answers %+v", answers)
	}
	if !w.applied(pairOf(t, c), id) || modified(t, c) != once {
		t.Errorf("key %+v, index %d after the first time", pairOf(t, c), once)
	}
}

// A repetition that is delayed until another owner has the key takes nothing from that owner.
func TestRetries_DelayedRepetition(t *testing.T) {
	a := start(t, 2)
	c, r := through(t, a, 0)
	direct := a.client(1)
	var index uint64
	for _, w := range conditional(&index) {
		if w.name == "acquire" {
			continue // TestRetries_DelayedAcquire
		}
		t.Run(w.name, func(t *testing.T) {
			id, next := session(t, direct, &api.SessionEntry{LockDelay: time.Millisecond}), session(t, direct, &api.SessionEntry{LockDelay: time.Millisecond})
			t.Cleanup(func() {
				_, err := direct.KV().Delete("k", nil)
				must(t, err)
			})
			w.prepare(t, direct, id)
			var theirs uint64
			r.arm(twice, func() {
				if p := pairOf(t, direct); p != nil && p.Session == id {
					_, _, err := direct.KV().Release(&api.KVPair{Key: "k", Session: id}, nil)
					must(t, err)
				}
				ok, _, err := direct.KV().Acquire(&api.KVPair{Key: "k", Value: []byte("theirs"), Session: next}, nil)
				if must(t, err); !ok {
					t.Error("the next owner did not acquire the key")
				}
				theirs = modified(t, direct)
			})
			if ok, err := w.do(c, id); !ok || err != nil {
				t.Errorf("the first time: %v, %v", ok, err)
			}
			if p := pairOf(t, direct); p == nil || p.Session != next || string(p.Value) != "theirs" || p.ModifyIndex != theirs {
				t.Errorf("the next owner's key: %+v", p)
			}
		})
	}
}

// What the API cannot express: an acquire does not name a state, so a delayed repetition acquires a key
// that was released meanwhile. The key is held until its session ends.
func TestRetries_DelayedAcquire(t *testing.T) {
	a := start(t, 2)
	c, r := through(t, a, 0)
	direct := a.client(1)
	id := session(t, direct, &api.SessionEntry{LockDelay: time.Millisecond})
	r.arm(twice, func() {
		ok, _, err := direct.KV().Release(&api.KVPair{Key: "k", Session: id}, nil)
		if must(t, err); !ok {
			t.Error("not released")
		}
	})
	if ok, _, err := c.KV().Acquire(&api.KVPair{Key: "k", Session: id}, nil); !ok || err != nil {
		t.Fatalf("acquire: %v, %v", ok, err)
	}
	if p := pairOf(t, direct); p.Session != id || p.LockIndex != 2 {
		t.Errorf("key %+v", p)
	}
	_, err := direct.Session().Destroy(id, nil)
	must(t, err)
	if p := pairOf(t, direct); p.Session != "" {
		t.Errorf("the session has ended, and the key is %+v", p)
	}
}

// What the API cannot express: a session has no name that its creation could be recognized by, so a
// repetition creates another session. The orphan ends by its TTL, and by nothing else.
func TestRetries_OrphanSessionExpires(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds, Consul's smallest TTL")
	}
	a := start(t, 2)
	c, r := through(t, a, 0)
	direct := a.client(1)
	r.arm(twice, nil)
	kept, _, err := c.Session().CreateNoChecks(&api.SessionEntry{TTL: "10s"}, nil)
	must(t, err)
	r.arm(cutAfter, nil)
	if _, _, err := c.Session().CreateNoChecks(&api.SessionEntry{TTL: "10s"}, nil); err == nil {
		t.Error("no error from a connection that broke")
	}
	sessions, _, err := direct.Session().List(nil)
	must(t, err)
	if len(sessions) != 3 {
		t.Fatalf("sessions %+v, want the client's and two orphans", sessions)
	}
	done := make(chan struct{})
	renewed := make(chan error, 1)
	go func() { renewed <- direct.Session().RenewPeriodic("10s", kept, nil, done) }()
	for _, e := range sessions {
		if e.ID != kept {
			ended(t, direct, e.ID)
		}
	}
	if e, _, err := direct.Session().Info(kept, nil); e == nil || err != nil {
		t.Errorf("the client's session: %+v, %v", e, err)
	}
	close(done)
	must(t, <-renewed)
}
