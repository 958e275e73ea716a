package browsertest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavehttp"
	"github.com/conclave-go/conclave/conclavetest"
)

// scene is a group of three in which something happens, and a console of its leader.
type scene struct {
	t     *testing.T
	group *conclavetest.Group
	node  *conclave.Node // the leader
	url   string
	// client is a process that is no member, and invoices a lock that others wait for, once the scene is furnished.
	client   conclave.MemberID
	invoices *conclave.FencedLock

	silent atomic.Bool // what the console's stream sends does not arrive
}

// mute is a stream that does not arrive while the scene is silent. Other answers arrive: their lengths are
// announced, and the browser may ask for the icon late.
type mute struct {
	http.ResponseWriter
	scene *scene
}

func (m mute) Unwrap() http.ResponseWriter { return m.ResponseWriter }

func (m mute) Write(p []byte) (int, error) {
	if m.scene.silent.Load() && m.Header().Get("Content-Type") == "text/event-stream" {
		return len(p), nil
	}
	return m.ResponseWriter.Write(p)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// stage forms the group and serves the console below a prefix.
func stage(t *testing.T, opts *conclavehttp.ConsoleOptions) *scene {
	t.Helper()
	names := []string{"anna", "ben", "clara"}
	group := conclavetest.Start(t, 3, conclavetest.Configure(func(i int, c *conclave.Config) {
		c.Name, c.Group, c.SessionTTL = names[i], "shop", 10*time.Second
	}))
	s := &scene{t: t, group: group}
	s.node = group.Node(group.Leader())
	console := conclavehttp.Console(s.node, opts)
	mux := http.NewServeMux()
	mux.Handle("/console/", http.StripPrefix("/console", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		console.ServeHTTP(mute{w, s}, r)
	})))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Cleanup(console.Close) // first
	s.url = server.URL + "/console/"
	return s
}

// other returns a member that does not lead.
func (s *scene) other() *conclave.Node {
	for _, n := range s.group.Nodes() {
		if n != s.node {
			return n
		}
	}
	return nil
}

// lead has a member lead. A busy leader gives a transfer up.
func (s *scene) lead(n *conclave.Node) {
	s.t.Helper()
	for id := n.Status().ID; n.Status().Leader != id; {
		if err := n.TransferLeadership(s.t.Context(), id); !errors.Is(err, conclave.ErrInvalid) {
			must(s.t, err)
		}
	}
}

func (s *scene) lock(n *conclave.Node, name, label string) *conclave.FencedLock {
	s.t.Helper()
	l := n.FencedLock(name, conclave.WithLabel(label))
	_, err := l.Lock(s.t.Context())
	must(s.t, err)
	return l
}

// wait queues for a lock until the test ends, and returns when the group has the request.
func (s *scene) wait(n *conclave.Node, name, label string) {
	s.t.Helper()
	l := n.FencedLock(name, conclave.WithLabel(label))
	info, err := l.Info(s.t.Context())
	must(s.t, err)
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = l.Lock(ctx) // until cancel
	}()
	s.t.Cleanup(func() { cancel(); <-ended })
	for before := info.Waiters; info.Waiters == before; {
		info, err = l.Info(s.t.Context())
		must(s.t, err)
	}
}

// awaitLabels blocks until the group records labels and times, for which it has to know that
// each member can.
func (s *scene) awaitLabels() {
	s.t.Helper()
	for recorded := false; !recorded; {
		l := s.lock(s.node, "probe", "probe")
		e, err := s.node.Explain(s.t.Context(), "probe")
		must(s.t, err)
		recorded = e.Holder.Since >= 0
		must(s.t, l.Unlock(s.t.Context()))
	}
}

// furnish has the group hold what the screenshots show.
func (s *scene) furnish() {
	s.t.Helper()
	ctx, t := s.t.Context(), s.t
	s.awaitLabels()
	s.invoices = s.lock(s.node, "invoices/2026-11", "invoice run 2026-11")
	for i, n := range []*conclave.Node{s.other(), s.other(), s.node} {
		s.wait(n, "invoices/2026-11", fmt.Sprintf("reprint %d", i+1))
	}
	s.lock(s.other(), "backup/nightly", "nightly backup")
	for i := range 120 {
		n := s.group.Node(i % 3)
		s.lock(n, fmt.Sprintf("orders/%04d", 1000+i), fmt.Sprintf("checkout %d", 7000+i*37%900))
	}
	for i := range 3 {
		_, err := s.group.Node(i).Semaphore("render-slots", 8).Acquire(ctx, i+1)
		must(t, err)
	}
	_, err := s.other().Election("scheduler").Campaign(ctx, []byte("10.0.4.7:8443"))
	must(t, err)
	_, err = s.node.RegisterCheck(ctx, "disk", time.Minute)
	must(t, err)
	check, err := s.other().RegisterCheck(ctx, "queue depth", time.Minute)
	must(t, err)
	must(t, check.Warn(ctx))
	s.deadlock()
	s.keys()
	s.porter()
	session, err := s.other().NewSession(ctx, &conclave.SessionConfig{Name: "importer", LockDelay: conclave.NoLockDelay})
	must(t, err)
	_, err = session.FencedLock("import/catalogue").Lock(ctx)
	must(t, err)
	must(t, s.node.CloseSession(ctx, session.ID()))
	<-session.Done()
}

