package grouptest

import (
	"context"
	"net"
	"syscall"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/wire"
)

// WithoutGossip breaks each connection for gossip, so that the members are connected and
// gossip has not seen them yet, as in the first milliseconds of a group. The group needs
// MemoryNetwork.
func WithoutGossip(g *Group) {
	Edit(func(_ int, c *conclave.Config, _ *cluster.Seams) {
		dial := c.Dial
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := dial(ctx, addr)
			return &noGossip{Conn: conn}, err
		}
	})(g)
}

// noGossip is the dialing end of a connection.
type noGossip struct {
	net.Conn
	began bool
}

// Write breaks the connection if the first write is the hello of one for gossip.
func (c *noGossip) Write(b []byte) (int, error) {
	if !c.began {
		c.began = true
		const header = 16 // the magic, and the frame's length and checksum
		hello := new(wire.Hello)
		if len(b) < header || proto.Unmarshal(b[header:], hello) != nil {
			return 0, syscall.EPROTO
		}
		if k := hello.GetKind(); k == wire.Kind_GOSSIP_PACKETS || k == wire.Kind_GOSSIP_STREAM {
			return 0, syscall.ECONNRESET
		}
	}
	return c.Conn.Write(b)
}
