package consulapi_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/contrib/consulapi"
	"github.com/conclave-go/conclave/internal/grouptest"
)

type session struct {
	ID, Name, Node, Behavior, TTL string
	LockDelay                     time.Duration
	NodeChecks, Checks            []string
	CreateIndex                   uint64
}

func (a *agent) create(body string) string {
	a.t.Helper()
	return decode[struct{ ID string }](a.t, a.do("PUT", "/v1/session/create", body)).ID
}

func (a *agent) info(id string) []session {
	a.t.Helper()
	return decode[[]session](a.t, a.do("GET", "/v1/session/info/"+id))
}

func TestSession_Fields(t *testing.T) {
	a := serve(t, nil)
	own := a.node.Status().Members[0].Name
	serf, none := []string{"serfHealth"}, []string{}
	for _, x := range []struct {
		body string
		want session
	}{
		{"", session{Behavior: "release", LockDelay: 15 * time.Second, NodeChecks: serf}},
		{"{}", session{Behavior: "release", LockDelay: 15 * time.Second, NodeChecks: serf}},
		{`{"Name":"n","TTL":"90s","LockDelay":"20s","Behavior":"delete","Node":"` + own + `"}`, session{Name: "n", TTL: "90s", LockDelay: 20 * time.Second, Behavior: "delete", NodeChecks: serf}},
		{`{"lockdelay":5,"TTL":"0s","checks":[]}`, session{Behavior: "release", LockDelay: 5 * time.Second, NodeChecks: none}},
		{`{"LockDelay":0,"Checks":null}`, session{Behavior: "release", NodeChecks: none}},
		{`{"LockDelay":"0s","NodeChecks":["serfHealth"],"ServiceChecks":[]}`, session{Behavior: "release", NodeChecks: serf}},
		{`{"LockDelay":2000000000,"NodeChecks":[]}`, session{Behavior: "release", LockDelay: 2 * time.Second, NodeChecks: none}},
		{`{"LockDelay":"15000ms","NodeChecks":["serfHealth"],"Checks":["serfHealth"]}`, session{Behavior: "release", LockDelay: 15 * time.Second, NodeChecks: serf}},
		{`{"Checks":null,"NodeChecks":null}`, session{Behavior: "release", LockDelay: 15 * time.Second, NodeChecks: none}},
		{`{"Checks":[],"NodeChecks":["serfHealth"]}`, session{Behavior: "release", LockDelay: 15 * time.Second, NodeChecks: none}},
		{`{"Checks":["serfHealth"],"NodeChecks":null}`, session{Behavior: "release", LockDelay: 15 * time.Second, NodeChecks: none}},
		{`{"LockDelay":"5m"}`, session{Behavior: "release", LockDelay: time.Minute, NodeChecks: serf}},
	} {
		id := a.create(x.body)
		found := a.info(id)
		if len(found) != 1 {
			t.Fatalf("%s: %+v", x.body, found)
		}
		got, want := found[0], x.want
		if got.ID != id || got.Node != own || got.CreateIndex == 0 || got.Name != want.Name || got.TTL != want.TTL || got.Behavior != want.Behavior ||
			got.LockDelay != want.LockDelay || !slices.Equal(got.NodeChecks, want.NodeChecks) || got.Checks != nil {
			t.Errorf("%s: %+v", x.body, got)
		}
	}
	all := decode[[]session](t, a.do("GET", "/v1/session/list"))
	mine := decode[[]session](t, a.do("GET", "/v1/session/node/"+own+"?stale"))
	if len(all) != 12 || len(mine) != 12 || len(decode[[]session](t, a.do("GET", "/v1/session/node/none"))) != 0 {
		t.Errorf("%d sessions, %d of this node", len(all), len(mine))
	}
}

// Patroni asks for its own TTL, is refused with this status and text, reads the least TTL of the agent, and takes that.
func TestSession_TTLMin(t *testing.T) {
	type self struct{ Config struct{ SessionTTLMin int64 } }
	for _, c := range []struct{ option, least time.Duration }{{0, 10 * time.Second}, {15 * time.Second, 15 * time.Second}, {time.Second, time.Second}} {
		a := serve(t, &consulapi.Options{SessionTTLMin: c.option})
		if got := decode[self](t, a.do("GET", "/v1/agent/self")).Config.SessionTTLMin; got != int64(c.least) {
			t.Errorf("option %v: agent/self shows %d, want %d", c.option, got, c.least)
		}
		a.exchanges([]exchange{
			{"PUT", "/v1/session/create", fmt.Sprintf(`{"TTL":"%dns"}`, c.least-1), 500, fmt.Sprintf("Invalid Session TTL '%d', must be between [%v=24h0m0s]", c.least-1, c.least)},
			{"PUT", "/v1/session/create", fmt.Sprintf(`{"TTL":"%v"}`, c.least), 200, "..."},
		})
	}
}

