package machine

import (
	"cmp"

	"github.com/conclave-go/conclave/internal/machine/ordered"
)

// reserve holds the permits of one semaphore that are under a lock-delay, by end.
// It is a treap (Aragon and Seidel) whose nodes know how many permits are below
// them: adding and removing one, and finding the end at which enough are free,
// is O(log n). It is no part of the replicated state.
type reserve struct {
	root   *reserved
	len    int
	visits *ordered.Visits
}

type reserved struct {
	permit      *permit
	left, right *reserved
	priority    uint64 // of a node: not smaller than those below it
	sum         int64  // permits here and below
}

// byEnd orders delayed permits.
func byEnd(a, b *permit) int {
	return cmp.Or(cmp.Compare(a.delayUntil, b.delayUntil), cmp.Compare(a.fence, b.fence))
}

func (r *reserve) add(p *permit) {
	r.len++
	before, after := r.split(r.root, p)
	r.root = r.join(r.join(before, &reserved{permit: p, priority: scatter(p.fence), sum: int64(p.n)}), after)
}

// remove removes a permit that is in the reserve.
func (r *reserve) remove(p *permit) {
	r.len--
	at := &r.root
	for (*at).permit != p {
		r.visits.Count()
		(*at).sum -= int64(p.n)
		if byEnd(p, (*at).permit) < 0 {
			at = &(*at).left
		} else {
			at = &(*at).right
		}
	}
	*at = r.join((*at).left, (*at).right)
}

// first returns the permit whose lock-delay ends first, or nil.
func (r *reserve) first() *permit { return r.enough(1) }

// enough returns the permit with whose end n permits are free, or nil.
func (r *reserve) enough(n int64) *permit {
	at := r.root
	if at.total() < n {
		return nil
	}
	for {
		r.visits.Count()
		switch left := at.left.total(); {
		case n <= left:
			at = at.left
		case n <= left+int64(at.permit.n):
			return at.permit
		default:
			n -= left + int64(at.permit.n)
			at = at.right
		}
	}
}

// split divides a tree into what ends before p and what ends after it.
func (r *reserve) split(at *reserved, p *permit) (before, after *reserved) {
	if at == nil {
		return nil, nil
	}
	r.visits.Count()
	if byEnd(at.permit, p) < 0 {
		before, after = at, nil
		at.right, after = r.split(at.right, p)
	} else {
		before, after = nil, at
		before, at.left = r.split(at.left, p)
	}
	at.count()
	return before, after
}

// join joins two trees of which the first ends before the second.
func (r *reserve) join(before, after *reserved) *reserved {
	switch {
	case before == nil:
		return after
	case after == nil:
		return before
	}
	r.visits.Count()
	if before.priority > after.priority {
		before.right = r.join(before.right, after)
		before.count()
		return before
	}
	after.left = r.join(before, after.left)
	after.count()
	return after
}

func (n *reserved) total() int64 {
	if n == nil {
		return 0
	}
	return n.sum
}

func (n *reserved) count() { n.sum = n.left.total() + int64(n.permit.n) + n.right.total() }

// scatter spreads consecutive numbers (the finalizer of SplitMix64), so that the
// tree's shape does not depend on their order.
func scatter(n uint64) uint64 {
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}
