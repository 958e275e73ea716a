package consultest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

// absent is a well-formed ID of no session.
const absent = "00000000-0000-4000-8000-000000000001"

// ttl is a session's TTL. Another notation of the same duration is as good.
func ttl(e *api.SessionEntry) time.Duration {
	d, err := time.ParseDuration(e.TTL)
	if err != nil {
		return -1
	}
	return d
}

func TestSession_CreateDefaults(t *testing.T) {
	a := start(t, 2)
	c := a.client(0)
	name, err := c.Agent().NodeName()
	must(t, err)
	id, _, err := c.Session().Create(nil, nil)
	must(t, err)
	e, meta, err := a.client(1).Session().Info(id, nil)
	must(t, err)
	if meta.LastIndex == 0 {
		t.Error("index 0")
	}
	if e == nil || e.ID != id || e.Name != "" || e.Node != name || e.TTL != "" || e.LockDelay != 15*time.Second ||
		e.Behavior != api.SessionBehaviorRelease || !slices.Equal(e.NodeChecks, []string{"serfHealth"}) || e.CreateIndex == 0 {
		t.Errorf("session %+v", e)
	}
}

func TestSession_CreateWithEverything(t *testing.T) {
	a := start(t, 1)
	c := a.client(0)
	node, err := c.Agent().NodeName()
	must(t, err)
	must(t, c.Agent().CheckRegister(&api.AgentCheckRegistration{ID: "disk", Name: "disk", AgentServiceCheck: api.AgentServiceCheck{TTL: "60s"}}))
	must(t, c.Agent().PassTTL("disk", ""))
	want := &api.SessionEntry{
		Name: "web", Node: node, LockDelay: 3 * time.Second, Behavior: api.SessionBehaviorDelete, TTL: "30s",
		NodeChecks: []string{"serfHealth", "disk"},
	}
	id, _, err := c.Session().Create(want, nil)
	must(t, err)
	e, _, err := c.Session().Info(id, nil)
	must(t, err)
	if e == nil || e.Name != want.Name || e.Node != want.Node || e.LockDelay != want.LockDelay || e.Behavior != want.Behavior ||
		e.TTL != want.TTL || !slices.Equal(e.NodeChecks, want.NodeChecks) {
		t.Errorf("session %+v, want %+v", e, want)
	}
}

func TestSession_CreateNoChecks(t *testing.T) {
	a := start(t, 1)
	c := a.client(0)
	id, _, err := c.Session().CreateNoChecks(&api.SessionEntry{Name: "lasting"}, nil)
	must(t, err)
	e, _, err := c.Session().Info(id, nil)
	must(t, err)
	if e == nil || len(e.NodeChecks) != 0 || len(e.Checks) != 0 || e.TTL != "" {
		t.Errorf("session %+v", e)
	}
}

func TestSession_CreateRefused(t *testing.T) {
	a := start(t, 1)
	c := a.client(0)
	for _, tc := range []struct {
		name, want string
		e          api.SessionEntry
	}{
		{"TTL too short", "TTL", api.SessionEntry{TTL: "5ms"}},
		{"TTL too long", "TTL", api.SessionEntry{TTL: "48h"}},
		{"TTL malformed", "TTL", api.SessionEntry{TTL: "soon"}},
		{"behavior", "ehavior", api.SessionEntry{Behavior: "explode"}},
		{"unknown check", "no such check", api.SessionEntry{NodeChecks: []string{"no such check"}}},
		{"unknown node", "no such node", api.SessionEntry{Node: "no such node"}},
		{"service check", "ServiceChecks", api.SessionEntry{ServiceChecks: []api.ServiceCheck{{ID: "web"}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			id, _, err := c.Session().Create(&tc.e, nil)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("session %q, error %v, want one about %q", id, err, tc.want)
			}
		})
	}
}

func TestSession_Destroy(t *testing.T) {
	a := start(t, 2)
	id := session(t, a.client(0), &api.SessionEntry{LockDelay: time.Millisecond})
	if ok, _, err := a.client(0).KV().Acquire(&api.KVPair{Key: "k", Session: id}, nil); !ok || err != nil {
		t.Fatalf("acquire: %v, %v", ok, err)
	}
	for range 2 { // a session that does not exist is no error
		_, err := a.client(1).Session().Destroy(id, nil)
		must(t, err)
	}
	if e, _, err := a.client(0).Session().Info(id, nil); e != nil || err != nil {
		t.Errorf("after Destroy: %+v, %v", e, err)
	}
	if pair := get(t, a.client(0), "k"); pair.Session != "" {
		t.Errorf("key %+v", pair)
	}
	if ok, _, err := a.client(0).KV().Acquire(&api.KVPair{Key: "k", Session: id}, nil); ok || err == nil || !strings.Contains(err.Error(), "invalid session") {
		t.Errorf("acquire by a session that has ended: %v, %v", ok, err)
	}
}

