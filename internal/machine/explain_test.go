package machine

import (
	"fmt"

	"github.com/conclave-go/conclave/internal/machine/reference"
	"github.com/conclave-go/conclave/internal/wire"
)

// checkLocks compares the owners and queues that queries show with those of the reference.
func (r *rig) checkLocks() error {
	for _, of := range r.model.Locks {
		if of.Job != "" {
			continue
		}
		want := r.model.LockNow(of.Election, of.Name)
		q := ExplainQuery{Name: of.Name}
		if of.Election {
			q.Space = wire.Space_ELECTION
		}
		v := Ask[*ExplainView](r.straight, q)
		switch {
		case v == nil || v.Held != (want.Owner != nil || len(want.Shares) > 0) || len(v.Queue) != len(want.Queue):
			return fmt.Errorf("lock %q: %+v, want %+v", of.Name, v, want)
		case v.Shared > 0 || len(want.Shares) > 0:
			if err := r.checkShares(v, want); err != nil {
				return err
			}
		case v.Held && (!r.showsPlace(v.Owner, want.Owner) || v.Label != want.Owner.Label):
			return fmt.Errorf("lock %q is held by %s, want %+v at %d", of.Name, printOwner(v.Owner), *want.Owner, r.model.Now)
		}
		for i, w := range v.Queue {
			if !r.showsPlace(w, &want.Queue[i]) {
				return fmt.Errorf("lock %q: in place %d is %s, want %+v at %d", of.Name, i+1, printOwner(w), want.Queue[i], r.model.Now)
			}
		}
	}
	return nil
}

func (r *rig) checkShares(v *ExplainView, want *reference.Lock) error {
	if v.Held != (len(want.Shares) > 0) || v.Held && v.Fence != want.SharedFence || len(v.Holders) != len(want.Shares) || v.Shared < len(v.Holders) {
		return fmt.Errorf("lock %q: %+v, want %+v", want.Name, v, want)
	}
	for i, sh := range v.Holders {
		if w := want.Shares[i]; !r.showsPlace(sh.OwnerView, &w.Place) || sh.Number != w.Number || sh.Holds != w.Holds || !sh.Shared {
			return fmt.Errorf("lock %q: share %d is %+v, want %+v", want.Name, i, sh, w)
		}
	}
	return nil
}

func (r *rig) showsPlace(v OwnerView, want *reference.Place) bool {
	since := int64(-1)
	if want.Since != 0 {
		since = r.model.Now - want.Since
	}
	return v.Session == want.Session && v.Handle == want.Handle && v.Label == want.Label && v.Since == since
}
