package cluster

import (
	"fmt"

	"github.com/conclave-go/conclave/cluster/roster"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// admission decides which connections with members and newcomers are accepted. It is used on any goroutine.
type admission struct {
	roster *roster.Roster
	verify func(transport.Peer) error // Config.VerifyPeer; nil: none is refused
	// acknowledged refuses a member whose log ends before what it has acknowledged.
	acknowledged func(transport.Peer) error
}

// admit decides on a connection, in either direction, whose other end has proved its key.
// An error refuses it, and its text is sent to the peer.
func (a *admission) admit(p transport.Peer) error {
	if key := a.roster.Key(p.Member); len(key) > 0 && !key.Equal(p.Key) {
		return fmt.Errorf("member %v has another key", wire.MemberID(p.Member)) // with the same fingerprint
	}
	if a.verify != nil {
		if err := a.verify(p); err != nil {
			return err
		}
	}
	return a.acknowledged(p)
}
