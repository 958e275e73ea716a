package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/crash"
	"github.com/conclave-go/conclave/cluster/forming"
	"github.com/conclave-go/conclave/cluster/gossip"
	"github.com/conclave-go/conclave/cluster/provisional"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// Discovery and connections: this file opens the transport and gossip and assembles what uses
// them. connections.go passes their events to the roster, and rejoin.go joins the addresses at which members are missing.

func (m *Member) openPort() error {
	evidence := crash.NewEvidence(m.evidenceChanged)
	admits := &admission{roster: m.roster, verify: m.cfg.VerifyPeer, acknowledged: m.checkAcknowledged}
	port, err := transport.New(transport.Config{
		Identity: transport.Identity{
			Group:       m.cfg.Group,
			Cluster:     m.identity.Cluster(),
			Member:      m.identity.Member,
			Incarnation: m.identity.Incarnation,
			Boot:        m.identity.Get().GetBoot(),
			Name:        m.cfg.Name,
			Advertise:   m.cfg.Advertise,

			FeatureLevel: m.seams.level(), LeaderPriority: m.cfg.LeaderPriority,
		},
		Key:          m.identity.Key,
		Listener:     m.cfg.Listener,
		Dial:         m.cfg.Dial,
		Calls:        m.cfg.Calls,
		Lookup:       m.seams.Lookup,
		TLS:          m.cfg.TLS,
		Insecure:     m.cfg.Insecure,
		Handler:      m,
		Logger:       m.log,
		Member:       m.roster.IsMember,
		Removed:      func(id uint64) bool { return m.removals.isRemoved(id) },
		Admit:        admits.admit,
		OnRefused:    func(member uint64, r *transport.RefusedError) { m.removals.refusedBy(member, r) },
		Boots:        m.roster.Boots(),
		BootChanged:  m.roster.BootChanged,
		Registered:   m.registeredProcess,
		Crashes:      evidence,
		Reconnected:  m.reconnected,
		Moved:        func(member uint64, advertise, name string) { m.connections.moved(member, advertise, name) },
		Durable:      m.durable,
		Endorsed:     func(p transport.Peer, chain []*wire.Endorsement) { m.membership.endorsed(p, chain) },
		Endorsements: func() []*wire.Endorsement { return m.identity.Get().GetEndorsements() },
		Timing:       m.cfg.timing(m.seams),

		Client:         m.serveClient,
		ClientsRefused: m.clientsRefused,
	})
	if err != nil {
		return err
	}
	m.port = port
	m.assemble()
	m.crashes = &crashReports{crashReportsConfig: crashReportsConfig{
		self: m.identity.Member, boot: m.identity.Get().GetBoot(), evidence: evidence, execute: m.replica.Execute, send: port.Send,
		post: m.replica.Post, commands: m.cfg.Commands, routine: m.routine, log: m.log, lifetime: m.lifetime,
	}}
	m.former = forming.New(m.formingConfig())
	port.Start()
	return nil
}

// evidenceChanged has each replica consider the evidence of crashed processes.
func (m *Member) evidenceChanged() {
	m.replica.Post(func(*core.Core) { m.crashes.consider() })
	m.groups.each(func(h *hosted) { h.replica.Post(func(*core.Core) { h.crashes.consider() }) })
}

// checkAcknowledged refuses a process that has forgotten what its member acknowledged, in any group.
func (m *Member) checkAcknowledged(p transport.Peer) error {
	if err := m.replica.Acknowledged.Admit(p, core.Position{Term: p.Durable.Term, Index: p.Durable.Index}); err != nil {
		return err
	}
	return m.groups.admit(p)
}

// durable returns what the hello reports as durable.
func (m *Member) durable() (d transport.Durable) {
	d.Term, d.Index = m.replica.Acknowledged.Durable()
	m.groups.durable(&d)
	return d
}

// forget forgets what a removed member has acknowledged.
func (m *Member) forget(id uint64) {
	m.replica.Acknowledged.Forget(id)
	m.groups.forget(id)
}

// assemble makes the parts of the member that use the port, before the first connection of which they are notified.
func (m *Member) assemble() {
	m.connections = &connections{
		self: m.identity.Member, heartbeat: m.cfg.Heartbeat, roster: m.roster, port: m.port, log: m.log, lifetime: m.lifetime,
	}
	m.leaders = &leaderSpread{
		groups: m.groups, defaults: m.replica, priority: m.cfg.LeaderPriority, port: m.port, log: m.log, reaches: make(map[uint64]*reach),
	}
	m.removals = newRemovals(removalsConfig{
		self: m.identity.Member, election: m.cfg.Election, heartbeat: m.cfg.Heartbeat, group: m.replica, roster: m.roster,
		peerError: m.port.PeerError, commands: m.cfg.Commands,
		mark:    func() error { return m.identity.Save(func(r *wire.Identity) { r.Removed = true }) },
		routine: m.routine, fail: m.fail, done: m.done, stopped: m.stopped,
	})
	m.membership = &membership{provisional: provisional.New(m.identity.Member), stated: make(map[uint64]*wire.Membership), membershipConfig: membershipConfig{
		identity: m.identity, meta: m.meta, roster: m.roster, connections: m.connections, removals: m.removals, send: m.port.Send,
		status: m.replica.Status, forget: m.forget, queue: m.replica.Queue(), post: m.replica.Post, routine: m.routine, log: m.log,
	}}
	m.newcomers = &newcomers{
		identity: m.identity, meta: m.meta, group: m.replica, roster: m.roster, awaitMembership: m.removals.await,
		commands: m.cfg.Commands, log: m.log, lifetime: m.lifetime,
	}
}

