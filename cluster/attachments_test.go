package cluster

import (
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// Clients with as much to be looked up as there may be, which all wait for the same entry, are
// attached a few at a time.
func TestLoop_ServesMembersBetweenAttachments(t *testing.T) {
	const n = 300
	var slow sync.Once
	var m *Member
	attached, served := 0, make(chan int, 1)
	m = serving(t, func(Machine, wire.ID) (wire.ID, bool) {
		attached++
		slow.Do(func() { m.replica.Queue() <- func(*core.Core) { served <- attached } })
		for began := time.Now(); time.Since(began) < time.Millisecond; { // many sessions
		}
		return wire.ID{}, false
	})
	entry := m.Status().Applied + 100 // more than follow by themselves
	for range n {
		c := dialMember(t, m)
		c.Send(&wire.ClientFrame{Body: &wire.ClientFrame_Attach{Attach: &wire.Attach{Applied: entry, Sessions: [][]byte{make([]byte, 16)}}}}, 0)
	}
	awaitOnLoop(t, m, func() bool { _, attaching := m.clients.Count(); return attaching == n })
	command, err := wire.EncodeCommand(&wire.Command{Op: &wire.Command_Renew{Renew: new(wire.Renew)}})
	if err != nil {
		t.Fatal(err)
	}
	for m.Status().Applied < entry {
		if _, err := m.replica.Execute(t.Context(), command); err != nil {
			t.Fatal(err)
		}
	}
	if after := <-served; after > n/4 {
		t.Errorf("a member was served after %d of %d clients were attached", after, n)
	}
	awaitOnLoop(t, m, func() bool { _, attaching := m.clients.Count(); return attaching == 0 })
	if attached != n {
		t.Errorf("%d of %d clients were attached", attached, n)
	}
}
