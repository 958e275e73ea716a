package cluster

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// Clients learn what this member sees of its group when they attach, and again when it changes: the
// members may all have moved, or this one may be partitioned from them, before a client needs
// another one.

// view returns what this member sees of its group now. It runs on the loop's goroutine.
func (m *Member) view(c *core.Core) *wire.GroupView {
	level, _ := c.Machine().Level()
	return &wire.GroupView{Members: m.memberAddresses(), Leaderless: !c.HearsLeader(), Level: level}
}

// memberAddresses returns the addresses at which clients find members.
func (m *Member) memberAddresses() (addresses []string) {
	for _, p := range m.Status().Members {
		if p.Addr != "" && len(addresses) < maxMembersSent && !slices.Contains(addresses, p.Addr) {
			addresses = append(addresses, p.Addr)
		}
	}
	return addresses
}

// sendViews sends the view to the clients that have another one, with each tick.
func (m *Member) sendViews() {
	recent := m.clients.recent
	m.clients.recent = nil
	if len(m.clients.attached) == 0 {
		return
	}
	view := m.view(m.core)
	if m.clients.view == nil || !proto.Equal(view, m.clients.view) {
		m.clients.view = view
		for _, c := range m.clients.attached { // order: the connections are independent of each other
			c.sendView(view)
		}
		return
	}
	for _, c := range recent {
		c.sendView(view)
	}
}

// sendView sends a view to a client that understands it, unless it has an equal one.
func (c *clientConn) sendView(view *wire.GroupView) {
	if c.views && !proto.Equal(view, c.view) {
		c.send(&wire.MemberFrame{Body: &wire.MemberFrame_View{View: view}}, noticeBytes*len(view.GetMembers()))
	}
	c.view = view
}
