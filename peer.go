package conclave

import "crypto/tls"

// Peer is the other end of a connection between two processes of a group, for
// Config.VerifyPeer. Its process has proved that it holds the key of Member.
type Peer struct {
	Member MemberID // the fingerprint of its key
	Name   string   // as it states
	Addr   string   // host:port that it advertises, as it states
	// TLS is the state of the connection, with the verified certificates; nil:
	// plaintext.
	TLS *tls.ConnectionState
}

// verifyPeer adapts VerifyPeer to the cluster.
func (c *Config) verifyPeer() func(member uint64, name, addr string, state *tls.ConnectionState) error {
	if c.VerifyPeer == nil {
		return nil
	}
	return func(member uint64, name, addr string, state *tls.ConnectionState) error {
		return c.VerifyPeer(Peer{Member: MemberID(member), Name: name, Addr: addr, TLS: state})
	}
}
