package conclave

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

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

// verifyPeer adapts VerifyPeer to the cluster.
func (c *Config) verifyPeer() func(remote.Peer) error {
	return adaptVerifyPeer(c.VerifyPeer, c.Logger)
}

var errVerifyPeer = errors.New("its VerifyPeer failed")

// adaptVerifyPeer adapts the function for the transport. It runs on a goroutine of its own: a panic
// or runtime.Goexit in it refuses the connection, and ends neither the process nor a goroutine that
// connects.
func adaptVerifyPeer(verify func(Peer) error, log *slog.Logger) func(remote.Peer) error {
	if verify == nil {
		return nil
	}
	return func(p remote.Peer) error {
		decision := make(chan error, 1)
		go func() {
			err := errVerifyPeer
			defer func() {
				if r := recover(); r != nil {
					log.Error("panic in VerifyPeer", "member", MemberID(p.Member), "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
				}
				decision <- err
			}()
			err = verify(Peer{
				Member: MemberID(p.Member), Client: p.Inbound && p.Kind == wire.Kind_CLIENT, Name: p.Name, Addr: p.Advertise, TLS: p.TLS,
			})
		}()
		return <-decision
	}
}
