package cluster

import (
	"context"
	"log/slog"
	"time"

	"github.com/conclave-go/conclave/cluster/roster"
	"github.com/conclave-go/conclave/internal/wire"
)

// connections has the transport maintain a connection to each member that the roster shows. It is used on any goroutine.
type connections struct {
	self      uint64
	heartbeat time.Duration
	roster    *roster.Roster
	port      dialer
	log       *slog.Logger
	lifetime  context.Context
}

// dialer is the transport as connections uses it.
type dialer interface {
	SetPeer(member uint64, addr string)
	RemovePeer(member uint64)
}

// moved notes the address of a member that a dial has reached elsewhere.
func (c *connections) moved(member uint64, advertise, name string) {
	if c.roster.Moved(member, name, advertise) {
		c.log.Info("member has another address", "member", wire.MemberID(member), "name", name, "addr", advertise)
		c.dial(member, advertise)
	}
}

// processAlive notes a process that gossip shows alive, and connects to it if it is a member's.
func (c *connections) processAlive(process string, meta *wire.GossipMeta) {
	if c.roster.ProcessAlive(process, meta) {
		c.dial(meta.GetMember(), meta.GetAdvertise())
	}
}

// connected notes a connection from a member, and its address.
func (c *connections) connected(member uint64, advertise, name string) {
	if c.roster.Connected(member, name, advertise) {
		c.dial(member, advertise)
	}
}

// dial makes the transport maintain a connection to a member. The check afterwards is
// for a member that was removed between the caller's check and SetPeer.
func (c *connections) dial(id uint64, addr string) {
	c.port.SetPeer(id, addr)
	if !c.roster.IsMember(id) {
		c.port.RemovePeer(id)
	}
}

// dialMembers dials every member.
func (c *connections) dialMembers() {
	roster := c.roster.Snapshot()
	for _, p := range roster.Peers {
		if p.GetMember() != c.self && roster.Has(p.GetMember()) {
			c.port.SetPeer(p.GetMember(), p.GetAdvertise())
		}
	}
}

// removalGrace is for how many heartbeats the connections of a removed member stay open,
// so that the change that removes it is sent.
const removalGrace = 2

// disconnect closes the connections of a removed member after removalGrace, or when this member stops.
func (c *connections) disconnect(removed uint64) {
	timer := time.NewTimer(removalGrace * c.heartbeat)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.lifetime.Done():
	}
	if c.roster.IsMember(removed) {
		return // it is one again: it was provisional, and this member's log has it now
	}
	c.port.RemovePeer(removed)
	if p := c.roster.Snapshot().Peer(removed); p != nil && c.roster.IsMember(removed) { // it has just become one
		c.dial(removed, p.GetAdvertise())
	}
}
