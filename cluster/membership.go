package cluster

import (
	"crypto/ed25519"
	"log/slog"
	"slices"
	"sync"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/identity"
	"github.com/conclave-go/conclave/cluster/provisional"
	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/cluster/roster"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// membership applies who is a member, by this member's log or provisionally, to what else there is of the others: the
// table of the members, the connections, removals, and what is reported of roles. It is owned by the replica's loop, but
// for endorsed and vouched, which have the loop do the rest.
type membership struct {
	membershipConfig
	roles       roles
	deaths      deaths
	provisional *provisional.Members
	core        *core.Core // set before the loop starts

	mu     sync.Mutex
	stated map[uint64]*wire.Membership // guarded by mu; by member, its last statement that the loop has not received
}

// membershipConfig is what membership needs of its member. What is in it may be used on any goroutine.
type membershipConfig struct {
	identity    *identity.Identity
	meta        func() *wire.GossipMeta // of this member
	roster      *roster.Roster
	connections *connections
	removals    *Removals
	send        func(member uint64, f *wire.Frame) bool
	status      func() *replica.Status
	forget      func(member uint64) // has the replica forget what a removed member has acknowledged
	queue       chan<- func(*core.Core)
	post        func(run func(*core.Core))
	routine     func(name string, run func())
	log         *slog.Logger
}

// begin takes the state that the replica has loaded.
func (m *membership) begin(c *core.Core, r roles) {
	m.core, m.roles = c, r
	m.roles.last = c.Status().Membership
	m.set(m.roles.last)
}

// tick runs at each heartbeat interval.
func (m *membership) tick() {
	conf, seen := m.core.Status().Membership, m.roster.Snapshot()
	m.deaths.note(conf, seen) // first: that a voter is dead explains the redundancy
	m.roles.noteRedundancy(conf, seen)
	m.expireProvisional()
}

// change applies a membership change. It closes the connections of a removed member, which receives
// the confirmation when it connects again.
func (m *membership) change(conf *raftpb.ConfState) {
	var removed []uint64
	known := core.MembersOf(m.withProvisional(conf))
	for _, p := range m.roster.Snapshot().Members {
		if !slices.Contains(known, p.ID) {
			removed = append(removed, p.ID)
		}
	}
	// Before the roster changes: AwaitRemovals reads both.
	recorded := m.core.Machine().Removed() // the others were provisional
	m.removals.applied(removed, recorded)
	before := m.roster.Snapshot()
	m.set(conf)
	for _, id := range removed {
		m.routine("removal", func() { m.connections.disconnect(id) })
		if core.Includes(recorded, id) {
			m.forget(id)
		}
	}
	m.removals.changed.Set()
	m.roles.note(conf, before, m.roster.Snapshot())
}

// set sets the roster's members to those in conf, and dials them.
func (m *membership) set(conf *raftpb.ConfState) {
	m.noteMembers(m.core.Machine().Members())
	m.roster.SetMembership(m.withProvisional(conf))
	if len(conf.GetVoters()) > 0 {
		m.forgetFormer()
	}
	m.connections.dialMembers()
}

// noteMembers records the keys of members that joined, and the addresses of those of which
// none is known.
func (m *membership) noteMembers(records []fact.MemberRecord) {
	known := m.roster.Snapshot().Peers
	for _, r := range records {
		i := slices.IndexFunc(known, func(p *wire.Peer) bool { return p.GetMember() == r.ID })
		if r.ID == m.identity.Member || len(r.Key) != ed25519.PublicKeySize || i >= 0 && len(known[i].GetKey()) > 0 {
			continue
		}
		f := &wire.Founder{Member: r.ID, Name: r.Name, Advertise: r.Advertise, Key: r.Key}
		if i >= 0 {
			f.Name, f.Advertise = known[i].GetName(), known[i].GetAdvertise()
		}
		m.roster.SetFounder(f)
	}
}

// forgetFormer forgets the processes that belong to the group no more, or only seemed to.
func (m *membership) forgetFormer() {
	roster, admitted := m.roster.Snapshot(), m.core.Machine().Members()
	m.roster.Retain(func(id uint64) bool {
		return roster.Has(id) || slices.ContainsFunc(admitted, func(r fact.MemberRecord) bool { return r.ID == id })
	})
}
