package grouptest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/hostile"
	"github.com/conclave-go/conclave/internal/wire"
)

// A watch of a client that is one too many ends with ErrBusy. The client keeps its connection,
// its hold and its other watches.
func TestClient_TooManyWatches(t *testing.T) {
	g := Start(t, 1)
	c := Dial(t, &conclave.ClientConfig{SessionTTL: time.Minute}, g.Nodes...)
	lock := c.FencedLock("x")
	fence := MustLock(t, lock)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const watches = 400
	ended, changes := make(chan error, watches), make(chan string, watches)
	var wg sync.WaitGroup
	for range watches {
		wg.Go(func() {
			for e, err := range c.KV().Watch(ctx, "k", 0) {
				if err != nil {
					ended <- err
					return
				}
				changes <- e.Entry.Key
			}
		})
	}
	const most = 128
	for range watches - most {
		WantError(t, <-ended, conclave.ErrBusy)
	}
	_, err := c.KV().Put(Bounded(t), "k", nil)
	Must(t, err)
	for range most {
		<-changes
	}
	if f, err := lock.Fence(); f != fence || err != nil {
		t.Errorf("fence %v, %v; want %v", f, err, fence)
	}
	cancel()
	wg.Wait()
	close(ended)
	for err := range ended {
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// Whatever fails of what a client asks, the connection that its sessions need as well stays.
func TestClient_FailedRequestsKeepConnection(t *testing.T) {
	g := Start(t, 1)
	var dials atomic.Int64
	c := Dial(t, &conclave.ClientConfig{SessionTTL: time.Minute, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		dials.Add(1)
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}}, g.Nodes...)
	kv, ctx := c.KV(), Bounded(t)
	entry, err := kv.Put(ctx, "k", nil)
	Must(t, err)
	before := dials.Load()
	watch := func(ctx context.Context, prefix string, after uint64) error {
		for _, err := range kv.Watch(ctx, prefix, after) {
			return err
		}
		return nil
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	long := strings.Repeat("x", 2<<20)
	for name, request := range map[string]func() error{
		"a prefix that ends within a character": func() error { _, err := kv.List(ctx, "caf\xc3"); return err },
		"a prefix that is too long":             func() error { _, err := kv.List(ctx, long); return err },
		"a key that is too long":                func() error { _, err := kv.Get(ctx, long); return err },
		"a lock's name that is too long":        func() error { _, err := c.FencedLock(long).Info(ctx); return err },
		"an observer of a long name": func() error {
			for _, err := range c.Election(long).Observe(Within(t, time.Second)) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"a watch of a long prefix":      func() error { return watch(Within(t, time.Second), long, 0) },
		"a watch that ends by its ctx":  func() error { return watch(Within(t, 50*time.Millisecond), "none/", entry.ModifyIndex) },
		"a value that is too large":     func() error { _, err := kv.Put(ctx, "k", []byte(long)); return err },
		"a backup without a reader":     func() error { return c.Backup(ctx, failingWriter{}) },
		"a member that is none":         func() error { return c.RemoveMember(ctx, 12345) },
		"a session that is none":        func() error { return c.CloseSession(ctx, conclave.SessionID{1}) },
		"a call whose ctx has ended":    func() error { _, err := kv.Get(ended, "k"); return err },
		"leadership for no member":      func() error { return c.TransferLeadership(ctx, 12345) },
		"an explanation of a long name": func() error { _, err := c.Explain(ctx, long); return err },
	} {
		if err := request(); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := kv.Get(ctx, "k"); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
		if n := dials.Load() - before; n > 0 {
			t.Fatalf("%s: %d further connections", name, n)
		}
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("no room") }

// Any number of reads at once of one client is answered.
func TestClient_ManyReads(t *testing.T) {
	g := Start(t, 1)
	c := Dial(t, &conclave.ClientConfig{SessionTTL: time.Minute}, g.Nodes...)
	_, err := c.KV().Put(Bounded(t), "k", nil)
	Must(t, err)
	var wg sync.WaitGroup
	for range 2000 {
		wg.Go(func() {
			if _, err := c.KV().Get(Bounded(t), "k"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// A listing that is too large for a client is refused, with the error that is documented.
func TestClient_ListTooLarge(t *testing.T) {
	skipIfShort(t)
	g := Start(t, 1)
	c := Dial(t, &conclave.ClientConfig{SessionTTL: time.Minute}, g.Nodes...)
	value := make([]byte, 512<<10)
	for i := range 129 {
		_, err := g.Nodes[0].KV().Put(Bounded(t), fmt.Sprint("k/", i), value)
		Must(t, err)
	}
	_, err := c.KV().List(Bounded(t), "k/")
	WantError(t, err, conclave.ErrTooLarge)
	if keys, err := c.KV().Keys(Bounded(t), "k/", ""); err != nil || len(keys) != 129 {
		t.Errorf("%d keys, %v", len(keys), err)
	}
	if entries, err := c.KV().List(Bounded(t), "k/1"); err != nil || len(entries) != 40 || len(entries[0].Value) != len(value) {
		t.Errorf("%d entries, %v", len(entries), err)
	}
	_, err = c.KV().List(Bounded(t), "\xff")
	WantError(t, err, conclave.ErrInvalid)
}

// A client that asks for large answers and reads none makes its member hold little more than the
// state that it asks for.
func TestClient_AnswersNotRead(t *testing.T) {
	g := Start(t, 1, keepConnections)
	Dial(t, &conclave.ClientConfig{}, g.Nodes...) // the group is at the feature level of clients
	for i := range 128 {
		_, err := g.Nodes[0].KV().Put(Bounded(t), fmt.Sprint("k/", i), make([]byte, 32<<10))
		Must(t, err)
	}
	key := hostile.NewKey()
	conn, refusal, err := hostile.Connect(g.Nodes[0].Addr(), key, hostile.ClientHello(key, "conclave"))
	if err != nil || refusal != "" {
		t.Fatal(refusal, err)
	}
	defer conn.Close()
	Must(t, conn.SendMessage(&wire.ClientFrame{Body: &wire.ClientFrame_Attach{Attach: &wire.Attach{}}}))
	before := heapInUse()
	const requests = 100
	for id := range uint64(requests) {
		r := &wire.Request{Id: id, Kind: "keys", Body: []byte(`{"Prefix":"k/"}`)}
		Must(t, conn.SendMessage(&wire.ClientFrame{Body: &wire.ClientFrame_Request{Request: r}}))
	}
	Pass(time.Second)
	g.wantHeap(before, 64<<20, "answers of 4 MiB that wait")
}

// keepConnections has members keep a connection on which nothing arrives and nothing is read, for longer
// than a test takes.
func keepConnections(g *Group) {
	Edit(func(_ int, _ *conclave.Config, s *cluster.Seams) { s.Slow = 100 })(g)
}

// wantHeap requires that the heap comes to at most so many bytes above what it was, once the members have
// done their work: what they work on counts as well. The group has to keepConnections, or the members
// disconnect the clients meanwhile and hold nothing for them.
func (g *Group) wantHeap(before, limit int, what string) {
	g.T.Helper()
	var grown int
	if !g.poll(g.patience, func() bool { grown = heapInUse() - before; return grown <= limit }) {
		g.T.Errorf("%s: the heap has grown by %d MiB", what, grown>>20)
	}
}

func heapInUse() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
