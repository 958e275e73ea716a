package consultest

import (
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"
)

// txn executes operations on keys, which must be answered.
func txn(t testing.TB, c *api.Client, ops ...*api.KVTxnOp) (bool, *api.KVTxnResponse) {
	t.Helper()
	ok, answer, _, err := c.KV().Txn(ops, nil)
	must(t, err)
	return ok, answer
}

func TestTxn_Verbs(t *testing.T) {
	a := start(t, 2)
	c := a.client(0)
	id := session(t, c, &api.SessionEntry{})
	if ok, r := txn(t, c,
		&api.KVTxnOp{Verb: api.KVSet, Key: "set", Value: []byte("1"), Flags: 9},
		&api.KVTxnOp{Verb: api.KVCAS, Key: "cas", Value: []byte("2"), Index: 0},
		&api.KVTxnOp{Verb: api.KVLock, Key: "lock", Value: []byte("3"), Session: id},
		&api.KVTxnOp{Verb: api.KVSet, Key: "tree/a"},
		&api.KVTxnOp{Verb: api.KVSet, Key: "tree/b"},
		&api.KVTxnOp{Verb: api.KVSet, Key: "gone"},
	); !ok || len(r.Errors) != 0 || len(r.Results) != 6 {
		t.Fatalf("txn: %v, %+v", ok, r)
	}
	set, cas, lock := get(t, a.client(1), "set"), get(t, a.client(1), "cas"), get(t, a.client(1), "lock")
	if string(set.Value) != "1" || set.Flags != 9 || string(cas.Value) != "2" || lock.Session != id || lock.LockIndex != 1 {
		t.Errorf("keys %+v, %+v, %+v", set, cas, lock)
	}
	if ok, r := txn(t, c,
		&api.KVTxnOp{Verb: api.KVCheckSession, Key: "lock", Session: id},
		&api.KVTxnOp{Verb: api.KVCheckIndex, Key: "cas", Index: cas.ModifyIndex},
		&api.KVTxnOp{Verb: api.KVCheckNotExists, Key: "absent"},
		&api.KVTxnOp{Verb: api.KVUnlock, Key: "lock", Value: []byte("4"), Session: id},
		&api.KVTxnOp{Verb: api.KVDeleteCAS, Key: "cas", Index: cas.ModifyIndex},
		&api.KVTxnOp{Verb: api.KVDelete, Key: "gone"},
		&api.KVTxnOp{Verb: api.KVDeleteTree, Key: "tree/"},
	); !ok || len(r.Errors) != 0 {
		t.Fatalf("txn: %v, %+v", ok, r)
	}
	keys, _, err := a.client(1).KV().Keys("", "", nil)
	must(t, err)
	if got := strings.Join(keys, " "); got != "lock set" {
		t.Errorf("left %q", got)
	}
	if p := get(t, a.client(1), "lock"); p.Session != "" || string(p.Value) != "4" {
		t.Errorf("unlocked %+v", p)
	}
}

func TestTxn_Reads(t *testing.T) {
	a := start(t, 2)
	for _, key := range []string{"r/a", "r/b"} {
		_, err := a.client(0).KV().Put(&api.KVPair{Key: key, Value: []byte("of " + key), Flags: 4}, nil)
		must(t, err)
	}
	ok, r := txn(t, a.client(1), &api.KVTxnOp{Verb: api.KVGet, Key: "r/a"}, &api.KVTxnOp{Verb: api.KVGetTree, Key: "r/"})
	if !ok || len(r.Results) != 3 {
		t.Fatalf("txn: %v, %+v", ok, r)
	}
	for i, key := range []string{"r/a", "r/a", "r/b"} {
		if p := r.Results[i]; p == nil || p.Key != key || string(p.Value) != "of "+key || p.Flags != 4 || p.ModifyIndex == 0 {
			t.Errorf("result %d: %+v", i, p)
		}
	}
	ok, r = txn(t, a.client(1), &api.KVTxnOp{Verb: api.KVGetOrEmpty, Key: "absent"})
	if !ok || len(r.Results) != 1 || r.Results[0] == nil || r.Results[0].Key != "absent" || r.Results[0].Value != nil || r.Results[0].ModifyIndex != 0 {
		t.Errorf("get-or-empty of an absent key: %v, %+v", ok, r)
	}
	ok, r = txn(t, a.client(1), &api.KVTxnOp{Verb: api.KVGet, Key: "absent"})
	if ok || len(r.Errors) != 1 || r.Errors[0].OpIndex != 0 {
		t.Errorf("get of an absent key: %v, %+v", ok, r)
	}
}

