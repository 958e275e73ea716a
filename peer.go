package conclave

import (
	"crypto/tls"

	"github.com/conclave-go/conclave/internal/remote"
	"github.com/conclave-go/conclave/internal/wire"
)

// Peer is the other end of a connection between two processes of a group, for
// Config.VerifyPeer. Its process has proved that it holds the key of Member.
type Peer struct {
	Member MemberID // the fingerprint of its key
	// Client says that the process is no member, but a client ([Dial]), and Member its ID.
	Client bool
	Name   string // as it states
	Addr   string // host:port that it advertises, as it states
	// TLS is the state of the connection, with the verified certificates; nil:
	// plaintext.
	TLS *tls.ConnectionState
}

func peerOf(p remote.Peer) Peer {
	return Peer{
		Member: MemberID(p.Member), Client: p.Inbound && p.Kind == wire.Kind_CLIENT, Name: p.Name, Addr: p.Advertise, TLS: p.TLS,
	}
}
