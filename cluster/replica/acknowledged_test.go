package replica

import (
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// A digest proves that its sender has applied what is committed here, and nothing beyond:
// a member that reports a false index could otherwise never be started again.
func TestAcknowledged_IndexOfDigestIsBounded(t *testing.T) {
	r := start(t, alone())
	const peer = 7
	r.Acknowledged.Connected(core.Process{Member: peer, Boot: 1, Incarnation: wire.ID{1}})
	r.Frame(peer, &wire.Frame{Body: &wire.Frame_Digest{Digest: &wire.Digest{Index: 1 << 40}}})
	committed := make(chan uint64, 1)
	r.Enqueue(peer, func(c *core.Core) { committed <- c.Status().Commit }, 1) // after the digest
	var index uint64
	select {
	case index = <-committed:
	case <-time.After(5 * time.Minute):
		t.Fatal("the digest is not received")
	}
	later := transport.Peer{Member: peer, Boot: 2, Incarnation: wire.ID{2}}
	if err := r.Acknowledged.Admit(later, core.Position{Term: 1, Index: index}); err != nil {
		t.Errorf("with all that is committed: %v", err)
	}
	if err := r.Acknowledged.Admit(later, core.Position{Term: 1}); err == nil {
		t.Error("admitted without what its digest has proved")
	}
}
