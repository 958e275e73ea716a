package consulapi_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/contrib/consulapi"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// serveGroup serves a further group, which it creates.
func serveGroup(t *testing.T, node *conclave.Node, name string) *agent {
	t.Helper()
	createGroup(t, node, name)
	return serveNode(t, node, &consulapi.Options{Group: name, SessionTTLMin: time.Second})
}

func createGroup(t *testing.T, node *conclave.Node, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := node.CreateGroup(ctx, name, conclave.GroupConfig{})
	grouptest.Must(t, err)
}

// Two handlers of one node that serve two groups share the nodes, and nothing else.
func TestGroup_Apart(t *testing.T) {
	a := serve(t, nil)
	b := serveGroup(t, a.node, "billing")
	foreign := a.create("")
	a.exchanges([]exchange{
		{"PUT", "/v1/kv/k", "a", 200, "true"},
		{"PUT", "/v1/kv/l?acquire=" + foreign, "a", 200, "true"},
		{"PUT", "/v1/agent/check/register", `{"Name":"c","TTL":"1h","Status":"passing"}`, 200, ""},
	})
	b.exchanges([]exchange{
		{"GET", "/v1/kv/k", "", 404, ""},
		{"GET", "/v1/kv/?keys", "", 200, "[]"},
		{"PUT", "/v1/kv/k?cas=0", "b", 200, "true"},
		{"PUT", "/v1/kv/l?acquire=" + foreign, "b", 500, fmt.Sprintf("invalid session %q", foreign)},
		{"GET", "/v1/session/info/" + foreign, "", 200, "[]"},
		{"GET", "/v1/session/list", "", 200, "[]"},
		{"GET", "/v1/agent/checks", "", 200, "{}"},
		{"PUT", "/v1/agent/check/pass/c", "", 404, `Unknown check ID "c"...`},
		{"PUT", "/v1/session/create", `{"Checks":["c"]}`, 400, "..."},
		{"DELETE", "/v1/kv/?recurse", "", 200, "true"},
	})
	a.exchanges([]exchange{{"GET", "/v1/kv/k?raw", "", 200, "a"}, {"GET", "/v1/kv/l?raw", "", 200, "a"}})
	index, err := a.node.WithGroup("billing").KV().Index(t.Context())
	grouptest.Must(t, err)
	if got := b.do("GET", "/v1/kv/k").header.Get("X-Consul-Index"); got != fmt.Sprint(index) {
		t.Errorf("the index is %s, want that of the group, %d", got, index)
	}
	for _, path := range []string{"/v1/agent/members", "/v1/catalog/nodes", "/v1/status/leader", "/v1/status/peers"} {
		if one, other := a.do("GET", path), b.do("GET", path); one.status != 200 || one.body != other.body {
			t.Errorf("%s: %+v and %+v", path, one, other)
		}
	}
}

// Blocking queries, sessions with a TTL, locks and checks are those of the group.
func TestGroup_Serves(t *testing.T) {
	a := serveGroup(t, grouptest.Alone(t), "billing")
	first, second := a.create(`{"TTL":"1h","LockDelay":0}`), a.create(`{"TTL":"1h","LockDelay":0}`)
	a.exchanges([]exchange{
		{"PUT", "/v1/kv/l?acquire=" + first, "1", 200, "true"},
		{"PUT", "/v1/kv/l?acquire=" + second, "2", 200, "false"},
	})
	pending := a.begin(t.Context(), "/v1/kv/l?index="+a.do("GET", "/v1/kv/l").header.Get("X-Consul-Index"))
	a.exchanges([]exchange{{"PUT", "/v1/kv/l?release=" + first, "1", 200, "true"}})
	if got, err := pending(); err != nil || got.status != 200 || strings.Contains(got.body, first) {
		t.Errorf("after the release: %+v, %v", got, err)
	}
	a.do("PUT", "/v1/session/renew/"+second)
	for acquired := ""; acquired != "true"; { // a busy machine may take longer than the TTL
		acquired = a.do("PUT", "/v1/kv/l?acquire="+a.create(`{"TTL":"1s","LockDelay":0,"Behavior":"delete"}`)).body
	}
	index := a.do("GET", "/v1/kv/l").header.Get("X-Consul-Index")
	if got := a.do("GET", "/v1/kv/l?wait=1m&index="+index); got.status != 404 {
		t.Errorf("after the TTL: %+v", got)
	}

	a.exchanges([]exchange{{"PUT", "/v1/agent/check/register", `{"Name":"c","TTL":"1h","Status":"passing"}`, 200, ""}})
	checked := a.create(`{"NodeChecks":["serfHealth","c"]}`)
	sessions, info := a.do("GET", "/v1/session/list"), a.do("GET", "/v1/session/info/"+checked)
	lists := a.begin(t.Context(), "/v1/session/list?index="+sessions.header.Get("X-Consul-Index"))
	one := a.begin(t.Context(), "/v1/session/info/"+checked+"?index="+info.header.Get("X-Consul-Index"))
	state := a.begin(t.Context(), "/v1/health/state/critical?index="+a.do("GET", "/v1/health/state/critical").header.Get("X-Consul-Index"))
	a.exchanges([]exchange{{"PUT", "/v1/agent/check/fail/c", "", 200, ""}})
	for name, wait := range map[string]func() (answer, error){"list": lists, "session": one} {
		if got, err := wait(); err != nil || got.status != 200 || strings.Contains(got.body, checked) {
			t.Errorf("%s after the check has failed: %+v, %v", name, got, err)
		}
	}
	if got, err := state(); err != nil || !strings.Contains(got.body, `"CheckID":"c"`) {
		t.Errorf("%+v, %v", got, err)
	}
}

