package consulapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/contrib/consulapi"
	"github.com/conclave-go/conclave/internal/grouptest"
)

type check struct{ Node, CheckID, Name, Status, Notes, Output string }

func TestAgent_Checks(t *testing.T) {
	a := serve(t, nil)
	own := a.node.Status().Members[0].Name
	state := func() check { return decode[map[string]check](t, a.do("GET", "/v1/agent/checks"))["c/1"] }
	a.exchanges([]exchange{
		{"GET", "/v1/agent/checks", "", 200, "{}"},
		{"PUT", "/v1/agent/check/pass/c", "", 404, `Unknown check ID "c"...`},
		{"PUT", "/v1/agent/check/register", `{"ID":"c/1","TTL":"10s"}`, 400, "Missing check name"},
		{"PUT", "/v1/agent/check/register", `{"Name":"c"}`, 400, "Must provide TTL..."},
		{"PUT", "/v1/agent/check/register", `{"Name":"c","TTL":"soon"}`, 400, "TTL 'soon' invalid..."},
		{"PUT", "/v1/agent/check/register", `{"Name":"c","TTL":"10ms"}`, 400, "..."},
		{"PUT", "/v1/agent/check/register", `{"Name":"c","TTL":10}`, 400, "..."},
		{"PUT", "/v1/agent/check/register", `{"Name":"c","TTL":1e30}`, 400, "TTL '1e30' invalid..."},
		{"PUT", "/v1/agent/check/register", `{"Name":"c","TTL":0}`, 400, "Must provide TTL..."},
		{"PUT", "/v1/agent/check/register", `{"Name":"nanoseconds","TTL":10000000000}`, 200, ""},
		{"PUT", "/v1/agent/check/deregister/nanoseconds", "", 200, ""},
		{"PUT", "/v1/agent/check/register", `{"Name":"c","TTL":"10s","HTTP":"http://x"}`, 400, `field "HTTP" is not supported`},
		{"PUT", "/v1/agent/check/register", `{"Name":"c","TTL":"10s","DeregisterCriticalServiceAfter":"1m"}`, 400, `field "DeregisterCriticalServiceAfter" is not supported`},
		{"PUT", "/v1/agent/check/register", `{"Name":"c","TTL":"10s","ServiceID":"s"}`, 400, `field "ServiceID" is not supported`},
		{"PUT", "/v1/agent/check/register", `{"Name":"c","TTL":"10s","Status":"good"}`, 400, "Invalid check status: 'good'"},
		{"PUT", "/v1/agent/check/register", `{"Name":"serfHealth","TTL":"10s"}`, 400, "..."},
		{"PUT", "/v1/agent/check/register", `{"Name":"c`, 400, "Request decode failed: ..."},
		{"PUT", "/v1/agent/check/register", `{"ID":"c/1","Name":"c","TTL":"10s","Notes":"n","HTTP":"","TLSSkipVerify":false,"Header":{}}`, 200, ""},
	})
	if c := state(); c != (check{own, "c/1", "c", "critical", "n", ""}) {
		t.Errorf("registered: %+v", c)
	}
	for _, s := range []struct{ path, body, status, output string }{
		{"pass/c/1?note=fine", "", "passing", "fine"},
		{"warn/c/1?note=slow", "", "warning", "slow"},
		{"fail/c/1", "", "critical", ""},
		{"update/c/1", `{"Status":"passing","Output":"` + strings.Repeat("x", 4097) + `"}`, "passing", strings.Repeat("x", 4096) + " ... (4096 of 4097 bytes)"},
	} {
		a.exchanges([]exchange{{"PUT", "/v1/agent/check/" + s.path, s.body, 200, ""}})
		if c := state(); c.Status != s.status || c.Output != s.output {
			t.Errorf("%s: %+v", s.path, c)
		}
	}
	a.exchanges([]exchange{
		{"PUT", "/v1/agent/check/update/c/1", `{"Status":"good"}`, 400, "Invalid check status: 'good'"},
		{"PUT", "/v1/agent/check/register", `{"ID":"c/1","Name":"d","TTL":"10s"}`, 200, ""},
	})
	if c := state(); c.Status != "passing" || c.Name != "d" {
		t.Errorf("registered again: %+v", c)
	}
	node := decode[[]check](t, a.do("GET", "/v1/health/node/"+own))
	if len(node) != 2 || node[0].CheckID != "c/1" || node[0].Name != "d" || node[1].CheckID != "serfHealth" || node[1].Status != "passing" {
		t.Errorf("%+v", node)
	}
	restarted := serveNode(t, a.node, nil)
	restarted.exchanges([]exchange{
		{"PUT", "/v1/agent/check/pass/c/1", "", 404, "Unknown check ID..."},
		{"PUT", "/v1/agent/check/register", `{"ID":"c/1","Name":"d","TTL":"10s","Status":"warning"}`, 200, ""},
		{"PUT", "/v1/agent/check/deregister/c/1", "", 200, ""},
		{"PUT", "/v1/agent/check/deregister/c/1", "", 404, "Unknown check ID..."},
		{"GET", "/v1/agent/checks", "", 200, "{}"},
	})
	a.exchanges([]exchange{{"PUT", "/v1/agent/check/pass/c/1", "", 404, "Unknown check ID..."}})
}