func TestSession_Lists(t *testing.T) {
	a := start(t, 2)
	var ids, nodes []string
	for _, c := range a.clients() {
		node, err := c.Agent().NodeName()
		must(t, err)
		nodes, ids = append(nodes, node), append(ids, session(t, c, &api.SessionEntry{Name: "of " + node}))
	}
	for _, c := range a.clients() {
		list, meta, err := c.Session().List(nil)
		must(t, err)
		if meta.LastIndex == 0 {
			t.Error("index 0")
		}
		for i, id := range ids {
			if !slices.ContainsFunc(list, func(e *api.SessionEntry) bool { return e.ID == id && e.Name == "of "+nodes[i] && ttl(e) == time.Minute }) {
				t.Errorf("session %s is not in the list", id)
			}
			own, _, err := c.Session().Node(nodes[i], nil)
			must(t, err)
			if !slices.ContainsFunc(own, func(e *api.SessionEntry) bool { return e.ID == id }) ||
				slices.ContainsFunc(own, func(e *api.SessionEntry) bool { return e.ID == ids[1-i] }) {
				t.Errorf("sessions of %s: %+v", nodes[i], own)
			}
		}
	}
	if list, _, err := a.client(0).Session().Node("no such node", nil); err != nil || len(list) != 0 {
		t.Errorf("sessions of an unknown node: %+v, %v", list, err)
	}
}

func TestSession_Renew(t *testing.T) {
	a := start(t, 2)
	id := session(t, a.client(0), &api.SessionEntry{TTL: "15s"})
	e, _, err := a.client(1).Session().Renew(id, nil)
	must(t, err)
	if e == nil || e.ID != id || e.TTL != "15s" {
		t.Errorf("renewed %+v", e)
	}
	if e, _, err := a.client(1).Session().Renew(absent, nil); e != nil || err != nil {
		t.Errorf("renewed a session that does not exist: %+v, %v", e, err)
	}
	if _, _, err := a.client(1).Session().Renew("malformed", nil); err == nil {
		t.Error("renewed a malformed ID")
	}
}

func TestSession_RenewPeriodic(t *testing.T) {
	a := start(t, 2)
	kept := session(t, a.client(0), &api.SessionEntry{LockDelay: time.Millisecond})
	done, returned := make(chan struct{}), make(chan error, 1)
	// RenewPeriodic returns nil, and leaves the session, if it does not run for the whole of the TTL.
	go func() { returned <- a.client(0).Session().RenewPeriodic("4s", kept, nil, done) }()
	close(done)
	must(t, <-returned)
	if e, _, err := a.client(1).Session().Info(kept, nil); e != nil || err != nil {
		t.Errorf("RenewPeriodic left its session: %+v, %v", e, err)
	}

	gone := session(t, a.client(0), &api.SessionEntry{})
	_, err := a.client(1).Session().Destroy(gone, nil)
	must(t, err)
	err = a.client(0).Session().RenewPeriodic("4s", gone, nil, nil)
	if !errors.Is(err, api.ErrSessionExpired) {
		t.Errorf("RenewPeriodic of a session that has ended: %v", err)
	}
}

// The TTL is a lower bound, and it is not doubled.
func TestSession_Expires(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds, Consul's smallest TTL")
	}
	const least = 10 * time.Second
	a := start(t, 2)
	began := time.Now()
	for _, tc := range []struct{ key, behavior string }{
		{"released", api.SessionBehaviorRelease}, {"deleted", api.SessionBehaviorDelete},
	} {
		id := session(t, a.client(0), &api.SessionEntry{TTL: least.String(), Behavior: tc.behavior})
		if ok, _, err := a.client(0).KV().Acquire(&api.KVPair{Key: tc.key, Session: id}, nil); !ok || err != nil {
			t.Fatalf("acquire: %v, %v", ok, err)
		}
	}
	if pair := change(t, a.client(1), "released", unlocked); pair == nil {
		t.Error("the behavior release deleted the key")
	}
	if lived := time.Since(began); lived < least {
		t.Errorf("the session lived for %v, want at least %v", lived, least)
	}
	if pair := change(t, a.client(1), "deleted", unlocked); pair != nil {
		t.Errorf("the behavior delete kept %+v", pair)
	}
}