// deadlock has two sessions wait for each other.
func (s *scene) deadlock() {
	ctx, t := s.t.Context(), s.t
	nodes := []*conclave.Node{s.node, s.other()}
	names := []string{"stock/7", "stock/9"}
	labels := []string{"move 7 to 9", "move 9 to 7"}
	var sessions []*conclave.Session
	for i, n := range nodes {
		session, err := n.NewSession(ctx, &conclave.SessionConfig{Name: "warehouse"})
		must(t, err)
		_, err = session.FencedLock(names[i], conclave.WithLabel(labels[i])).Lock(ctx)
		must(t, err)
		sessions = append(sessions, session)
	}
	for i, session := range sessions {
		l := session.FencedLock(names[1-i], conclave.WithLabel(labels[i]))
		go func() { _, _ = l.Lock(ctx) }() // until the test ends
	}
}

// keys has the group store keys: text, bytes, folders, and one that a session has locked.
func (s *scene) keys() {
	s.t.Helper()
	ctx, t := s.t.Context(), s.t
	for key, value := range map[string]string{
		"config/checkout.json": `{"currency": "EUR", "retries": 3}`, "config/flags/new-search": "on", "config/flags/dark-mode": "off",
		"config/motd": "Deliveries are late today. " + strings.Repeat("Please be patient. ", 30), "config/logo.png": "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + strings.Repeat("\x00", 900),
		"config/empty": "", "carts/4711": "2 items", "carts/4712": "1 item",
	} {
		_, err := s.node.KV().Put(ctx, key, []byte(value))
		must(t, err)
	}
	session, err := s.other().NewSession(ctx, &conclave.SessionConfig{Name: "deployer"})
	must(t, err)
	_, err = s.node.KV().Acquire(ctx, "config/rollout", []byte("v1.4.2 to 20 %"), session.ID())
	must(t, err)
}

// works has processes share the shards of a set, and run jobs, of which one has failed and one is under way.
func (s *scene) works(name string) {
	s.t.Helper()
	ctx, t := s.t.Context(), s.t
	begun, end := make(chan struct{}, 13), make(chan struct{})
	var works sync.WaitGroup
	t.Cleanup(func() { close(end); works.Wait() })
	session, err := s.other().NewSession(ctx, &conclave.SessionConfig{Name: name})
	must(t, err)
	works.Go(func() {
		_ = session.Shards("orders/"+name, 12).Run(ctx, func(context.Context, int, conclave.Fence) error {
			begun <- struct{}{}
			<-end
			return nil
		})
	})
	once := func(key string, f func(context.Context, conclave.Fence) error) error {
		return s.other().Job("reports/"+name).Once(ctx, key, f)
	}
	must(t, once("2026-11-25T02:00Z", func(context.Context, conclave.Fence) error { return nil }))
	_ = once("2026-11-26T02:00Z", func(context.Context, conclave.Fence) error { return errors.New("no paper in " + name) })
	works.Go(func() {
		_ = once(name, func(context.Context, conclave.Fence) error {
			begun <- struct{}{}
			<-end
			return nil
		})
	})
	for range 13 {
		<-begun
	}
}

// porter is a client that holds and waits.
func (s *scene) porter() {
	s.t.Helper()
	ctx, t := s.t.Context(), s.t
	c, err := conclave.Dial(ctx, &conclave.ClientConfig{
		Addresses: []string{s.node.Addr()}, Group: "shop", Name: "porter", Insecure: true,
	})
	must(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	_, err = c.FencedLock("gates/7", conclave.WithLabel("unloading")).Lock(ctx)
	must(t, err)
	_, err = c.Semaphore("render-slots", 8).Acquire(ctx, 1)
	must(t, err)
	_, err = c.Election("foreman").Campaign(ctx, []byte("gate 7"))
	must(t, err)
	s.client = c.ID()
	s.wait(s.node, "gates/7", "next truck")
}

// work locks and unlocks until the test ends.
func (s *scene) work() {
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan struct{})
	l := s.node.FencedLock("counter")
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if _, err := l.Lock(ctx); err == nil {
				_ = l.Unlock(ctx)
			}
		}
	}()
	s.t.Cleanup(func() { cancel(); <-ended })
}
