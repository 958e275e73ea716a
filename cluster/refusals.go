package cluster

import (
	"fmt"
	"slices"
	"sync"

	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// refusals is which members refuse this one, and why. A refusal is the statement of one
// member, which may be faulty, so none has an effect on the disk:
//
//   - ReasonForgot stops this process at once. The acknowledgments may be known to one
//     member only, the leader of the time, so that no other could confirm the refusal. A
//     standby counts as well: a directory that was rolled back may be older than the
//     promotion of the member that leads now.
//   - ReasonRollback (every member that has met the later start refuses for it) and
//     ReasonRemoved need a majority of the voters, see member_removal.go for the latter.
type refusals struct {
	mu      sync.Mutex
	reasons map[uint64]transport.Reason // guarded by mu; by member, the latest since it accepted this one
}

func (r *refusals) add(member uint64, reason transport.Reason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reasons == nil {
		r.reasons = make(map[uint64]transport.Reason)
	}
	r.reasons[member] = reason
}

func (r *refusals) remove(member uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.reasons, member)
}

// refusing returns the members that refuse this one for a reason, in any order.
func (r *refusals) refusing(reason transport.Reason) (members []uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for member, other := range r.reasons { // order: of a set
		if other == reason {
			members = append(members, member)
		}
	}
	return members
}

// stops takes a member's refusal of self, and returns why self has to stop for it; nil: it need not.
func (r *refusals) stops(self uint64, voters []uint64, member uint64, refused *transport.RefusedError) error {
	r.add(member, refused.Reason)
	switch {
	case refused.Reason == transport.ReasonForgot:
		return fmt.Errorf("refused by member %v: %s: %w", wire.MemberID(member), refused.Detail, ErrForgot)
	case refused.Reason == transport.ReasonRollback && majorityRefuses(self, voters, r.refusing(refused.Reason)):
		return fmt.Errorf("%w: a majority of the voters has seen a later start of this member: %s", ErrCorrupt, refused.Detail)
	}
	return nil
}

// refusedBy runs when a peer that has proved to be a member refuses this one.
func (r *Removals) refusedBy(member uint64, refused *transport.RefusedError) {
	s := r.group.Status()
	var voters []uint64 // none that it knows of
	if s != nil {
		voters = s.Conf.GetVoters()
	}
	if err := r.refusals.stops(r.self, voters, member, refused); err != nil {
		r.fail(err)
	}
	if refused.Reason == transport.ReasonRemoved {
		r.consider(r.group.Status())
	}
}

// majorityRefuses reports whether so many of the voters refuse a member that they are a
// majority, or all others: of two voters, only one can refuse the other.
func majorityRefuses(self uint64, voters, refusers []uint64) bool {
	others, refusals := 0, 0
	for _, id := range voters {
		if id == self {
			continue
		}
		others++
		if slices.Contains(refusers, id) {
			refusals++
		}
	}
	return refusals > 0 && refusals >= min(len(voters)/2+1, others)
}
