package cluster

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// How this member is known to the others, and they to it: the port, gossip and
// the address book.

func (m *Member) openPort() error {
	port, err := transport.New(transport.Config{
		Identity: transport.Identity{
			Group:       m.cfg.Group,
			Cluster:     m.identity.cluster(),
			Member:      m.identity.member,
			Incarnation: m.identity.incarnation,
			Boot:        m.identity.get().GetBoot(),
			Name:        m.cfg.Name,
			Advertise:   m.cfg.Advertise,
		},
		Listener:     m.cfg.Listener,
		Dial:         m.cfg.Dial,
		TLS:          m.cfg.TLS,
		Insecure:     m.cfg.Insecure,
		Handler:      m,
		Logger:       m.log,
		Member:       m.members.has,
		Removed:      m.hasLeft,
		OnRemoved:    m.gone,
		Boots:        m.book.boots(),
		BootAdvanced: m.book.raised,
		Timing:       m.seams.timing(),
	})
	if err != nil {
		return err
	}
	m.port, m.forming.put = port, port.Form
	return nil
}

// pace is how many times more rarely than in production members look after each
// other, for tests that let days pass.
func (h Seams) pace() time.Duration { return time.Duration(max(h.Slow, 1)) }

func (h Seams) timing() transport.Timing {
	if h.Slow == 0 {
		return transport.Timing{} // its defaults
	}
	return transport.Timing{KeepAlive: h.pace() * time.Second, KeepAliveTimeout: h.pace() * 5 * time.Second}
}

func (m *Member) openGossip() (err error) {
	m.port.Start()
	m.gossip, err = newGossip(m.port.Gossip(), m.meta(), m.log, m.seams.pace(), m.heard, m.lost)
	if err == nil {
		m.routine("join", m.join)
	}
	return err
}

// meta is what gossip says of this member.
func (m *Member) meta() *wire.GossipMeta {
	return &wire.GossipMeta{
		Version:   wire.GossipVersion,
		Cluster:   m.identity.get().GetCluster(),
		Member:    m.identity.member,
		Boot:      m.identity.get().GetBoot(),
		Name:      m.cfg.Name,
		Advertise: m.cfg.Advertise,
		Expect:    uint32(m.cfg.Expect),
	}
}

// heard takes what gossip says of a process that is alive.
func (m *Member) heard(meta *wire.GossipMeta) {
	if !m.isPeer(meta) {
		return
	}
	m.reach(meta)
	m.cfg.PresenceChanged()
}

func (m *Member) reach(meta *wire.GossipMeta) {
	if id := meta.GetMember(); m.book.heard(id, meta.GetBoot(), meta.GetName(), meta.GetAdvertise()) {
		m.dial(id, meta.GetAdvertise())
	}
}

// dial has the port keep up a connection to a member. That may have been taken out
// since somebody looked whether it is one, and before the port knew of it.
func (m *Member) dial(id uint64, addr string) {
	m.port.SetPeer(id, addr)
	if !m.members.has(id) {
		m.port.RemovePeer(id)
	}
}

// lost takes note of a process that gossip has declared dead, or that has left.
func (m *Member) lost(meta *wire.GossipMeta) {
	if !m.isPeer(meta) {
		return
	}
	m.parted.add(meta.GetMember(), meta.GetBoot())
	m.cfg.PresenceChanged()
}

// isPeer reports whether gossip speaks of another member of the group: anybody
// may gossip.
func (m *Member) isPeer(meta *wire.GossipMeta) bool {
	id := meta.GetMember()
	return id != m.identity.member && m.members.has(id) && slices.Equal(meta.GetCluster(), m.identity.get().GetCluster())
}

// PeerConnected is told by the port that a member has connected; it has shown
// that it is the member's latest start.
func (m *Member) PeerConnected(member uint64, advertise, name string) {
	m.linked.set(member, true)
	if m.book.met(member, name, advertise) {
		m.dial(member, advertise)
	}
}

// PeerLost is told by the port that a member's connection has broken.
func (m *Member) PeerLost(member uint64) {
	m.linked.set(member, false)
	m.cfg.PresenceChanged()
	m.mailbox.post(event{run: func(c *core.Core) { c.Lost(member) }})
}

// meet opens the port to the members of the group.
func (m *Member) meet(conf *raftpb.ConfState) {
	m.members.set(conf)
	for _, p := range m.book.all() {
		if p.GetMember() != m.identity.member && m.members.has(p.GetMember()) {
			m.port.SetPeer(p.GetMember(), p.GetAdvertise())
		}
	}
	for _, meta := range m.gossip.alive() {
		m.heard(meta) // again, as it was not known then who is a member
	}
}

// The pause between two looks for members that gossip does not show, before
// and after there is a group. Names are looked up anew each time: addresses
// change.
const (
	greetNewcomers = 250 * time.Millisecond
	greetMembers   = 2 * time.Second
)

func (m *Member) join() {
	for {
		m.greet()
		pause := greetMembers
		if m.members.none() {
			pause = greetNewcomers
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-m.lifetime.Done():
			timer.Stop()
			return
		}
	}
}

// greet tells gossip of the addresses where somebody may be whom it does not
// know: those of the configuration, and those of members last seen elsewhere.
func (m *Member) greet() {
	known := make(map[uint64]bool)
	strangers := 0
	for _, meta := range m.gossip.alive() {
		known[meta.GetMember()] = true
		if !m.members.has(meta.GetMember()) {
			strangers++
		}
	}
	missing := false
	var addrs []string
	for _, id := range m.members.all() {
		if !known[id] {
			missing = true
		}
	}
	for _, p := range m.book.all() {
		gone := !m.members.none() && !m.members.has(p.GetMember())
		if !gone && !known[p.GetMember()] && p.GetAdvertise() != m.cfg.Advertise && p.GetAdvertise() != "" {
			addrs = append(addrs, p.GetAdvertise())
		}
	}
	// A member that is to join, not to form, expects nobody, and still has to
	// find somebody besides itself.
	if missing || m.members.none() && strangers < max(m.cfg.Expect, 2) {
		for _, addr := range m.cfg.Join {
			if addr != m.cfg.Advertise {
				addrs = append(addrs, addr)
			}
		}
	}
	for _, addr := range addrs {
		if m.lifetime.Err() != nil {
			return
		}
		if err := m.gossip.join(addr); err != nil {
			m.log.Debug("nobody there", "addr", addr, "error", err)
		}
	}
}
