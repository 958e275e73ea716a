package cluster

import (
	"errors"
	"testing"

	"github.com/conclave-go/conclave/cluster/transport"
)

// A member may be removed while the transport or gossip is about to report it. It is not
// dialled afterwards.
func TestRemoval_RemovedMemberIsNotDialled(t *testing.T) {
	m := start(t, alone(t))
	defer m.Stop()
	const removed = 7
	m.PeerConnected(removed, "127.0.0.1:1", "removed")
	if err := m.port.PeerError(removed); !errors.Is(err, transport.ErrUnknownPeer) {
		t.Errorf("dialled after it has connected: %v", err)
	}
	m.dial(removed, "127.0.0.1:2")
	if err := m.port.PeerError(removed); !errors.Is(err, transport.ErrUnknownPeer) {
		t.Errorf("dialled after gossip has shown it: %v", err)
	}
}

// The only voter cannot leave.
func TestRemoval_LastVoter(t *testing.T) {
	m := start(t, alone(t))
	defer m.Stop()
	if err := m.Read(t.Context(), func(Machine) {}); err != nil { // it leads then
		t.Fatal(err)
	}
	if err := m.CheckLeave(); !errors.Is(err, ErrLastVoter) {
		t.Errorf("CheckLeave: %v", err)
	}
}