// Consul's servers hold a session for twice its TTL, and its clients rely on that.
func TestSession_LeaseIsTwiceTheTTL(t *testing.T) {
	a := serve(t, nil)
	for _, c := range []struct {
		written, shown string
		lease          time.Duration
	}{{"10s", "10s", 20 * time.Second}, {"1m", "60s", 2 * time.Minute}, {"12500ms", "12.5s", 25 * time.Second}, {"12h", "43200s", 24 * time.Hour}, {"", "", conclave.NoTTL}} {
		id, err := conclave.ParseSessionID(a.create(`{"TTL":"` + c.written + `"}`))
		grouptest.Must(t, err)
		s, err := a.node.SessionInfo(t.Context(), id)
		grouptest.Must(t, err)
		if shown := a.info(id.String())[0].TTL; s.TTL != c.lease || shown != c.shown {
			t.Errorf("TTL %s: held for %v, shown as %s", c.written, s.TTL, shown)
		}
	}
}

func TestSession_Refused(t *testing.T) {
	a := serve(t, nil)
	const unknown = "adf4238a-882b-9ddc-4a9d-5b6758e4159e"
	bound := grouptest.MustSession(t, a.node, nil).ID().String()
	create := func(body string, status int, want string) exchange {
		return exchange{"PUT", "/v1/session/create", body, status, want}
	}
	a.exchanges([]exchange{
		create(`{"TTL":"9s"}`, 500, "Invalid Session TTL '9000000000', must be between [10s=24h0m0s]"),
		create(`{"TTL":"25h"}`, 500, "Invalid Session TTL '90000000000000', must be between [10s=24h0m0s]"),
		create(`{"TTL":"soon"}`, 500, "Session TTL 'soon' invalid: ..."),
		create(`{"Behavior":"keep"}`, 500, "Invalid Behavior setting 'keep'"),
		create(`{"LockDelay":"soon"}`, 400, "Request decode failed: LockDelay: ..."),
		create(`{"LockDelay":[]}`, 400, "Request decode failed: LockDelay: ..."),
		create(`{"LockDelay":-1}`, 400, "LockDelay: want 0 or more, got -1ns"),
		create(`{"LockDelay":"500us"}`, 400, "LockDelay: want 0 or at least 1ms, got 500µs"),
		create(`{"Node":"none"}`, 400, `Node "none": ...`),
		create(`{"ServiceChecks":[{"ID":"x"}]}`, 400, `field "ServiceChecks" is not supported`),
		create(`{"Namespace":"x"}`, 400, `field "Namespace" is not supported`),
		create(`{"Name":"x","name":"y"}`, 400, `field "name" is there more than once`),
		create(`{"Checks":["none"]}`, 400, "..."),
		create(`{"Checks":["gossip"]}`, 400, `check "gossip" is called "serfHealth" here`),
		create(`{} {}`, 400, "Request decode failed: ..."),
		create(`[]`, 400, "Request decode failed: ..."),
		{"GET", "/v1/session/create", "", 405, "method not allowed"},
		{"GET", "/v1/session/info/" + unknown, "", 200, "[]"},
		{"GET", "/v1/session/info/x", "", 400, "..."},
		{"GET", "/v1/session/info/", "", 400, "Missing session"},
		{"GET", "/v1/session/info/" + unknown + "?index=x", "", 400, "Invalid index"},
		{"PUT", "/v1/session/renew/" + unknown, "", 404, "Session id '" + unknown + "' not found"},
		{"PUT", "/v1/session/renew/" + bound, "", 400, "..."},
		{"PUT", "/v1/session/destroy/" + unknown, "", 200, "true"},
		{"PUT", "/v1/session/destroy/", "", 400, "Missing session"},
		{"GET", "/v1/session/node/", "", 400, "Missing node name"},
	})
	a.exchanges([]exchange{
		{"PUT", "/v1/agent/check/register", `{"Name":"c","TTL":"1h"}`, 200, ""},
		create(`{"Checks":["c"]}`, 500, "Check is in critical state: ..."),
	})
}

