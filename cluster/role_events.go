package cluster

import (
	"log/slog"
	"slices"
	"time"

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

// roles logs and reports what happens to the members' roles. It is owned by the replica's loop.
type roles struct {
	self              Peer // its ID, name and address
	log               *slog.Logger
	changed           func(RoleEvent)  // nil: ignored
	redundancyChanged func(voters int) // nil: ignored

	last       *raftpb.ConfState
	redundancy int
	// redundancyKnown is set once redundancy is.
	redundancyKnown bool
	redundancyLog   redundancyLog
}

// note reports the changes of roles up to a configuration. before is the roster before the change: it has the
// name of a removed member.
func (r *roles) note(conf *raftpb.ConfState, before, now *roster.Snapshot) {
	describe := func(id uint64) Peer {
		if id == r.self.ID {
			self := r.self
			self.Alive, self.Voter = true, slices.Contains(conf.GetVoters(), id)
			return self
		}
		p := now.Peer(id)
		if p == nil {
			p = before.Peer(id)
		}
		return Peer{ID: id, Name: p.GetName(), Addr: p.GetAdvertise(), Alive: now.IsAlive(id), Voter: slices.Contains(conf.GetVoters(), id)}
	}
	for _, e := range roleEvents(r.last, conf) {
		attrs := []any{"member", wire.MemberID(e.Member.ID)}
		if e.By.ID != 0 {
			attrs = append(attrs, "by", wire.MemberID(e.By.ID))
		}
		r.log.Info(e.Kind.String(), attrs...)
		if r.changed != nil {
			e.Member, e.By = describe(e.Member.ID), describe(e.By.ID)
			r.changed(e)
		}
	}
	r.last = conf
}

// noteRedundancy reports a change of the redundancy. It runs in each tick: the failure
// detector's view changes at any time.
func (r *roles) noteRedundancy(conf *raftpb.ConfState, seen *roster.Snapshot) {
	if len(conf.GetVoters()) == 0 {
		return
	}
	var down []uint64
	now := redundancy(conf, func(id uint64) bool {
		alive := seen.IsAlive(id) || id == r.self.ID
		if !alive && !slices.Contains(down, id) {
			down = append(down, id)
		}
		return alive
	})
	r.redundancyLog.note(r.log, now, down, time.Now())
	if r.redundancyKnown && now == r.redundancy || !r.redundancyKnown && now < 0 {
		return // at its start, a member has not heard of the others yet
	}
	r.redundancyKnown, r.redundancy = true, now
	if r.redundancyChanged != nil {
		r.redundancyChanged(now)
	}
}
