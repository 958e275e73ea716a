package cluster

import (
	"context"

	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/internal/fact"
)

// Replica returns this member's replica of a further group, which the default group's list must have. It blocks until that
// runs and is in use, or ctx is done. ErrGroupDeleted; ErrStopped.
func (g *Groups) Replica(ctx context.Context, number uint32) (*replica.Replica, error) {
	h, err := g.await(ctx, number)
	if err != nil {
		return nil, err
	}
	return h.replica, nil
}

// AwaitDeleted blocks until this member has erased a further group, or ctx is done. ErrStopped.
func (g *Groups) AwaitDeleted(ctx context.Context, number uint32) error {
	return g.until(ctx, func() bool {
		return (*g.hosted.Load())[number] == nil && g.defaults.Status().Directory.Dropped(number)
	})
}

// GroupStatus is a further group as this member sees it.
type GroupStatus struct {
	Record *fact.GroupRecord
	Status *replica.Status // nil: this member's replica does not run yet
}

// Status returns the further groups, by number.
func (g *Groups) Status() (list []GroupStatus) {
	for _, r := range g.defaults.Status().Directory.Groups {
		s := GroupStatus{Record: r}
		if h := g.started(r.Number); h != nil {
			s.Status = h.replica.Status()
		}
		list = append(list, s)
	}
	return list
}
