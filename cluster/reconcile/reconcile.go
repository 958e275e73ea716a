// Package reconcile decides what Raft's configuration should be. Its decision is a function of
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
// The leader of a further group takes the first four steps, and then has those vote that vote in the default group
// (following.go). A member leaves the default group's configuration when it is in that of no other group.
//
// It proposes one change at a time, each when the one before is settled (commit_notice.go of package core),
// and only if a majority of the voters after it is active. It demotes no healthy voter only
// to have an odd number: what two voters acknowledge is on two disks.
//
// It is a seam, not an API: only package cluster/core uses it.
package reconcile

import (
	"cmp"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/display"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// Facts is what the reconciler decides on.
type Facts struct {
	Self         uint64
	Conf         *raftpb.ConfState
	Removed      []uint64            // ascending
	Members      []fact.MemberRecord // not removed
	Config       fact.GroupConfig
	Now          int64                // group time
	Active       func(id uint64) bool // the leader has heard it lately
	Current      func(id uint64) bool // its log is nearly the leader's
	KnowsRemoval func(id uint64) bool // a removed standby may be removed from the configuration
	MayRemove    func(id uint64) bool // no other group has it in its configuration; nil: there is none
	Following    *fact.Following      // of a further group, whose voters are to be those of the default one; nil: this is that
	Early        bool                 // the leader has led for so short a time that not all members have answered
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

// Raft returns the change as raft has it.
func (c Change) Raft() *raftpb.ConfChangeSingle {
	kind := map[ChangeKind]raftpb.ConfChangeType{
		AddStandby: raftpb.ConfChangeAddLearnerNode, Demote: raftpb.ConfChangeAddLearnerNode,
		Promote: raftpb.ConfChangeAddNode, Remove: raftpb.ConfChangeRemoveNode,
	}[c.Kind]
	return &raftpb.ConfChangeSingle{Type: kind.Enum(), NodeId: &c.Member}
}

// Decide returns the next step.
func Decide(f *Facts) Plan {
	switch {
	case len(f.Conf.GetVotersOutgoing()) == 0:
	case !slices.Contains(f.Conf.GetVoters(), f.Self):
		// It was elected by the joint configuration, which demotes it. It would step down
		// when it has applied that, as the only member that knows of the commit.
		return Plan{Transfer: true, Reason: "transferring leadership to a voter that remains, to leave the joint configuration"}
	default:
		return Plan{Leave: true, Reason: "leaving the joint configuration"}
	}
	waits := ""
	steps := []func(*Facts) Plan{(*Facts).removeVoter, (*Facts).removeStandby, (*Facts).addStandby}
	if f.Following != nil {
		steps = append(steps, (*Facts).followVoters)
	} else {
		steps = append(steps, (*Facts).replaceSilent, (*Facts).promote, (*Facts).demote)
	}
	for _, step := range steps {
		p := step(f)
		if len(p.Changes) > 0 || p.Transfer {
			return p
		}
		waits = cmp.Or(waits, p.Reason)
	}
	return Plan{Reason: waits}
}

// addStandby adds a member that was admitted.
func (f *Facts) addStandby() Plan {
	for _, m := range f.Members {
		if !slices.Contains(f.Conf.GetVoters(), m.ID) && !slices.Contains(f.Conf.GetLearners(), m.ID) {
			named := wire.MemberID(m.ID).String()
			if m.Name != "" { // which nothing else on this member may show yet
				named = fmt.Sprintf("%s (%s)", display.Name(m.Name), named)
			}
			return Plan{Changes: []Change{{m.ID, AddStandby}}, Reason: fmt.Sprintf("adding %s as a standby", named)}
		}
	}
	return Plan{}
}

// propose returns the change, or what it waits for: of the voters after it, a majority must
// be active.
func (f *Facts) propose(reason string, changes ...Change) Plan {
	voters := slices.Clone(f.Conf.GetVoters())
	for _, c := range changes {
		voters = slices.DeleteFunc(voters, func(id uint64) bool { return id == c.Member })
		if c.Kind == Promote {
			voters = append(voters, c.Member)
		}
	}
	active := 0
	for _, id := range voters {
		if f.Active(id) {
			active++
		}
	}
	if active <= len(voters)/2 {
		return Plan{Reason: fmt.Sprintf("%s: waiting for a majority of the voters that remain", reason)}
	}
	return Plan{Changes: changes, Reason: reason}
}

// staying returns the voters that were not removed.
func (f *Facts) staying() []uint64 {
	return slices.DeleteFunc(slices.Clone(f.Conf.GetVoters()), func(id uint64) bool { return f.isRemoved(id) })
}

// silent reports whether the group has recorded that a member is silent. Of a founder that has
// never registered there is no record: it is silent while it is not active.
func (f *Facts) silent(id uint64) bool {
	m := f.record(id)
	return m.Silent || m.ID == 0 && !f.Active(id)
}

// record returns what the group has recorded of a member; zero: nothing.
func (f *Facts) record(id uint64) fact.MemberRecord {
	if i := slices.IndexFunc(f.Members, func(m fact.MemberRecord) bool { return m.ID == id }); i >= 0 {
		return f.Members[i]
	}
	return fact.MemberRecord{}
}
