package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/forming"
	"github.com/conclave-go/conclave/cluster/gossip"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// Discovery and connections: this file opens the transport and gossip, and passes their
// events to the roster. rejoin.go joins the addresses at which members are missing.

func (m *Member) openPort() error {
	port, err := transport.New(transport.Config{
		Identity: transport.Identity{
			Group:       m.cfg.Group,
			Cluster:     m.identity.Cluster(),
			Member:      m.identity.Member,
			Incarnation: m.identity.Incarnation,
			Boot:        m.identity.Get().GetBoot(),
			Name:        m.cfg.Name,
			Advertise:   m.cfg.Advertise,

			FeatureLevel: m.seams.level(),
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
		Member:       m.isMember,
		Removed:      m.isRemoved,
		Admit:        m.admit,
		OnRefused:    m.refusedBy,
		Boots:        m.roster.Boots(),
		BootChanged:  m.roster.BootChanged,
		Registered:   m.registeredProcess,
		Reconnected:  m.reconnected,
		Moved:        m.moved,
		Durable:      m.replica.Durable,
		Endorsed:     m.endorsed,
		Endorsements: func() []*wire.Endorsement { return m.identity.Get().GetEndorsements() },
		Timing:       m.seams.timing(),

		Client:         func(c *transport.ClientConn) { m.clients.Serve(c) },
		ClientsRefused: m.clientsRefused,
	})
	if err != nil {
		return err
	}
	m.port = port
	m.former = forming.New(m.formingConfig())
	port.Start()
	return nil
}

func (m *Member) formingConfig() forming.Config {
	return forming.Config{
		Expect: m.cfg.Expect, Voters: m.cfg.Voters, Join: m.cfg.Join, Ephemeral: m.cfg.Dir == "", Level: m.seams.level(),
		FirstState: m.cfg.FirstState, Identity: m.identity, Log: m.raftLog, Roster: m.roster, Logger: m.log, Port: m.port,
		Meta: m.meta, Admit: m.admitNewcomer, Routine: m.routine, Lifetime: m.lifetime, Stopped: m.stopped,
	}
}

// Form implements transport.Handler: it answers a process on a FORM connection.
func (m *Member) Form(r *wire.FormRequest) *wire.FormReply { return m.former.Answer(r) }

// moved implements transport.Config.Moved.
func (m *Member) moved(member uint64, advertise, name string) {
	if m.roster.Moved(member, name, advertise) {
		m.log.Info("member has another address", "member", wire.MemberID(member), "name", name, "addr", advertise)
		m.dial(member, advertise)
	}
}

func (m *Member) reconnected(member uint64) {
	m.refusals.remove(member)
	m.removal.changed.Set() // for AwaitLeave
	m.replica.Post(func(c *core.Core) {
		c.Reconnected(member)
		m.sendMembership(member)
	})
}

// pace is the factor by which probes and keep-alives are slowed down, for tests of days
// of virtual time.
func (h Seams) pace() time.Duration { return time.Duration(max(h.Slow, 1)) }

func (h Seams) timing() transport.Timing {
	if h.Slow == 0 {
		return transport.Timing{} // its defaults
	}
	return transport.Timing{KeepAlive: h.pace() * time.Second, KeepAliveTimeout: h.pace() * 5 * time.Second}
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
		_, _, err := m.port.Gossip().FinalAdvertiseAddr("", 0)
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
	m.gossip, err = gossip.New(m.port.Gossip(), m.meta(), m.log, m.seams.pace(), gossip.Events{Alive: m.processAlive, Dead: m.roster.ProcessDead})
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
	}
}

// processAlive notes a process that gossip shows alive, and connects to it if it is a member's.
func (m *Member) processAlive(process string, meta *wire.GossipMeta) {
	if m.roster.ProcessAlive(process, meta) {
		m.dial(meta.GetMember(), meta.GetAdvertise())
	}
}

// dial makes the transport maintain a connection to a member. The check afterwards is
// for a member that was removed between the caller's check and SetPeer.
func (m *Member) dial(id uint64, addr string) {
	m.port.SetPeer(id, addr)
	if !m.isMember(id) {
		m.port.RemovePeer(id)
	}
}

// PeerConnected implements transport.Handler.
func (m *Member) PeerConnected(member uint64, advertise, name string) {
	incarnation, _ := m.port.Connected(member)
	m.replica.Connected(core.Process{Member: member, Boot: m.roster.Boots()[member], Incarnation: incarnation})
	if m.roster.Connected(member, name, advertise) {
		m.dial(member, advertise)
	}
}

// PeerLost implements transport.Handler.
func (m *Member) PeerLost(member uint64) {
	m.roster.Disconnected(member)
	m.replica.PeerLost(member)
}

func (m *Member) isMember(id uint64) bool { return m.roster.Snapshot().Has(id) }

// setMembership sets the roster's members to those in conf, and dials them.
func (m *Member) setMembership(conf *raftpb.ConfState) {
	m.noteMembers(m.core.Machine().Members())
	m.roster.SetMembership(m.withProvisional(conf))
	if len(conf.GetVoters()) > 0 {
		m.forgetFormer()
	}
	roster := m.roster.Snapshot()
	for _, p := range roster.Peers {
		if p.GetMember() != m.identity.Member && roster.Has(p.GetMember()) {
			m.port.SetPeer(p.GetMember(), p.GetAdvertise())
		}
	}
}

// forgetFormer forgets the processes that belong to the group no more, or only seemed to.
func (m *Member) forgetFormer() {
	roster, admitted := m.roster.Snapshot(), m.core.Machine().Members()
	m.roster.Retain(func(id uint64) bool {
		return roster.Has(id) || slices.ContainsFunc(admitted, func(r fact.MemberRecord) bool { return r.ID == id })
	})
}
