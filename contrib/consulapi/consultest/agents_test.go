package consultest

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/conclave-go/conclave/conclavetest"
	"github.com/conclave-go/conclave/contrib/consulapi"
)

// patience bounds each wait for an event that must come. An expiry comes later by a full TTL with each change of
// leaders, of which a busy machine has some.
const patience = 3 * time.Minute

// agents are the members of a group, with a handler each: what Consul's clients take for its agents.
type agents struct {
	t       testing.TB
	group   *conclavetest.Group
	servers []*httptest.Server
}

func start(t testing.TB, n int, options ...conclavetest.Option) *agents {
	t.Helper()
	a := &agents{t: t, group: conclavetest.Start(t, n, options...)}
	for i := range n {
		// A client whose request fails while there is no leader reports the loss of its lock.
		a.serve(consulapi.Handler(a.group.Node(i), &consulapi.Options{Timeout: patience}))
	}
	return a
}

// serve starts one more server, and stops it before the group.
func (a *agents) serve(h http.Handler) *httptest.Server {
	ctx, cancel := context.WithCancel(context.Background())
	s := httptest.NewUnstartedServer(h)
	s.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	s.Start()
	a.servers = append(a.servers, s)
	a.t.Cleanup(func() {
		cancel() // ends the blocking queries, for which Close would wait, and those of clients that connect again
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// addr is the address of a member's handler, as host and port.
func (a *agents) addr(i int) string { return strings.TrimPrefix(a.servers[i].URL, "http://") }

// client returns a client of a member's handler.
func (a *agents) client(i int) *api.Client { return dial(a.t, a.addr(i)) }

func dial(t testing.TB, addr string) *api.Client {
	t.Helper()
	cfg := api.DefaultConfig()
	cfg.Address = addr
	c, err := api.NewClient(cfg)
	must(t, err)
	return c
}

// clients returns a client of each member's handler.
func (a *agents) clients() []*api.Client {
	var all []*api.Client
	for i := range a.servers {
		all = append(all, a.client(i))
	}
	return all
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bounded returns a context for calls that must end.
func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// await waits for the end of a channel, which must come.
func await(t testing.TB, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
}

// open reports that a channel is not closed yet.
func open(c <-chan struct{}) bool {
	select {
	case <-c:
		return false
	default:
		return true
	}
}

// session creates a session without checks, so that only its TTL and the test end it.
func session(t testing.TB, c *api.Client, e *api.SessionEntry) string {
	t.Helper()
	if e.TTL == "" {
		e.TTL = "60s"
	}
	id, _, err := c.Session().CreateNoChecks(e, nil)
	must(t, err)
	return id
}

// get reads a key that must exist.
func get(t testing.TB, c *api.Client, key string) *api.KVPair {
	t.Helper()
	pair, _, err := c.KV().Get(key, nil)
	must(t, err)
	if pair == nil {
		t.Fatalf("key %s does not exist", key)
	}
	return pair
}

// change awaits a state of a key by blocking queries, and returns it; the key is nil if it does not exist.
func change(t testing.TB, c *api.Client, key string, wanted func(*api.KVPair) bool) *api.KVPair {
	t.Helper()
	ctx, index := bounded(t), uint64(0)
	for {
		q := (&api.QueryOptions{WaitIndex: index, WaitTime: patience}).WithContext(ctx)
		pair, meta, err := c.KV().Get(key, q)
		must(t, err)
		if wanted(pair) {
			return pair
		}
		if meta.LastIndex == 0 || meta.LastIndex < index {
			t.Fatalf("key %s: index %d after %d", key, meta.LastIndex, index)
		}
		index = meta.LastIndex
	}
}

// unlocked is a state of a key that no session holds.
func unlocked(p *api.KVPair) bool { return p == nil || p.Session == "" }