// Without the group all that asks it is refused, also what was waiting. The next group of the name is served.
func TestGroup_Deleted(t *testing.T) {
	node := grouptest.Alone(t)
	a := serveNode(t, node, &consulapi.Options{Group: "billing"})
	absent := []exchange{
		{"GET", "/v1/kv/k", "", 500, "..."},
		{"GET", "/v1/kv/k?stale", "", 500, "..."},
		{"PUT", "/v1/kv/k", "x", 500, "..."},
		{"PUT", "/v1/txn", `[{"KV":{"Verb":"get","Key":"k"}}]`, 500, "..."},
		{"PUT", "/v1/session/create", "", 500, "..."},
		{"GET", "/v1/session/list", "", 500, "..."},
		{"GET", "/v1/catalog/nodes", "", 500, "..."},
		{"PUT", "/v1/agent/check/register", `{"Name":"c","TTL":"1h"}`, 500, "..."},
	}
	wantAbsent := func() {
		t.Helper()
		for _, x := range absent {
			if got := a.do(x.method, x.path, x.body); got.status != 500 || !strings.Contains(got.body, `group not found: this API serves the group "billing"`) {
				t.Errorf("%s %s: %+v", x.method, x.path, got)
			}
		}
		a.exchanges([]exchange{{"GET", "/v1/status/leader", "", 200, `""`}, {"GET", "/v1/agent/members", "", 200, "[..."}})
	}
	wantAbsent()
	createGroup(t, node, "billing")
	for i := range 50 {
		a.exchanges([]exchange{{"PUT", "/v1/kv/k", fmt.Sprint(i), 200, "true"}})
	}
	a.exchanges([]exchange{{"PUT", "/v1/agent/check/register", `{"Name":"c","TTL":"1h","Status":"passing"}`, 200, ""}})
	key, sessions := a.do("GET", "/v1/kv/k").header.Get("X-Consul-Index"), a.do("GET", "/v1/session/list").header.Get("X-Consul-Index")
	pending := []func() (answer, error){a.begin(t.Context(), "/v1/kv/k?index="+key), a.begin(t.Context(), "/v1/session/list?index="+sessions)}
	grouptest.Must(t, node.DeleteGroup(t.Context(), "billing", conclave.Force()))
	for _, wait := range pending {
		if got, err := wait(); err != nil || got.status != 500 || !strings.Contains(got.body, "group not found") {
			t.Errorf("pending: %+v, %v", got, err)
		}
	}
	wantAbsent()
	a.exchanges([]exchange{{"PUT", "/v1/agent/check/pass/c", "", 404, "Unknown check ID..."}})

	createGroup(t, node, "billing")
	a.exchanges([]exchange{
		{"GET", "/v1/kv/k", "", 404, ""},
		{"PUT", "/v1/kv/k", "y", 200, "true"},
		{"GET", "/v1/kv/k?raw&wait=1m&index=" + key, "", 200, "y"},                 // an index of the future: at once
		{"GET", "/v1/session/list?wait=1m&index=" + sessions + "0", "", 200, "[]"}, // likewise
		{"PUT", "/v1/agent/check/register", `{"Name":"c","TTL":"1h","Status":"passing"}`, 200, ""},
		{"PUT", "/v1/agent/check/pass/c", "", 200, ""},
	})
}

// Each member serves the group, and its leader need not be that of the default group.
func TestGroup_Members(t *testing.T) {
	g := grouptest.Start(t, 3)
	leader := g.Leader()
	other := (leader + 1) % 3
	here := serveGroup(t, g.Nodes[other], "billing")
	there := serveGroup(t, g.Nodes[leader], "billing") // idempotent
	ctx := grouptest.Bounded(t)
	led := func() bool { // a busy machine may hold an election at any time
		_ = g.Nodes[other].WithGroup("billing").TransferLeadership(ctx, g.Nodes[other].Status().ID) // an election comes in between
		read := here.do("GET", "/v1/kv/l?stale").header
		return decode[string](t, here.do("GET", "/v1/status/leader")) == g.Nodes[other].Addr() &&
			read.Get("X-Consul-Knownleader") == "true" && read.Get("X-Consul-Lastcontact") == "0"
	}
	for !led() {
		if ctx.Err() != nil {
			t.Fatal("the API never reports the leader of the group")
		}
		grouptest.Pass(5 * time.Millisecond)
	}
	id := here.create(`{"TTL":"10s"}`)
	there.exchanges([]exchange{
		{"PUT", "/v1/kv/l?acquire=" + id, "x", 200, "true"},
		{"PUT", "/v1/session/renew/" + id, "", 200, "[..."},
	})
	here.exchanges([]exchange{{"GET", "/v1/kv/l?raw", "", 200, "x"}})
	nodes := here.begin(t.Context(), "/v1/catalog/nodes?index="+here.do("GET", "/v1/catalog/nodes").header.Get("X-Consul-Index"))
	third := 3 - leader - other
	left := nodeID(g.Nodes[third].Status().ID)
	grouptest.Must(t, g.Nodes[third].Leave(grouptest.Bounded(t)))
	g.Nodes[third] = nil
	got, err := nodes()
	for err == nil && got.status == 200 && strings.Contains(got.body, left) {
		got, err = here.try(t.Context(), "GET", "/v1/catalog/nodes?index="+got.header.Get("X-Consul-Index"), nil)
	}
	if err != nil || got.status != 200 {
		t.Errorf("after a member has left: %+v, %v", got, err)
	}
}
