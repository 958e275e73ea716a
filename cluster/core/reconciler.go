package core

import (
	"cmp"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
)

// The reconciler decides what Raft's configuration should be. Its decision is a function of
// facts that every leader has: the machine's members, which of them were removed or are
// silent, and the group's settings; Raft's configuration; and which members are active and
// up to date. So each leader continues what another one has begun.
//
// In the order of its steps it
//
//  1. leaves a joint configuration, if the leader votes afterwards;
//  2. replaces a removed voter by a standby, in one joint change (Raft dissertation §4.3), or
//     demotes it;
//  3. removes a removed standby;
//  4. adds an admitted member as a standby;
//  5. replaces a voter that has been silent for ReplaceAfter by a standby, in one joint change;
//  6. promotes standbys while voters are too few, to an odd number of voters;
//  7. demotes voters while they are too many.
//
// It proposes one change at a time, each when the one before is settled (commit_notice.go),
// and only if a majority of the voters after it is active. It demotes no healthy voter only
// to have an odd number: what two voters acknowledge is on two disks.

// facts is what the reconciler decides on.
type facts struct {
	self    uint64
	conf    *raftpb.ConfState
	removed []uint64
	members []wire.MemberRecord // not removed
	config  wire.GroupConfig
	now     int64                // group time
	active  func(id uint64) bool // the leader has heard it lately
	current func(id uint64) bool // its log is nearly the leader's
	heard   func(id uint64) bool // a removed standby may be removed from the configuration
	early   bool                 // the leader has led for so short a time that not all members have answered
}

// Plan is the reconciler's decision.
type Plan struct {
	// Changes is the membership change to propose, in one entry. Several are a joint
	// change.
	Changes  []Change
	Leave    bool   // leave the joint configuration
	Transfer bool   // leadership must be transferred first
	Reason   string // for people: what is done, or what is waited for; "": nothing is to be done
}

// Change is a part of a membership change.
type Change struct {
	Member uint64
	Kind   ChangeKind
}

// ChangeKind is what happens to a member.
type ChangeKind int

const (
	AddStandby ChangeKind = iota + 1
	Promote
	Demote
	Remove
)

func (k ChangeKind) String() string {
	return []string{"no change", "add", "promote", "demote", "remove"}[k]
}

// String returns the change as it is logged.
func (c Change) String() string { return fmt.Sprintf("%v %v", c.Kind, wire.MemberID(c.Member)) }

// raft returns the change as raft has it.
func (c Change) raft() *raftpb.ConfChangeSingle {
	kind := map[ChangeKind]raftpb.ConfChangeType{
		AddStandby: raftpb.ConfChangeAddLearnerNode, Demote: raftpb.ConfChangeAddLearnerNode,
		Promote: raftpb.ConfChangeAddNode, Remove: raftpb.ConfChangeRemoveNode,
	}[c.Kind]
	return &raftpb.ConfChangeSingle{Type: kind.Enum(), NodeId: &c.Member}
}

// decide returns the next step.
func decide(f *facts) Plan {
	switch {
	case len(f.conf.GetVotersOutgoing()) == 0:
	case !slices.Contains(f.conf.GetVoters(), f.self):
		// It was elected by the joint configuration, which demotes it. It would step down
		// when it has applied that, as the only member that knows of the commit.
		return Plan{Transfer: true, Reason: "transferring leadership to a voter that remains, to leave the joint configuration"}
	default:
		return Plan{Leave: true, Reason: "leaving the joint configuration"}
	}
	waits := ""
	for _, step := range []func(*facts) Plan{
		(*facts).removeVoter, (*facts).removeStandby, (*facts).addStandby,
		(*facts).replaceSilent, (*facts).promote, (*facts).demote,
	} {
		p := step(f)
		if len(p.Changes) > 0 || p.Transfer {
			return p
		}
		waits = cmp.Or(waits, p.Reason)
	}
	return Plan{Reason: waits}
}

