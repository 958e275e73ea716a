package reconcile

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// replaceSilent replaces a voter that has been silent for ReplaceAfter.
func (f *Facts) replaceSilent() Plan {
	reason := ""
	for _, id := range f.staying() {
		if !f.silent(id) || id == f.Self || f.Config.ReplaceAfter == 0 {
			continue
		}
		left := f.record(id).Since + f.Config.ReplaceAfter - f.Now
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
func (f *Facts) promote() Plan {
	voters, standbys := len(f.staying()), f.standbys()
	need := 1 + voters%2
	if voters+1 > int(f.Config.Voters) {
		return Plan{}
	}
	need = min(need, int(f.Config.Voters)-voters)
	if voters%2 == 1 && voters+2 > int(f.Config.Voters) {
		return Plan{}
	}
	if len(standbys) < need {
		return Plan{Reason: fmt.Sprintf("%d of %d voters, waiting for %d more standbys that are up to date", voters, f.Config.Voters, need-len(standbys))}
	}
	var changes []Change
	for _, id := range standbys[:need] {
		changes = append(changes, Change{id, Promote})
	}
	return f.propose(fmt.Sprintf("promoting %v", wire.MemberIDs(standbys[:need])), changes...)
}

// demote demotes the voters that are too many: silent ones first, then those with the
// highest IDs, never the leader.
func (f *Facts) demote() Plan {
	staying := f.staying()
	extra := len(staying) - int(f.Config.Voters)
	if extra <= 0 || f.Config.Voters == 0 { // 0: not set yet
		return Plan{}
	}
	silent := func(id uint64) int {
		if f.silent(id) {
			return 1
		}
		return 0
	}
	slices.SortFunc(staying, func(a, b uint64) int { return cmp.Or(silent(b)-silent(a), cmp.Compare(b, a)) })
	staying = slices.DeleteFunc(staying, func(id uint64) bool { return id == f.Self })
	n := min(extra, 1+len(f.Conf.GetVoters())%2) // an odd number remains
	var changes []Change
	for _, id := range staying[:min(n, len(staying))] {
		changes = append(changes, Change{id, Demote})
	}
	return f.propose(fmt.Sprintf("demoting %v, %d voters are too many", wire.MemberIDs(staying[:len(changes)]), len(f.Conf.GetVoters())), changes...)
}

// swap replaces a voter by a standby in one joint change.
func (f *Facts) swap(out, in uint64, why string) Plan {
	return f.propose(fmt.Sprintf("replacing %v, %s, by %v", wire.MemberID(out), why, wire.MemberID(in)), Change{in, Promote}, Change{out, Demote})
}

// mayBeReady reports whether a member is a standby that can be promoted if it answers.
func (f *Facts) mayBeReady(m fact.MemberRecord) bool {
	if f.Following != nil { // whether its process has registered does not matter there
		return slices.Contains(f.Conf.GetLearners(), m.ID) && slices.Contains(f.Following.Voters, m.ID)
	}
	return slices.Contains(f.Conf.GetLearners(), m.ID) && m.Registered && !m.Silent
}

// standbys returns the standbys that can be promoted, by ID.
func (f *Facts) standbys() (ready []uint64) {
	for _, m := range f.Members {
		if f.mayBeReady(m) && f.Active(m.ID) && f.Current(m.ID) {
			ready = append(ready, m.ID)
		}
	}
	return ready
}
