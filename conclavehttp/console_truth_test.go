package conclavehttp_test

import (
	"context"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A client is no member, so no failure detector knows whether it is alive. Its name is that of its session.
func TestConsole_ClientIsNotDead(t *testing.T) {
	t.Parallel()
	n, err := conclave.Open(t.Context(), &conclave.Config{HeartbeatInterval: 10 * time.Millisecond})
	grouptest.Must(t, err)
	t.Cleanup(func() { grouptest.Kill(n) })
	c := grouptest.Dial(t, &conclave.ClientConfig{Name: "porter"}, n)
	grouptest.MustLock(t, c.FencedLock("x"))
	waiting := grouptest.StartLock(t, c.FencedLock("x"))
	defer waiting.Cancel()
	_, err = c.Semaphore("s", 2).Acquire(t.Context(), 1)
	grouptest.Must(t, err)
	_, err = c.Election("e").Campaign(t.Context(), nil)
	grouptest.Must(t, err)
	site := serve(t, n, nil)
	for _, show := range []string{"locks", "semaphores", "elections", "sessions"} {
		body := site.page("show", show, "lock", "x")
		want(t, body, c.ID().String())
		want(t, body, "porter", `<em title="client `+c.ID().String()+`">client</em>`)
		wantNot(t, body, "dead<", "dead member", "has left", "<bdi>"+c.ID().String())
	}
}

// What a node that has stopped knew last is not what the group has.
func TestConsole_StoppedNodeShowsNoGroup(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	site := serve(t, n, nil)
	want(t, site.page(), "<b>1 of 1</b>", "add members", "alive")
	grouptest.Must(t, n.Close(context.Background()))
	body := serve(t, n, nil).page() // not up to a second old
	want(t, body, "node is closed", "stopped")
	wantNot(t, body, "more may fail", "of 1<", "add members", "alive<", "★", `class="state lead"`)
}

// A group without a quorum answers no read, which the page shows soon.
func TestConsole_PageWithoutQuorum(t *testing.T) {
	t.Parallel()
	g := grouptest.Start(t, 3)
	n := g.Nodes[g.Leader()]
	site := serve(t, n, nil)
	for _, i := range g.Others(g.Leader()) {
		grouptest.Kill(g.Nodes[i])
	}
	began := time.Now()
	site.page("lock", "x")
	if d := time.Since(began); d > 15*time.Second {
		t.Errorf("the page takes %v", d)
	}
}