func (m *Member) formingConfig() forming.Config {
	return forming.Config{
		Expect: m.cfg.Expect, Voters: m.cfg.Voters, Join: m.cfg.Join, Ephemeral: m.cfg.Dir == "", Level: m.seams.level(),
		FirstState: m.cfg.FirstState, Identity: m.identity, Log: m.raftLog, Roster: m.roster, Logger: m.log, Port: m.port,
		Meta: m.meta, Admit: m.newcomers.admit, Routine: m.routine, Lifetime: m.lifetime, Stopped: m.stopped,
	}
}

// Form implements transport.Handler: it answers a process on a FORM connection.
func (m *Member) Form(r *wire.FormRequest) *wire.FormReply { return m.former.Answer(r) }

func (m *Member) reconnected(member uint64) {
	m.removals.reconnected(member)
	m.replica.Post(func(c *core.Core) {
		c.Reconnected(member)
		m.membership.sendMembership(member)
	})
	m.groups.each(func(h *hosted) { h.replica.Post(func(c *core.Core) { c.Reconnected(member) }) })
}

// pace is the factor by which probes and keep-alives are slowed down, for tests of days
// of virtual time.
func (h Seams) pace() time.Duration { return time.Duration(max(h.Slow, 1)) }

// gatherShare is the part of a heartbeat interval in which heartbeats of further groups wait for one another.
const gatherShare = 8

func (c *Config) timing(h Seams) transport.Timing {
	t := transport.Timing{Gather: c.Heartbeat / gatherShare}
	if h.Slow != 0 {
		t.KeepAlive, t.KeepAliveTimeout = h.pace()*time.Second, h.pace()*5*time.Second
	}
	return t
}

const (
	// addressRetry is the pause between two lookups of this member's own address.
	addressRetry = time.Second
	// addressReport is the time between two log lines about them.
	addressReport = 10 * time.Second
)

// awaitOwnAddress blocks until the name in Config.Advertise, if it has one, is resolved, as
// gossip spreads an IP address: a name may appear only after its process has started.
func (m *Member) awaitOwnAddress(ctx context.Context) error {
	for reported := time.Now(); ; {
		_, _, err := m.port.Gossip().Advertised()
		if unresolved := (*net.DNSError)(nil); !errors.As(err, &unresolved) {
			return err
		}
		if time.Since(reported) >= addressReport {
			m.log.Warn("waiting for the address of this member", "addr", m.cfg.Advertise, "error", err)
			reported = time.Now()
		}
		retry := time.NewTimer(addressRetry)
		select {
		case <-retry.C:
		case <-ctx.Done():
			retry.Stop()
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-m.lifetime.Done():
			retry.Stop()
			return m.stopped()
		}
	}
}

func (m *Member) openGossip() (err error) {
	m.gossip, err = gossip.New(m.port.Gossip(), m.meta(), m.log, m.seams.pace(), gossip.Events{Alive: m.connections.processAlive, Dead: m.roster.ProcessDead})
	if err == nil {
		rejoin := &rejoining{
			roster: m.roster, advertise: m.cfg.Advertise, addresses: m.cfg.Join, gossip: m.gossip, resolves: m.port.Resolves,
			resolve: m.port.Resolve, failures: new(transport.JoinFailures), log: m.log, lifetime: m.lifetime,
		}
		m.routine("join", rejoin.run)
	}
	return err
}

// meta returns this member's meta data for gossip.
func (m *Member) meta() *wire.GossipMeta {
	return &wire.GossipMeta{
		Version:   wire.GossipVersion,
		Cluster:   m.identity.Get().GetCluster(),
		Member:    m.identity.Member,
		Boot:      m.identity.Get().GetBoot(),
		Name:      m.cfg.Name,
		Advertise: m.cfg.Advertise,
		Expect:    uint32(m.cfg.Expect),
		Voters:    uint32(m.cfg.Voters),
		Key:       m.identity.Public(),

		FeatureLevel: m.seams.level(),
		Build:        m.seams.build(),
	}
}

// PeerConnected implements transport.Handler.
func (m *Member) PeerConnected(member uint64, advertise, name string) {
	incarnation, _ := m.port.Connected(member)
	p := core.Process{Member: member, Boot: m.roster.Boots()[member], Incarnation: incarnation}
	m.replica.Acknowledged.Connected(p)
	m.groups.connected(p)
	m.connections.connected(member, advertise, name)
}

// PeerLost implements transport.Handler.
func (m *Member) PeerLost(member uint64) {
	m.roster.Disconnected(member)
	m.leaders.lost(member)
	m.replica.PeerLost(member)
	m.groups.each(func(h *hosted) { h.replica.PeerLost(member) })
}

// IsMember reports whether a member is in Raft's configuration as far as this member knows.
func (m *Member) IsMember(id uint64) bool { return m.roster.IsMember(id) }