// None takes effect, and the error names the operation.
func TestTxn_RolledBack(t *testing.T) {
	a := start(t, 2)
	c := a.client(0)
	x, y := session(t, c, &api.SessionEntry{}), session(t, c, &api.SessionEntry{})
	if ok, _ := txn(t, c, &api.KVTxnOp{Verb: api.KVSet, Key: "k"}, &api.KVTxnOp{Verb: api.KVLock, Key: "locked", Session: x}); !ok {
		t.Fatal("the first txn was rolled back")
	}
	for name, op := range map[string]*api.KVTxnOp{
		"cas":              {Verb: api.KVCAS, Key: "k", Index: 1},
		"cas of none":      {Verb: api.KVCAS, Key: "k", Index: 0},
		"delete-cas":       {Verb: api.KVDeleteCAS, Key: "k", Index: 1},
		"lock":             {Verb: api.KVLock, Key: "locked", Session: y},
		"unlock":           {Verb: api.KVUnlock, Key: "locked", Session: y},
		"check-session":    {Verb: api.KVCheckSession, Key: "locked", Session: y},
		"check-index":      {Verb: api.KVCheckIndex, Key: "k", Index: 1},
		"check-not-exists": {Verb: api.KVCheckNotExists, Key: "k"},
	} {
		t.Run(name, func(t *testing.T) {
			ok, r := txn(t, c, &api.KVTxnOp{Verb: api.KVSet, Key: "effect"}, op)
			if ok || len(r.Results) != 0 || len(r.Errors) != 1 || r.Errors[0].OpIndex != 1 || r.Errors[0].What == "" {
				t.Errorf("txn: %v, %+v", ok, r)
			}
			if pair, _, err := a.client(1).KV().Get("effect", nil); pair != nil || err != nil {
				t.Errorf("the operation before took effect: %+v, %v", pair, err)
			}
		})
	}
}

func TestTxn_Refused(t *testing.T) {
	a := start(t, 1)
	c := a.client(0)
	many := make(api.TxnOps, 129)
	for i := range many {
		many[i] = &api.TxnOp{KV: &api.KVTxnOp{Verb: api.KVSet, Key: "many"}}
	}
	for name, ops := range map[string]api.TxnOps{
		"too many":     many,
		"unknown verb": {{KV: &api.KVTxnOp{Verb: "explode", Key: "k"}}},
		"a node":       {{Node: &api.NodeTxnOp{Verb: api.NodeSet, Node: api.Node{Node: "n"}}}},
		"a service":    {{Service: &api.ServiceTxnOp{Verb: api.ServiceSet, Node: "n", Service: api.AgentService{ID: "s"}}}},
		"a check":      {{Check: &api.CheckTxnOp{Verb: api.CheckSet, Check: api.HealthCheck{Node: "n", CheckID: "c"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			ok, r, _, err := c.Txn().Txn(ops, nil)
			if ok || err == nil && len(r.Errors) == 0 {
				t.Errorf("txn: %v, %+v, %v", ok, r, err)
			}
		})
	}
	if pairs, _, err := c.KV().List("", nil); err != nil || len(pairs) != 0 {
		t.Errorf("a refused txn left %+v, %v", pairs, err)
	}
}
