package machine

import (
	"errors"
	"fmt"
)

// checkFences wants each hold and acquisition that began in this entry to have
// a larger fence than all that were ever seen before it.
func (r *rig) checkFences() error {
	held, phases := make(map[uint64]bool), make(map[uint64]bool)
	largest := r.fence
	see := func(fence uint64) (err error) {
		if !r.held[fence] && fence <= r.fence {
			err = fmt.Errorf("the fence %d came after %d", fence, r.fence)
		}
		held[fence] = true
		largest = max(largest, fence)
		return err
	}
	var errs []error
	for _, v := range allLocks(r.straight, "") {
		switch {
		case !v.Held:
		case v.Shared > 0: // a share may come to a phase that has begun before
			for _, sh := range v.Holders {
				if sh.Number < v.Fence && sh.Set == 0 {
					errs = append(errs, fmt.Errorf("share %d of %q is older than its phase, %d", sh.Number, v.Name, v.Fence))
				}
				errs = append(errs, see(sh.Number))
			}
		default:
			errs = append(errs, see(v.Fence))
		}
	}
	for name, l := range r.straight.locks.byName {
		if p := l.phase(); p.isLive() { // perhaps by shares of ended sessions alone
			if phases[p.fence] = true; !r.phases[p.fence] && p.fence <= r.fence {
				errs = append(errs, fmt.Errorf("the fence %d of a phase of %q came after %d", p.fence, name, r.fence))
			}
		}
	}
	for _, l := range r.straight.jobs.locks.byName {
		if l.owner != nil {
			errs = append(errs, see(l.fence))
		}
	}
	for name := range r.straight.elections.byName {
		if l := leaderOf(r.straight, name); l != nil {
			errs = append(errs, see(l.Fence))
		}
	}
	for name := range r.straight.semaphores.byName {
		for _, p := range semaphoreOf(r.straight, name).Holders {
			errs = append(errs, see(p.Fence))
		}
	}
	for _, fence := range r.grantedShards() {
		errs = append(errs, see(fence))
	}
	for _, o := range r.last.Outcomes {
		if n := uint64(o.Reply.GetBlock()); n > 0 {
			largest = max(largest, o.Reply.GetFence()+n-1)
		}
	}
	r.held, r.phases, r.fence = held, phases, largest
	return errors.Join(errs...)
}
