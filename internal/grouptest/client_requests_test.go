package grouptest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
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
	_, err := c.KV().Put(Within(t, patience), "k", nil)
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

// Any number of reads at once of one client is answered.
func TestClient_ManyReads(t *testing.T) {
	g := Start(t, 1)
	c := Dial(t, &conclave.ClientConfig{SessionTTL: time.Minute}, g.Nodes...)
	_, err := c.KV().Put(Within(t, patience), "k", nil)
	Must(t, err)
	var wg sync.WaitGroup
	for range 2000 {
		wg.Go(func() {
			if _, err := c.KV().Get(Within(t, patience), "k"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// A listing that is too large for a client is refused, with the error that is documented.
func TestClient_ListTooLarge(t *testing.T) {
	g := Start(t, 1)
	c := Dial(t, &conclave.ClientConfig{SessionTTL: time.Minute}, g.Nodes...)
	value := make([]byte, 512<<10)
	for i := range 129 {
		_, err := g.Nodes[0].KV().Put(Within(t, patience), fmt.Sprint("k/", i), value)
		Must(t, err)
	}
	_, err := c.KV().List(Within(t, patience), "k/")
	WantError(t, err, conclave.ErrTooLarge)
	if keys, err := c.KV().Keys(Within(t, patience), "k/", ""); err != nil || len(keys) != 129 {
		t.Errorf("%d keys, %v", len(keys), err)
	}
	if entries, err := c.KV().List(Within(t, patience), "k/1"); err != nil || len(entries) != 40 || len(entries[0].Value) != len(value) {
		t.Errorf("%d entries, %v", len(entries), err)
	}
	_, err = c.KV().List(Within(t, patience), "\xff")
	WantError(t, err, conclave.ErrInvalid)
}

// A client that asks for large answers and reads none makes its member hold little more than the
// state that it asks for.
func TestClient_AnswersNotRead(t *testing.T) {
	g := Start(t, 1)
	Dial(t, &conclave.ClientConfig{}, g.Nodes...) // the group is at the feature level of clients
	for i := range 128 {
		_, err := g.Nodes[0].KV().Put(Within(t, patience), fmt.Sprint("k/", i), make([]byte, 32<<10))
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
	if grown := heapInUse() - before; grown > 64<<20 {
		t.Errorf("%d answers of 4 MiB that wait take %d MiB", requests, grown>>20)
	}
}

func heapInUse() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
