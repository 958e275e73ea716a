package cluster

import (
	"errors"
	"testing"

	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// A member is taken out while its connection, or gossip of it, is on the way
// between being admitted and being noted. It is not dialled for ever after.
func TestWhoIsOutIsNotDialled(t *testing.T) {
	m := start(t, alone(t))
	defer m.Stop()
	const gone = 7
	m.PeerConnected(gone, "127.0.0.1:1", "gone")
	if err := m.port.PeerError(gone); !errors.Is(err, transport.ErrUnknownPeer) {
		t.Errorf("it is dialled after it has connected: %v", err)
	}
	m.reach(&wire.GossipMeta{Member: gone, Boot: 1, Advertise: "127.0.0.1:2"})
	if err := m.port.PeerError(gone); !errors.Is(err, transport.ErrUnknownPeer) {
		t.Errorf("it is dialled after gossip has shown it: %v", err)
	}
}
