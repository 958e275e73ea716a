package consultest

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

// Valkeyrie, its ancestor libkv and Stolon use HashiCorp's client so: a wait time in the configuration, which the client
// sends with each request, and the index of a read's answer to write the key if it is unchanged.
func TestClient_AsValkeyrieUsesIt(t *testing.T) {
	a := start(t, 2)
	cfg := api.DefaultConfig()
	cfg.Address, cfg.WaitTime = a.addr(0), 3*time.Second
	c, err := api.NewClient(cfg)
	must(t, err)
	kv := c.KV()
	if ok, _, err := kv.CAS(&api.KVPair{Key: "cluster", Value: []byte("0")}, nil); err != nil || !ok {
		t.Fatalf("create: %v, %v", ok, err)
	}
	for _, value := range []string{"1", "2"} {
		_, err := a.client(1).KV().Put(&api.KVPair{Key: "keeper", Value: []byte(value)}, nil) // another process, another key
		must(t, err)
		_, meta, err := kv.Get("cluster", &api.QueryOptions{RequireConsistent: true})
		must(t, err)
		if ok, _, err := kv.CAS(&api.KVPair{Key: "cluster", Value: []byte(value), ModifyIndex: meta.LastIndex}, nil); err != nil || !ok {
			t.Errorf("write of %s if unchanged: %v, %v", value, ok, err)
		}
	}
	id, _, err := c.Session().Create(&api.SessionEntry{TTL: "10s", Behavior: api.SessionBehaviorDelete, LockDelay: time.Millisecond}, nil)
	must(t, err)
	lock, err := c.LockOpts(&api.LockOptions{Key: "sentinel", Session: id})
	must(t, err)
	if held, err := lock.Lock(nil); err != nil || held == nil {
		t.Fatalf("lock: %v", err)
	}
	if entry, _, err := c.Session().Renew(id, nil); err != nil || entry == nil {
		t.Errorf("renew: %+v, %v", entry, err)
	}
	must(t, lock.Unlock())
	_, meta, err := kv.Get("cluster", nil)
	must(t, err)
	if ok, _, err := kv.DeleteCAS(&api.KVPair{Key: "cluster", ModifyIndex: meta.LastIndex}, nil); err != nil || !ok {
		t.Errorf("deletion if unchanged: %v, %v", ok, err)
	}
}

// As the command "consul members".
func TestAgent_MembersOfAllSegments(t *testing.T) {
	a := start(t, 1)
	members, err := a.client(0).Agent().MembersOpts(api.MembersOpts{Segment: api.AllSegments})
	if err != nil || len(members) != 1 || members[0].ProtocolCur == 0 {
		t.Errorf("%+v, %v", members, err)
	}
	if _, err := a.client(0).Agent().MembersOpts(api.MembersOpts{Segment: "east"}); err == nil || !strings.Contains(err.Error(), "segment") {
		t.Errorf("members of another segment: %v", err)
	}
}
