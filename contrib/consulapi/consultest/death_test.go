package consultest

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/conclave-go/conclave/contrib/consulapi"
)

// A session without checks belongs to no member: when the member whose handler created it stops, clients
// go on through another one.
func TestDeath_SessionGoesOnElsewhere(t *testing.T) {
	a := start(t, 3)
	dead := a.group.Leader()
	c, other, third := a.client(dead), a.client((dead+1)%3), a.client((dead+2)%3)
	id := session(t, c, &api.SessionEntry{TTL: "30s"})
	locked(t, newLock(t, c, api.LockOptions{Key: "k", Session: id}))
	_, meta, err := c.KV().Get("k", nil)
	must(t, err)
	pending := make(chan error, 1)
	go func() {
		_, _, err := c.KV().Get("k", (&api.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: 2 * patience}).WithContext(bounded(t)))
		pending <- err
	}()

	a.group.Kill(dead)
	if err := <-pending; !api.IsRetryableError(err) {
		t.Errorf("a pending query: %v, want one that Consul's clients retry", err)
	}
	for name, call := range map[string]func() error{
		"get":     func() error { _, _, err := c.KV().Get("k", nil); return err },
		"put":     func() error { _, err := c.KV().Put(&api.KVPair{Key: "other"}, nil); return err },
		"renew":   func() error { _, _, err := c.Session().Renew(id, nil); return err },
		"session": func() error { _, _, err := c.Session().Create(nil, nil); return err },
	} {
		if err := call(); err == nil {
			t.Errorf("%s succeeded at a stopped member", name)
		}
	}

	e, _, err := other.Session().Renew(id, nil)
	must(t, err)
	if e == nil {
		t.Fatal("the session has ended with the member")
	}
	if pair := get(t, other, "k"); pair.Session != id || pair.LockIndex != 1 {
		t.Errorf("the lock: %+v", pair)
	}
	taker := &api.KVPair{Key: "k", Session: session(t, third, &api.SessionEntry{})}
	if ok, _, err := third.KV().Acquire(taker, nil); ok || err != nil {
		t.Errorf("acquired by another session: %v, %v", ok, err)
	}
	if ok, _, err := other.KV().Release(&api.KVPair{Key: "k", Session: id}, nil); !ok || err != nil {
		t.Errorf("release elsewhere: %v, %v", ok, err)
	}
	if ok, _, err := third.KV().Acquire(taker, nil); !ok || err != nil {
		t.Errorf("acquire after the release: %v, %v", ok, err)
	}

	a.group.Restart(dead)
	back := dial(t, a.serve(consulapi.Handler(a.group.Node(dead), nil)).URL)
	if e, _, err := back.Session().Info(id, nil); err != nil || e == nil {
		t.Errorf("after the restart: session %+v, %v", e, err)
	}
}

// As Consul's, a session with the default check ends with its member.
func TestDeath_DefaultCheckEndsSession(t *testing.T) {
	a := start(t, 3)
	id, _, err := a.client(0).Session().Create(&api.SessionEntry{TTL: "3600s", LockDelay: time.Millisecond}, nil)
	must(t, err)
	locked(t, newLock(t, a.client(0), api.LockOptions{Key: "k", Session: id}))
	a.group.Kill(0)
	change(t, a.client(1), "k", unlocked)
	if e, _, err := a.client(2).Session().Info(id, nil); e != nil || err != nil {
		t.Errorf("session %+v, %v", e, err)
	}
}

// A graceful shutdown of a member ends no session without checks, and pending queries at once.
func TestDeath_GracefulStop(t *testing.T) {
	a := start(t, 3)
	c := a.client(0)
	id := session(t, c, &api.SessionEntry{TTL: "30s"})
	locked(t, newLock(t, c, api.LockOptions{Key: "k", Session: id}))
	_, meta, err := c.KV().List("k", nil)
	must(t, err)
	pending := make(chan error, 1)
	go func() {
		_, _, err := c.KV().List("k", (&api.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: 2 * patience}).WithContext(bounded(t)))
		pending <- err
	}()
	must(t, a.group.Node(0).Close(bounded(t)))
	if err := <-pending; !api.IsRetryableError(err) {
		t.Errorf("a pending query: %v", err)
	}
	if pair := get(t, a.client(1), "k"); pair.Session != id {
		t.Errorf("the lock: %+v", pair)
	}
}