// The life of a lock as a client of Consul leads it.
func TestSession_Lock(t *testing.T) {
	a := serve(t, nil)
	first, second := a.create(`{"TTL":"10s","LockDelay":"1m"}`), a.create(`{"TTL":"10s","LockDelay":0,"Behavior":"delete"}`)
	a.exchanges([]exchange{
		{"PUT", "/v1/kv/l?flags=3&acquire=" + first, "a", 200, "true"},
		{"PUT", "/v1/kv/l?acquire=" + second, "b", 200, "false"},
		{"PUT", "/v1/kv/l?release=" + second, "b", 200, "false"},
	})
	held := decode[[]pair](t, a.do("GET", "/v1/kv/l"))[0]
	if held.Session != first || held.LockIndex != 1 || held.Flags != 3 || string(held.Value) != "a" {
		t.Errorf("%+v", held)
	}
	if renewed := decode[[]session](t, a.do("PUT", "/v1/session/renew/"+first)); len(renewed) != 1 || renewed[0].ID != first || renewed[0].TTL != "10s" {
		t.Errorf("%+v", renewed)
	}
	a.exchanges([]exchange{
		{"PUT", "/v1/kv/l?release=" + first, "", 200, "true"},
		{"PUT", "/v1/kv/l?acquire=" + second, "b", 200, "true"},
	})
	index := a.do("GET", "/v1/kv/l").header.Get("X-Consul-Index")
	ended := a.begin(t.Context(), "/v1/kv/l?index="+index)
	a.exchanges([]exchange{{"PUT", "/v1/session/destroy/" + second, "", 200, "true"}})
	if got, err := ended(); err != nil || got.status != 404 {
		t.Error("a session that deletes its keys:", got, err)
	}
	a.exchanges([]exchange{
		{"PUT", "/v1/kv/l?acquire=" + second, "b", 500, fmt.Sprintf("invalid session %q", second)},
		{"PUT", "/v1/kv/l?acquire=" + first, "a", 200, "true"},
		{"PUT", "/v1/session/destroy/" + first, "", 200, "true"},
		{"PUT", "/v1/kv/l?acquire=" + a.create(""), "c", 200, "false"}, // lock-delay
		{"GET", "/v1/kv/l?raw", "", 200, "a"},
	})
}

// A client may renew its session at any agent, and finds it there.
func TestSession_OtherAgent(t *testing.T) {
	g := grouptest.Start(t, 3)
	here, there := serveNode(t, g.Nodes[0], nil), serveNode(t, g.Nodes[1], nil)
	id := here.create(`{"TTL":"10s"}`)
	want := here.info(id)[0]
	if got := decode[[]session](t, there.do("PUT", "/v1/session/renew/"+id)); len(got) != 1 || got[0].Node != want.Node {
		t.Errorf("%+v, want %+v", got, want)
	}
	there.exchanges([]exchange{
		{"PUT", "/v1/kv/l?acquire=" + id, "x", 200, "true"},
		{"PUT", "/v1/session/destroy/" + id, "", 200, "true"},
		{"PUT", "/v1/session/renew/" + id, "", 404, "Session id '" + id + "' not found"},
	})
	if found := here.info(id); len(found) != 0 {
		t.Errorf("%+v", found)
	}
}

// A check that becomes critical ends the sessions that depend on it.
func TestSession_Check(t *testing.T) {
	a := serve(t, nil)
	a.do("PUT", "/v1/agent/check/register", `{"Name":"c","TTL":"1h","Status":"passing"}`)
	older := a.create(`{"Checks":["c"]}`) // a field of before 1.7, in addition to the default of NodeChecks
	if s := a.info(older); len(s) != 1 || !slices.Equal(s[0].NodeChecks, []string{"serfHealth", "c"}) {
		t.Errorf("%+v", s)
	}
	id := a.create(`{"NodeChecks":["serfHealth","c"]}`)
	if s := a.info(id); len(s) != 1 || !slices.Equal(s[0].NodeChecks, []string{"serfHealth", "c"}) {
		t.Errorf("%+v", s)
	}
	a.do("PUT", "/v1/agent/check/fail/c")
	if s := a.info(id); len(s) != 0 {
		t.Errorf("%+v", s)
	}
}

// Without a quorum requests fail after Options.Timeout, and stale reads work.
func TestHandler_NoQuorum(t *testing.T) {
	g := grouptest.Start(t, 3)
	serveNode(t, g.Nodes[0], &consulapi.Options{Timeout: time.Minute}).exchanges([]exchange{{"PUT", "/v1/kv/a", "1", 200, "true"}})
	a := serveNode(t, g.Nodes[0], &consulapi.Options{Timeout: 2 * time.Second})
	g.Kill(1, 2)
	got := a.do("GET", "/v1/kv/a")
	if got.status != 500 || got.body != "No cluster leader" {
		t.Error(got)
	}
	for a.node.Status().Leader != 0 {
		grouptest.Pass(time.Millisecond)
	}
	if got := a.do("GET", "/v1/kv/a?stale&max_stale=1ns&raw"); got.status != 500 {
		t.Errorf("a read of a state that is at most 1 ns old: %d %s", got.status, got.body)
	}
	if got := a.do("GET", "/v1/kv/a?stale&raw"); got.status != 200 || got.body != "1" {
		t.Error(got)
	}
}
