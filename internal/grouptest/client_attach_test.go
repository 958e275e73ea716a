package grouptest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// A client with many places in queues of semaphores with long names goes on with another member.
// The Attach, which has the name once for each place, exceeds a frame.
func TestClient_MemberDiesWithManyLongNamesAwaited(t *testing.T) {
	if !*long {
		t.Skip("2,300 waiters: with -long")
	}
	g := Start(t, 3)
	c := Dial(t, &conclave.ClientConfig{SessionTTL: time.Minute, Limits: conclave.Limits{Calls: 4000}}, g.Nodes...)
	name := strings.Repeat("x", 500)
	const n = 2300
	i := memberOf(g, c)
	other := g.Nodes[(i+1)%3]
	MustAcquire(t, other.Semaphore(name, 1), 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(Bounded(t))
	defer cancel()
	for range n {
		wg.Go(func() { _, _ = c.Semaphore(name, 1).Acquire(ctx, 1) })
	}
	AwaitAcquirers(t, other.Semaphore(name, 1), n)
	g.Kill(i)
	_, err := c.KV().Put(Bounded(t), "k", nil)
	Must(t, err)
}