// removeVoter replaces or demotes a voter that was removed from the group.
func (f *facts) removeVoter() Plan {
	var others []uint64
	leads := false
	for _, id := range f.conf.GetVoters() {
		switch {
		case !Includes(f.removed, id):
		case id == f.self:
			leads = true
		default:
			others = append(others, id)
		}
	}
	standbys := f.standbys()
	if leads {
		// Its successor removes it, and must be a voter before. Without one the steps below
		// go on: they may bring one.
		switch {
		case slices.ContainsFunc(f.staying(), func(id uint64) bool { return f.active(id) || !f.silent(id) }):
			return Plan{Transfer: true, Reason: "transferring leadership, as the leader leaves"}
		case len(standbys) > 0 && len(others) > 0:
			return f.swap(others[0], standbys[0], "which leaves")
		case len(standbys) > 0:
			return f.propose(fmt.Sprintf("promoting %v to succeed the leader, which leaves", wire.MemberID(standbys[0])), Change{standbys[0], Promote})
		}
		return Plan{Reason: "the leader leaves: waiting for a member that can succeed it"}
	}
	for _, id := range others {
		if len(f.staying()) < int(f.config.Voters) {
			switch {
			case len(standbys) > 0:
				return f.swap(id, standbys[0], "which leaves")
			case f.early && slices.ContainsFunc(f.members, f.mayBeReady):
				return Plan{Reason: fmt.Sprintf("replacing %v, which leaves: waiting for the answer of a standby", wire.MemberID(id))}
			}
		}
		if p := f.propose(fmt.Sprintf("demoting %v, which leaves", wire.MemberID(id)), Change{id, Demote}); len(p.Changes) > 0 || len(others) == 1 {
			return p
		}
	}
	return Plan{}
}

func (f *facts) removeStandby() Plan {
	for _, id := range f.conf.GetLearners() {
		if Includes(f.removed, id) {
			if !f.heard(id) {
				return Plan{Reason: fmt.Sprintf("waiting until %v knows that it is removed", wire.MemberID(id))}
			}
			return Plan{Changes: []Change{{id, Remove}}, Reason: fmt.Sprintf("removing %v", wire.MemberID(id))}
		}
	}
	return Plan{}
}

// addStandby adds a member that was admitted.
func (f *facts) addStandby() Plan {
	for _, m := range f.members {
		if !slices.Contains(f.conf.GetVoters(), m.ID) && !slices.Contains(f.conf.GetLearners(), m.ID) {
			return Plan{Changes: []Change{{m.ID, AddStandby}}, Reason: fmt.Sprintf("adding %v as a standby", wire.MemberID(m.ID))}
		}
	}
	return Plan{}
}

// replaceSilent replaces a voter that has been silent for ReplaceAfter.
func (f *facts) replaceSilent() Plan {
	reason := ""
	for _, id := range f.staying() {
		if !f.silent(id) || id == f.self || f.config.ReplaceAfter == 0 {
			continue
		}
		left := f.record(id).Since + f.config.ReplaceAfter - f.now
		standbys := f.standbys()
		switch {
		case left > 0:
			reason = cmp.Or(reason, fmt.Sprintf("replacing %v, which is silent, when ReplaceAfter has passed", wire.MemberID(id)))
		case len(standbys) == 0:
			reason = cmp.Or(reason, fmt.Sprintf("%v is silent, and no standby is up to date to replace it: start another member", wire.MemberID(id)))
		default:
			return f.swap(id, standbys[0], "which is silent")
		}
	}
	return Plan{Reason: reason}
}