// Without a quorum a call fails in bounded time, with an error that Consul's clients retry; what was held is
// held when the quorum is back.
func TestDeath_NoQuorum(t *testing.T) {
	a := start(t, 3)
	id := session(t, a.client(0), &api.SessionEntry{TTL: "60s"})
	locked(t, newLock(t, a.client(0), api.LockOptions{Key: "k", Session: id, MonitorRetries: 1000, MonitorRetryTime: 50 * time.Millisecond}))
	c := dial(t, a.serve(consulapi.Handler(a.group.Node(0), &consulapi.Options{Timeout: 500 * time.Millisecond})).URL)
	a.group.Kill(1, 2)
	for name, call := range map[string]func() error{
		"get":        func() error { _, _, err := c.KV().Get("k", nil); return err },
		"consistent": func() error { _, _, err := c.KV().Get("k", &api.QueryOptions{RequireConsistent: true}); return err },
		"put":        func() error { _, err := c.KV().Put(&api.KVPair{Key: "other"}, nil); return err },
		"list":       func() error { _, _, err := c.KV().List("", nil); return err },
	} {
		if err := call(); !api.IsRetryableError(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if pair, _, err := c.KV().Get("k", &api.QueryOptions{AllowStale: true}); err != nil || pair == nil || pair.Session != id {
		t.Errorf("stale: %+v, %v", pair, err)
	}
	a.group.Restart(1, 2)
	if pair := get(t, a.client(0), "k"); pair.Session != id || pair.LockIndex != 1 {
		t.Errorf("the lock: %+v", pair)
	}
}

// front is an address for several members, as a load balancer is one.
type front struct{ target atomic.Pointer[target] }

// target is where a front sends its requests.
type target struct {
	proxy   *httputil.ReverseProxy
	blocked chan struct{} // has an element after a blocking query
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to := f.target.Load()
	if r.URL.Query().Has("index") {
		select {
		case to.blocked <- struct{}{}:
		default:
		}
	}
	to.proxy.ServeHTTP(w, r)
}

// to changes the target, and returns a channel with an element after its first blocking query.
func (f *front) to(t *testing.T, server string) <-chan struct{} {
	address, err := url.Parse(server)
	must(t, err)
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(address) }} // and no X-Forwarded-For
	next := &target{forward, make(chan struct{}, 1)}
	f.target.Store(next)
	return next.blocked
}

// With MonitorRetries a lock outlives the member through which it is watched.
func TestDeath_MonitorRetries(t *testing.T) {
	a := start(t, 3)
	f := &front{}
	blocked := f.to(t, a.servers[0].URL)
	c := dial(t, a.serve(f).URL)
	id := session(t, c, &api.SessionEntry{TTL: "30s", LockDelay: time.Millisecond})
	l := newLock(t, c, api.LockOptions{Key: "k", Session: id, MonitorRetries: 10_000, MonitorRetryTime: 50 * time.Millisecond})
	lost := locked(t, l)
	impatient := newLock(t, c, api.LockOptions{Key: "k", Session: id})
	alsoLost := locked(t, impatient)
	await(t, "a monitor blocks", blocked)

	a.group.Kill(0)
	await(t, "without retries the channel closes", alsoLost)
	await(t, "the monitor blocks at the other member", f.to(t, a.servers[1].URL))
	if !open(lost) {
		t.Error("the lock was lost although the session lives")
	}
	_, err := a.client(2).Session().Destroy(id, nil)
	must(t, err)
	await(t, "the monitor follows through the other member", lost)
}
