package cluster

import (
	"cmp"
	"context"
	"log/slog"
	"unsafe"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/clients"
	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/crash"
	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/cluster/spread"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

func (m *Member) replicaConfig() replica.Config {
	return replica.Config{
		Log: m.raftLog, Acknowledged: m.roster.Snapshot().Peers, Member: m.identity.Member, Incarnation: m.identity.Incarnation,
		Group: m.cfg.Group, Dir: m.cfg.Dir, Cluster: m.identity.Cluster, Heartbeat: m.cfg.Heartbeat, Election: m.cfg.Election, Logger: m.log,
		MaxCalls: m.cfg.MaxCalls, MaxCallBytes: m.cfg.MaxCallBytes, Received: &m.received, KeepEntries: cmp.Or(m.seams.KeepEntries, m.cfg.keepEntries()), Effects: m.seams.Effects,
		LoadMachine: m.cfg.LoadMachine, Commands: m.cfg.Commands, Callbacks: m.callbacks(), Host: &host{Member: m},
		Lifetime: m.lifetime, Done: m.done, Stopped: m.stopped, Fail: m.fail, Routine: m.routine,
		DiskFailed: m.store.Failed(), DiskError: m.store.Err, MayRemove: m.mayRemove, Snapshots: &m.snapshots,
		Priority: func(id uint64) (int32, bool) { return m.port.LeaderPriority(id) }, // the port is opened later
	}
}

// mayRemove reports whether a member that was removed may leave the default group's configuration. It runs on the loop's
// goroutine.
func (m *Member) mayRemove(id uint64) bool {
	return m.groups.mayRemove(m.core.Machine().Directory(), id)
}

func (m *Member) groupsConfig() groupsConfig {
	return groupsConfig{
		log: m.raftLog, use: m.cfg.UseGroup, firstState: m.cfg.FirstStateOf, self: m.identity.Member, boot: m.identity.Get().GetBoot(), defaults: m.replica,
		replica: func() replica.Config {
			cfg := m.replicaConfig()
			cfg.MayRemove, cfg.Effects, cfg.Budgets = nil, nil, m.budgets
			return cfg
		},
		priority: func(id uint64) (int32, bool) {
			if id == m.identity.Member {
				return m.cfg.LeaderPriority, true
			}
			return m.port.LeaderPriority(id)
		},
		evidence: func() *crash.Evidence { return m.crashes.evidence }, roster: m.roster, peers: func() replica.Peers { return m.port }, addresses: m.memberAddresses,
		detector: func(h *hosted) *failureDetector {
			d := m.failureDetector(h.replica, h.lifetime, h.logger)
			d.group = submitter{h.replica, h}
			return d
		},
		commands: m.cfg.Commands, logger: m.log, lifetime: m.lifetime, routine: m.routine, fail: m.fail, stopped: m.stopped,
	}
}

// failureDetector returns the failure detector for a group.
func (m *Member) failureDetector(of *replica.Replica, lifetime context.Context, log *slog.Logger) *failureDetector {
	return &failureDetector{
		self: m.identity.Member, election: m.cfg.Election, group: of, leadership: of.Leadership, roster: m.roster,
		connected: m.port.Connected, commands: m.cfg.Commands, log: log, lifetime: lifetime,
	}
}

// callbacks returns those of the configuration, and passes on what crashReports needs.
func (m *Member) callbacks() replica.Callbacks {
	c := m.cfg.Callbacks
	changed := c.LeaderChanged
	c.LeaderChanged = func(leader, term uint64) {
		changed(leader, term)
		m.crashes.consider()
	}
	return c
}

// Removals returns this member's part in removals. It is the same one for as long as the member lives.
func (m *Member) Removals() *Removals { return m.removals }

// Groups returns this member's replicas of the further groups. It is the same one for as long as the member lives.
func (m *Member) Groups() *Groups { return m.groups }

// Replica returns this member's replica of the group. It is the same one for as long as the member lives.
func (m *Member) Replica() *replica.Replica { return m.replica }

// startReplica loads the replica's state from the disk and starts its loop.
func (m *Member) startReplica() (err error) {
	if m.core, err = m.replica.Load(m.former.IsFirst()); err != nil {
		return err
	}
	m.clients = clients.New(m.clientsConfig())
	m.membership.deaths = deaths{self: m.identity.Member, changed: m.cfg.LivenessChanged}
	m.membership.begin(m.core, roles{
		self: Peer{ID: m.identity.Member, Name: m.cfg.Name, Addr: m.cfg.Advertise}, log: m.log,
		changed: m.cfg.RoleChanged, redundancyChanged: m.cfg.RedundancyChanged,
	})
	m.crashes.core = m.core
	m.replica.Start(m.port, m.clients)
	detector := m.failureDetector(m.replica, m.lifetime, m.log)
	detector.quorum = new(quorumLog)
	m.routine("failure detector", detector.run)
	m.routine("groups", m.groups.run)
	m.routine("leader spread", func() {
		l := m.leaders
		spread.Run(m.spreading, spread.Config{Self: m.identity.Member, Election: m.cfg.Election, View: l.view, Report: l.report, Transfer: l.transfer})
	})
	m.routine("database size", m.watchSize)
	return nil
}

// group is the replica as the parts of a member use it.
type group interface {
	Status() *replica.Status
	Execute(ctx context.Context, command []byte) (*wire.Reply, error)
	Read(ctx context.Context, run func(Machine)) error
}

// defaultGroup is the replica of the default group as the further ones and backups use it.
type defaultGroup interface {
	group
	ReadStale(ctx context.Context, run func(Machine)) error
	OpenBackup(ctx context.Context, host replica.HostLife) (*replica.Backup, error)
}

// host is what a replica knows of its member.
type host struct {
	*Member
	// The last that were published.
	listed   *fact.Directory
	followed followed
}

// followed is what the further groups follow of the default one.
type followed struct {
	members *fact.MemberRecord // the first of the machine's slice, which is never changed
	n       int
	conf    *raftpb.ConfState
	level   uint32
	config  fact.GroupConfig
}

var _ replica.Host = (*host)(nil)

// Ticked implements replica.Host.
func (h *host) Ticked() {
	h.membership.tick()
	h.crashes.consider()
}

// Published implements replica.Host.
func (h *host) Published(s *replica.Status) {
	if core.Includes(s.Removed, h.identity.Member) {
		h.removals.consider(s)
	}
	if s.Directory != h.listed {
		h.listed = s.Directory
		h.groups.due.Set()
	}
	now := followed{unsafe.SliceData(s.Admitted), len(s.Admitted), s.Conf, s.Level, s.Config}
	if now != h.followed {
		h.followed = now
		h.groups.follow()
	}
}

// MembershipChanged implements replica.Host.
func (h *host) MembershipChanged(conf *raftpb.ConfState) {
	h.membership.change(conf)
	h.groups.listsChanged() // a removed member leaves this group's configuration last
}

// ListsChanged implements replica.Host.
func (h *host) ListsChanged(applied uint64) {
	if h.cfg.ListsChanged != nil {
		h.cfg.ListsChanged(applied)
	}
}

// SaveAcknowledged implements replica.Host.
func (h *host) SaveAcknowledged(member uint64, p core.Position) { h.roster.SetAcknowledged(member, p) }

// listsChanged reports a change of what the roster shows of the members.
func (m *Member) listsChanged() {
	applied := uint64(0)
	if s := m.replica.Status(); s != nil {
		applied = s.Applied
	}
	(&host{Member: m}).ListsChanged(applied)
	m.groups.listsChanged()
}

// Frame implements transport.Handler; it runs on the peer's reader.
func (m *Member) Frame(from uint64, f *wire.Frame) {
	if f.GetGroup() != 0 {
		m.groups.frame(from, f)
		return
	}
	if body := f.GetCrashEvidence(); body != nil {
		m.replica.Enqueue(from, func(*core.Core) { m.crashes.receive(from, body) }, replica.FrameBytes(f))
		return
	}
	if body := f.GetReach(); body != nil {
		m.leaders.receive(from, body)
		return
	}
	if body := f.GetMembership(); body != nil {
		m.membership.vouched(from, body)
		return
	}
	m.replica.Frame(from, f)
}

// Snapshot implements transport.Handler.
func (m *Member) Snapshot(from uint64, r *transport.SnapshotReader) error {
	if r.Header().GetGroup() != 0 {
		return m.groups.snapshot(from, r)
	}
	return m.replica.Snapshot(from, r)
}