// promote promotes one standby if the number of voters is even, and two if it is odd.
func (f *facts) promote() Plan {
	voters, standbys := len(f.staying()), f.standbys()
	need := 1 + voters%2
	if voters+1 > int(f.config.Voters) {
		return Plan{}
	}
	need = min(need, int(f.config.Voters)-voters)
	if voters%2 == 1 && voters+2 > int(f.config.Voters) {
		return Plan{}
	}
	if len(standbys) < need {
		return Plan{Reason: fmt.Sprintf("%d of %d voters, waiting for %d more standbys that are up to date", voters, f.config.Voters, need-len(standbys))}
	}
	var changes []Change
	for _, id := range standbys[:need] {
		changes = append(changes, Change{id, Promote})
	}
	return f.propose(fmt.Sprintf("promoting %v", memberIDs(standbys[:need])), changes...)
}

// demote demotes the voters that are too many: silent ones first, then those with the
// highest IDs, never the leader.
func (f *facts) demote() Plan {
	staying := f.staying()
	extra := len(staying) - int(f.config.Voters)
	if extra <= 0 || f.config.Voters == 0 { // 0: not set yet
		return Plan{}
	}
	silent := func(id uint64) int {
		if f.silent(id) {
			return 1
		}
		return 0
	}
	slices.SortFunc(staying, func(a, b uint64) int { return cmp.Or(silent(b)-silent(a), cmp.Compare(b, a)) })
	staying = slices.DeleteFunc(staying, func(id uint64) bool { return id == f.self })
	n := min(extra, 1+len(f.conf.GetVoters())%2) // an odd number remains
	var changes []Change
	for _, id := range staying[:min(n, len(staying))] {
		changes = append(changes, Change{id, Demote})
	}
	return f.propose(fmt.Sprintf("demoting %v, %d voters are too many", memberIDs(staying[:len(changes)]), len(f.conf.GetVoters())), changes...)
}

// swap replaces a voter by a standby in one joint change.
func (f *facts) swap(out, in uint64, why string) Plan {
	return f.propose(fmt.Sprintf("replacing %v, %s, by %v", wire.MemberID(out), why, wire.MemberID(in)), Change{in, Promote}, Change{out, Demote})
}

// propose returns the change, or what it waits for: of the voters after it, a majority must
// be active.
func (f *facts) propose(reason string, changes ...Change) Plan {
	voters := slices.Clone(f.conf.GetVoters())
	for _, c := range changes {
		voters = slices.DeleteFunc(voters, func(id uint64) bool { return id == c.Member })
		if c.Kind == Promote {
			voters = append(voters, c.Member)
		}
	}
	active := 0
	for _, id := range voters {
		if f.active(id) {
			active++
		}
	}
	if active <= len(voters)/2 {
		return Plan{Reason: fmt.Sprintf("%s: waiting for a majority of the voters that remain", reason)}
	}
	return Plan{Changes: changes, Reason: reason}
}

// staying returns the voters that were not removed.
func (f *facts) staying() []uint64 {
	return slices.DeleteFunc(slices.Clone(f.conf.GetVoters()), func(id uint64) bool { return Includes(f.removed, id) })
}

// silent reports whether the group has recorded that a member is silent. Of a founder that has
// never registered there is no record: it is silent while it is not active.
func (f *facts) silent(id uint64) bool {
	m := f.record(id)
	return m.Silent || m.ID == 0 && !f.active(id)
}

// record returns what the group has recorded of a member; zero: nothing.
func (f *facts) record(id uint64) wire.MemberRecord {
	if i := slices.IndexFunc(f.members, func(m wire.MemberRecord) bool { return m.ID == id }); i >= 0 {
		return f.members[i]
	}
	return wire.MemberRecord{}
}

// mayBeReady reports whether a member is a standby that can be promoted if it answers.
func (f *facts) mayBeReady(m wire.MemberRecord) bool {
	return slices.Contains(f.conf.GetLearners(), m.ID) && m.Registered && !m.Silent
}

// standbys returns the standbys that can be promoted, by ID.
func (f *facts) standbys() (ready []uint64) {
	for _, m := range f.members {
		if f.mayBeReady(m) && f.active(m.ID) && f.current(m.ID) {
			ready = append(ready, m.ID)
		}
	}
	return ready
}
