package cluster

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// admit decides on a connection, in either direction, whose other end has proved its key.
// An error refuses it, and its text is sent to the peer.
func (m *Member) admit(p transport.Peer) error {
	if key := m.roster.key(p.Member); len(key) > 0 && !key.Equal(p.Key) {
		return fmt.Errorf("member %v has another key", wire.MemberID(p.Member)) // with the same fingerprint
	}
	if m.cfg.VerifyPeer != nil {
		if err := m.verifyPeer(p); err != nil {
			return err
		}
	}
	return m.acknowledged.admit(p)
}

// verifyPeer calls the application's function. A panic in it refuses the connection: it
// runs on a goroutine of the transport, where it would end the process.
func (m *Member) verifyPeer(p transport.Peer) (err error) {
	defer func() {
		if r := recover(); r != nil {
			m.log.Error("panic in VerifyPeer", "member", wire.MemberID(p.Member), "panic", r, "stack", string(debug.Stack()))
			err = errors.New("its VerifyPeer failed")
		}
	}()
	return m.cfg.VerifyPeer(p)
}
