package consultest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

func register(t testing.TB, c *api.Client, id, ttl string) {
	t.Helper()
	must(t, c.Agent().CheckRegister(&api.AgentCheckRegistration{
		ID: id, Name: id, AgentServiceCheck: api.AgentServiceCheck{TTL: ttl},
	}))
}

// status is the state of a check of the agent.
func status(t testing.TB, c *api.Client, id string) string {
	t.Helper()
	checks, err := c.Agent().Checks()
	must(t, err)
	if checks[id] == nil {
		return "none"
	}
	return checks[id].Status
}

func TestAgent_Checks(t *testing.T) {
	a := start(t, 1)
	c := a.client(0)
	register(t, c, "disk", "60s")
	if got := status(t, c, "disk"); got != api.HealthCritical {
		t.Errorf("a new check is %s, as in Consul it is critical until it passes", got)
	}
	for _, step := range []struct {
		name, want string
		do         func() error
	}{
		{"PassTTL", api.HealthPassing, func() error { return c.Agent().PassTTL("disk", "fine") }},
		{"WarnTTL", api.HealthWarning, func() error { return c.Agent().WarnTTL("disk", "90 % full") }},
		{"FailTTL", api.HealthCritical, func() error { return c.Agent().FailTTL("disk", "full") }},
		{"UpdateTTL pass", api.HealthPassing, func() error { return c.Agent().UpdateTTL("disk", "fine", "pass") }},
		{"UpdateTTL warn", api.HealthWarning, func() error { return c.Agent().UpdateTTL("disk", "", api.HealthWarning) }},
		{"UpdateTTL fail", api.HealthCritical, func() error { return c.Agent().UpdateTTL("disk", "", "fail") }},
	} {
		must(t, step.do())
		if got := status(t, c, "disk"); got != step.want {
			t.Errorf("after %s the check is %s, want %s", step.name, got, step.want)
		}
	}
	must(t, c.Agent().CheckDeregister("disk"))
	if got := status(t, c, "disk"); got != "none" {
		t.Errorf("a deregistered check is %s", got)
	}
	if err := c.Agent().PassTTL("disk", ""); err == nil {
		t.Error("PassTTL of a deregistered check succeeded")
	}
}

func TestAgent_CheckRefused(t *testing.T) {
	a := start(t, 1)
	for name, check := range map[string]api.AgentServiceCheck{
		"HTTP":   {HTTP: "http://localhost/", Interval: "10s"},
		"TCP":    {TCP: "localhost:80", Interval: "10s"},
		"gRPC":   {GRPC: "localhost:80", Interval: "10s"},
		"script": {Args: []string{"true"}, Interval: "10s"},
		"alias":  {AliasNode: "other"},
		"none":   {},
	} {
		t.Run(name, func(t *testing.T) {
			err := a.client(0).Agent().CheckRegister(&api.AgentCheckRegistration{ID: "c", Name: "c", AgentServiceCheck: check})
			if err == nil || !strings.Contains(err.Error(), "400") || !strings.Contains(err.Error(), "not supported") && !strings.Contains(err.Error(), "TTL") {
				t.Errorf("registered, or refused without a reason: %v", err)
			}
		})
	}
}

func TestAgent_CheckEndsSession(t *testing.T) {
	for name, fail := range map[string]func(c *api.Client) error{
		"critical":     func(c *api.Client) error { return c.Agent().FailTTL("disk", "full") },
		"deregistered": func(c *api.Client) error { return c.Agent().CheckDeregister("disk") },
		"silent":       func(*api.Client) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			a := start(t, 2)
			c := a.client(0)
			ttl := "60s"
			if name == "silent" {
				ttl = "15s" // in which the key is acquired
			}
			register(t, c, "disk", ttl)
			must(t, c.Agent().PassTTL("disk", ""))
			id, _, err := c.Session().Create(&api.SessionEntry{NodeChecks: []string{"serfHealth", "disk"}, LockDelay: time.Millisecond}, nil)
			must(t, err)
			if ok, _, err := c.KV().Acquire(&api.KVPair{Key: "k", Session: id}, nil); !ok || err != nil {
				t.Fatalf("acquire: %v, %v", ok, err)
			}
			must(t, fail(c))
			change(t, a.client(1), "k", unlocked)
			if name == "deregistered" {
				return
			}
			if _, _, err := c.Session().Create(&api.SessionEntry{NodeChecks: []string{"disk"}}, nil); err == nil {
				t.Error("created a session on a critical check")
			}
		})
	}
}

func TestAgent_SelfAndNodes(t *testing.T) {
	a := start(t, 3)
	var names []string
	for i, c := range a.clients() {
		self, err := c.Agent().Self()
		must(t, err)
		name, err := c.Agent().NodeName()
		must(t, err)
		if self["Config"]["NodeName"] != name || self["Config"]["NodeID"] == "" || self["Config"]["Datacenter"] == nil {
			t.Errorf("agent %d: %+v", i, self)
		}
		names = append(names, name)
	}
	if slices.Sort(names); len(slices.Compact(slices.Clone(names))) != 3 {
		t.Errorf("names %q", names)
	}
	for _, c := range a.clients() {
		nodes, meta, err := c.Catalog().Nodes(nil)
		must(t, err)
		var listed []string
		for _, n := range nodes {
			listed = append(listed, n.Node)
			if n.ID == "" || n.Address == "" {
				t.Errorf("node %+v", n)
			}
		}
		if slices.Sort(listed); !slices.Equal(listed, names) || meta.LastIndex == 0 {
			t.Errorf("nodes %q, want %q, index %d", listed, names, meta.LastIndex)
		}
	}
}

func TestAgent_HealthOfNode(t *testing.T) {
	a := start(t, 2)
	register(t, a.client(0), "disk", "60s")
	must(t, a.client(0).Agent().WarnTTL("disk", ""))
	name, err := a.client(0).Agent().NodeName()
	must(t, err)
	checks, _, err := a.client(1).Health().Node(name, nil)
	must(t, err)
	got := make(map[string]string)
	for _, check := range checks {
		got[check.CheckID] = check.Status
		if check.Node != name {
			t.Errorf("check of another node: %+v", check)
		}
	}
	if len(got) != 2 || got["serfHealth"] != api.HealthPassing || got["disk"] != api.HealthWarning {
		t.Errorf("checks of %s: %v", name, got)
	}
	if checks, _, err := a.client(1).Health().Node("no such node", nil); err != nil || len(checks) != 0 {
		t.Errorf("checks of an unknown node: %+v, %v", checks, err)
	}
}

func TestStatus_LeaderAndPeers(t *testing.T) {
	a := start(t, 3)
	a.group.Leader()
	for _, c := range a.clients() {
		leader, err := c.Status().Leader()
		must(t, err)
		peers, err := c.Status().Peers()
		must(t, err)
		if leader == "" || len(peers) != 3 || !slices.Contains(peers, leader) {
			t.Errorf("leader %q, peers %q", leader, peers)
		}
	}
}
