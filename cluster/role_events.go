package cluster

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/roster"
	"github.com/conclave-go/conclave/internal/wire"
)

// RoleEvent is a change of a member's role, derived from two configurations.
type RoleEvent struct {
	Kind   RoleKind
	Member Peer
	By     Peer // of Replaced: the new voter
}

// RoleKind is what happened to a member.
type RoleKind int

const (
	Joined RoleKind = iota + 1
	Promoted
	Demoted
	Replaced
	Removed
)

// String returns the message that is logged.
func (k RoleKind) String() string {
	return []string{"member unchanged", "member joined", "member promoted", "member demoted", "member replaced", "member removed"}[k]
}

// roleEvents returns what has happened from one configuration to the next, by member. A
// joint configuration counts as what it leads to. A voter that is demoted together with the
// promotion of another one is replaced.
func roleEvents(before, after *raftpb.ConfState) (events []RoleEvent) {
	if len(before.GetVoters()) == 0 {
		return nil // this member's first configuration
	}
	var demoted, promoted []uint64
	for _, id := range core.MembersOf(after) {
		was, is := slices.Contains(before.GetVoters(), id), slices.Contains(after.GetVoters(), id)
		switch {
		case !slices.Contains(core.MembersOf(before), id):
			events = append(events, RoleEvent{Kind: Joined, Member: Peer{ID: id}})
			if is {
				promoted = append(promoted, id)
			}
		case is && !was:
			promoted = append(promoted, id)
		case was && !is:
			demoted = append(demoted, id)
		}
	}
	for _, id := range demoted {
		if len(promoted) > 0 {
			events = append(events, RoleEvent{Kind: Replaced, Member: Peer{ID: id}, By: Peer{ID: promoted[0]}})
			promoted = promoted[1:]
			continue
		}
		events = append(events, RoleEvent{Kind: Demoted, Member: Peer{ID: id}})
	}
	for _, id := range promoted {
		events = append(events, RoleEvent{Kind: Promoted, Member: Peer{ID: id}})
	}
	for _, id := range core.MembersOf(before) {
		if !slices.Contains(core.MembersOf(after), id) {
			events = append(events, RoleEvent{Kind: Removed, Member: Peer{ID: id}})
		}
	}
	return events
}

// noteRoles logs and reports the changes of roles, on the loop's goroutine. before is the roster before
// the change: it has the name of a removed member.
func (m *Member) noteRoles(conf *raftpb.ConfState, before *roster.Snapshot) {
	now := m.roster.Snapshot()
	describe := func(id uint64) Peer {
		p := now.Peer(id)
		if p == nil {
			p = before.Peer(id)
		}
		self := id == m.identity.Member
		described := Peer{ID: id, Name: p.GetName(), Addr: p.GetAdvertise(), Alive: now.IsAlive(id) || self}
		if self {
			described.Name, described.Addr = m.cfg.Name, m.cfg.Advertise
		}
		described.Voter = slices.Contains(conf.GetVoters(), id)
		return described
	}
	for _, e := range roleEvents(m.lastConf, conf) {
		attrs := []any{"member", wire.MemberID(e.Member.ID)}
		if e.By.ID != 0 {
			attrs = append(attrs, "by", wire.MemberID(e.By.ID))
		}
		m.log.Info(e.Kind.String(), attrs...)
		if m.cfg.RoleChanged != nil {
			e.Member, e.By = describe(e.Member.ID), describe(e.By.ID)
			m.cfg.RoleChanged(e)
		}
	}
	m.lastConf = conf
}

// noteRedundancy logs and reports a change of the redundancy. It runs in each tick, on the
// loop's goroutine: the failure detector's view changes at any time.
func (m *Member) noteRedundancy() {
	roster := m.roster.Snapshot()
	conf := m.core.Status().Membership
	if len(conf.GetVoters()) == 0 {
		return
	}
	now := redundancy(conf, func(id uint64) bool { return roster.IsAlive(id) || id == m.identity.Member })
	if m.redundancyKnown && now == m.redundancy || !m.redundancyKnown && now < 0 {
		return // at its start, a member has not heard of the others yet
	}
	m.redundancyKnown, m.redundancy = true, now
	m.log.Info("redundancy changed", "redundancy", now)
	if m.cfg.RedundancyChanged != nil {
		m.cfg.RedundancyChanged(now)
	}
}