// nodeID is a member's ID as Consul writes the ID of a node.
func nodeID(id conclave.MemberID) string {
	s := id.String()
	return s[:8] + "-" + s[8:12] + "-" + s[12:] + "-8000-000000000000"
}

func TestAgent_Nodes(t *testing.T) {
	a := serve(t, nil)
	m := a.node.Status().Members[0]
	type self struct {
		Config struct {
			NodeName, Datacenter string
			Server               bool
		}
	}
	if s := decode[self](t, a.do("GET", "/v1/agent/self")); s.Config.NodeName != m.Name || s.Config.Datacenter != "dc1" || !s.Config.Server {
		t.Errorf("%+v", s)
	}
	if l := decode[string](t, a.do("GET", "/v1/status/leader")); l != m.Addr {
		t.Error(l)
	}
	if p := decode[[]string](t, a.do("GET", "/v1/status/peers")); len(p) != 1 || p[0] != m.Addr {
		t.Error(p)
	}
	type node struct{ ID, Node, Address, Datacenter string }
	if n := decode[[]node](t, a.do("GET", "/v1/catalog/nodes")); len(n) != 1 || n[0] != (node{nodeID(m.ID), m.Name, "127.0.0.1", "dc1"}) {
		t.Errorf("%+v", n)
	}
	if c := decode[[]check](t, a.do("GET", "/v1/health/node/none")); len(c) != 0 {
		t.Errorf("%+v", c)
	}
	type catalogNode struct {
		Node     node
		Services map[string]any
	}
	if n := decode[catalogNode](t, a.do("GET", "/v1/catalog/node/"+m.Name)); n.Node != (node{nodeID(m.ID), m.Name, "127.0.0.1", "dc1"}) || n.Services == nil || len(n.Services) != 0 {
		t.Errorf("%+v", n)
	}
	type serf struct {
		Name, Addr string
		Port       int
		Status     int
	}
	if s := decode[[]serf](t, a.do("GET", "/v1/agent/members")); len(s) != 1 || fmt.Sprintf("%s:%d", s[0].Addr, s[0].Port) != m.Addr || s[0].Name != m.Name || s[0].Status != 1 {
		t.Errorf("%+v", s)
	}
	for state, want := range map[string]int{"any": 1, "passing": 1, "critical": 0} {
		if c := decode[[]check](t, a.do("GET", "/v1/health/state/"+state)); len(c) != want {
			t.Errorf("%s: %+v", state, c)
		}
	}
	a.exchanges([]exchange{
		{"GET", "/v1/catalog/node/none", "", 200, "null"},
		{"GET", "/v1/catalog/datacenters", "", 200, `["dc1"]`},
		{"GET", "/v1/catalog/services", "", 200, "{}"},
		{"GET", "/v1/agent/services", "", 200, "{}"},
		{"GET", "/v1/health/checks/web", "", 200, "[]"},
		{"GET", "/v1/event/list?name=deploy", "", 200, "[]"},
		{"GET", "/v1/kv/a?ns=default&partition=default&cached", "", 404, ""},
		{"GET", "/v1/health/state/good", "", 400, "Invalid check status: 'good'"},
	})
}

// Nodes whose names are not unique are called by their IDs.
func TestAgent_SameNames(t *testing.T) {
	g := grouptest.Start(t, 3, grouptest.Edit(func(i int, c *conclave.Config, _ *cluster.Seams) { c.Name = []string{"a", "a", "b"}[i] }))
	a := serveNode(t, g.Nodes[0], &consulapi.Options{Datacenter: "here"})
	want := make(map[string]bool)
	for _, m := range g.Nodes[0].Status().Members {
		if m.Name == "b" {
			want["b"] = true
		} else {
			want[m.ID.String()] = true
		}
	}
	type node struct{ Node string }
	for _, n := range decode[[]node](t, a.do("GET", "/v1/catalog/nodes?dc=here")) {
		if !want[n.Node] {
			t.Error(n)
		}
		delete(want, n.Node)
	}
	if len(want) != 0 {
		t.Error("missing:", want)
	}
}

func TestHandler_NotOpen(t *testing.T) {
	a := serveNode(t, nil, nil)
	a.exchanges([]exchange{
		{"GET", "/v1/kv/a", "", 500, "No cluster leader"},
		{"GET", "/v1/agent/self", "", 500, "No cluster leader"},
		{"GET", "/v1/status/leader", "", 200, `""`},
		{"GET", "/v1/status/peers", "", 200, "[]"},
	})
}
