package reconcile

import (
	"fmt"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// removeVoter replaces or demotes a voter that was removed from the group.
func (f *Facts) removeVoter() Plan {
	var others []uint64
	leads := false
	for _, id := range f.Conf.GetVoters() {
		switch {
		case !f.isRemoved(id):
		case id == f.Self:
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
		case slices.ContainsFunc(f.staying(), func(id uint64) bool { return f.Active(id) || !f.silent(id) }):
			return Plan{Transfer: true, Reason: "transferring leadership, as the leader leaves"}
		case len(standbys) > 0 && len(others) > 0:
			return f.swap(others[0], standbys[0], "which leaves")
		case len(standbys) > 0:
			return f.propose(fmt.Sprintf("promoting %v to succeed the leader, which leaves", wire.MemberID(standbys[0])), Change{standbys[0], Promote})
		}
		return Plan{Reason: "the leader leaves: waiting for a member that can succeed it"}
	}
	for _, id := range others {
		if len(f.staying()) < int(f.Config.Voters) {
			switch {
			case len(standbys) > 0:
				return f.swap(id, standbys[0], "which leaves")
			case f.Early && slices.ContainsFunc(f.Members, f.mayBeReady):
				return Plan{Reason: fmt.Sprintf("replacing %v, which leaves: waiting for the answer of a standby", wire.MemberID(id))}
			}
		}
		if p := f.propose(fmt.Sprintf("demoting %v, which leaves", wire.MemberID(id)), Change{id, Demote}); len(p.Changes) > 0 || len(others) == 1 {
			return p
		}
	}
	return Plan{}
}

func (f *Facts) removeStandby() Plan {
	for _, id := range f.Conf.GetLearners() {
		if f.isRemoved(id) {
			if f.MayRemove != nil && !f.MayRemove(id) {
				return Plan{Reason: fmt.Sprintf("removing %v: waiting until the other groups have removed it", wire.MemberID(id))}
			}
			if !f.KnowsRemoval(id) {
				return Plan{Reason: fmt.Sprintf("waiting until %v knows that it is removed", wire.MemberID(id))}
			}
			return Plan{Changes: []Change{{id, Remove}}, Reason: fmt.Sprintf("removing %v", wire.MemberID(id))}
		}
	}
	return Plan{}
}

// isRemoved reports whether the group has removed a member. Removed members become many in time, so their list is not
// searched one by one.
func (f *Facts) isRemoved(id uint64) bool {
	if f.Following != nil { // it remembers fewer
		return f.record(id).ID == 0
	}
	_, found := slices.BinarySearch(f.Removed, id)
	return found
}
