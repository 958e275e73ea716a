package cluster

import (
	"fmt"

	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// admit decides on a connection, in either direction, whose other end has proved its key.
// An error refuses it, and its text is sent to the peer.
func (m *Member) admit(p transport.Peer) error {
	if key := m.roster.Key(p.Member); len(key) > 0 && !key.Equal(p.Key) {
		return fmt.Errorf("member %v has another key", wire.MemberID(p.Member)) // with the same fingerprint
	}
	if m.cfg.VerifyPeer != nil {
		if err := m.cfg.VerifyPeer(p); err != nil {
			return err
		}
	}
	return m.replica.Admit(p)
}
