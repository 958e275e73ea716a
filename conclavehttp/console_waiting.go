package conclavehttp

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/conclave-go/conclave"
)

// waitedLock is a lock that requests wait for.
type waitedLock struct {
	conclave.LockInfo
	Longest time.Duration // wait; negative: not known
}

const (
	maxCompared = 50 // locks whose queues are read: each is a query that visits up to 1,000 waiters, and looks for a cycle
	maxWaited   = 15 // locks that are shown
)

// listWaited lists the locks that requests wait for, the longest wait first. Where more than maxCompared are found, or the
// group answers slowly, those with the most waiters are compared.
func (a *answerData) listWaited(ctx context.Context, group *conclave.Group, q query) {
	r := newReading()
	var contended []conclave.LockInfo
	for l, err := range group.Locks(ctx, q.prefix) {
		if err != nil {
			a.Err = err
			return
		}
		if !r.more() {
			a.Looked = r.looked
			break
		}
		r.looked++
		if l.Waiters > 0 {
			l.Holders = nil // up to 1,024 of each, which are not shown here
			contended = append(contended, l)
		}
	}
	byWaiters := func(x, y conclave.LockInfo) int {
		return cmp.Or(cmp.Compare(y.Waiters, x.Waiters), cmp.Compare(x.Name, y.Name))
	}
	slices.SortFunc(contended, byWaiters)
	for i, l := range contended[:min(len(contended), maxCompared)] {
		if i > 0 && time.Now().After(r.until) {
			break
		}
		e, err := group.Explain(ctx, l.Name)
		if err != nil {
			a.Err = err
			return
		}
		if w, ok := waitedFor(l, e); ok {
			a.Waited = append(a.Waited, w)
		}
	}
	slices.SortStableFunc(a.Waited, func(x, y waitedLock) int { return cmp.Compare(y.Longest, x.Longest) })
	a.MoreWaited = len(contended) - min(len(a.Waited), maxWaited)
	a.Waited = a.Waited[:min(len(a.Waited), maxWaited)]
	if len(a.Waited) == 0 {
		a.MoreWaited = 0 // they have been granted since then
	}
}

// waitedFor returns a lock as it is after it was listed; false: nothing waits for it any more.
func waitedFor(l conclave.LockInfo, e conclave.Explanation) (waitedLock, bool) {
	if len(e.Queue) == 0 {
		return waitedLock{}, false
	}
	w := waitedLock{LockInfo: l, Longest: -1}
	w.Shared, w.Set = e.Shared, e.Holder.Set
	w.Held, w.Delay, w.Waiters, w.Lingering, w.Fence, w.Holds = e.Held, e.Delay, e.Waiters, e.Lingering, e.Fence, e.Holds
	w.Node, w.Client, w.Session, w.SessionName, w.Label, w.Since, w.EndsIn =
		e.Holder.Node, e.Holder.Client, e.Holder.Session, e.Holder.SessionName, e.Holder.Label, e.Holder.Since, e.Holder.EndsIn
	for _, waiter := range e.Queue {
		w.Longest = max(w.Longest, waiter.Since)
	}
	return w, true
}
