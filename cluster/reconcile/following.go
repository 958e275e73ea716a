package reconcile

import (
	"fmt"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// followVoters has the voters of the default group vote in a further one, as soon as they are up to date: one in place
// of another that votes no more, if there is one, in one joint change.
func (f *Facts) followVoters() Plan {
	var out, missing []uint64
	for _, id := range f.staying() {
		if !slices.Contains(f.Following.Voters, id) {
			out = append(out, id)
		}
	}
	for _, id := range f.Following.Voters {
		if !slices.Contains(f.Conf.GetVoters(), id) {
			missing = append(missing, id)
		}
	}
	others := slices.DeleteFunc(slices.Clone(out), func(id uint64) bool { return id == f.Self })
	switch ready := f.standbys(); {
	case len(ready) > 0 && len(others) > 0:
		return f.swap(others[0], ready[0], "which votes no more in the default group")
	case len(ready) > 0:
		return f.propose(fmt.Sprintf("promoting %v, which votes in the default group", wire.MemberID(ready[0])), Change{ready[0], Promote})
	case len(missing) > 0:
		return Plan{Reason: fmt.Sprintf("waiting until %v is up to date to vote as in the default group", wire.MemberID(missing[0]))}
	case len(others) > 0:
		return f.propose(fmt.Sprintf("demoting %v, which votes no more in the default group", wire.MemberID(others[0])), Change{others[0], Demote})
	case len(out) > 0:
		return Plan{Transfer: true, Reason: "transferring leadership to a voter of the default group"}
	}
	return Plan{}
}
