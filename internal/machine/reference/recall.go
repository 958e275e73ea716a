package reference

import "github.com/conclave-go/conclave/internal/fact"

// recall asks what lingers, and would keep a new request waiting, to release the lock soon.
func (x sharing) recall(l *Lock, next Place) {
	switch n := len(l.Queue); {
	case n == 0:
		x.recallOwner(l)
		if !next.shared {
			x.recallShares(l)
		}
	case !l.Queue[n-1].shared:
		x.recallPlace(l, l.Queue[n-1])
	case !next.shared:
		at := n
		for at > 0 && l.Queue[at-1].shared && l.Queue[at-1].arrival > x.marks(l).arrival {
			at--
		}
		if !l.exclusive() {
			x.recallShares(l)
		}
		for _, p := range l.Queue[at:] {
			x.marks(l).arrival = p.arrival
			x.recallPlace(l, p)
		}
	}
}

func (x sharing) recallPlace(l *Lock, p Place) {
	if p.linger && x.lateSession(p.Session) == nil {
		x.recalls = append(x.recalls, fact.Recall{Session: p.Session, Incarnation: x.boundTo(p.Session), Lock: l.Name, Handle: p.Handle, Shared: p.shared})
	}
}

func (x sharing) recallShares(l *Lock) {
	for _, sh := range l.Live() {
		if !sh.linger || sh.Number <= x.marks(l).number {
			continue
		}
		x.marks(l).number = sh.Number
		if x.lateSession(sh.Session) == nil {
			x.recallShare(l, sh)
		}
	}
}

// recallClaimed recalls a share that has taken the place of a hold that exclusive requests have recalled.
func (x sharing) recallClaimed(l *Lock, number uint64) {
	if !l.exclusive() && !sets(x).wants(l, true) {
		return
	}
	for _, sh := range l.Live() {
		if sh.Number == number && sh.linger {
			x.recallShare(l, sh)
		}
	}
}

func (x sharing) recallShare(l *Lock, sh Share) {
	x.recalls = append(x.recalls, fact.Recall{
		Session: sh.Session, Incarnation: x.boundTo(sh.Session), Lock: l.Name, Handle: sh.Handle, Shared: true, Share: sh.Number,
	})
}

// marks is what the entry has recalled already, of a lock.
type marks struct {
	index, number uint64
	arrival       int
}

func (x sharing) marks(l *Lock) *marks {
	if l.marks.index != x.index {
		l.marks = marks{index: x.index}
	}
	return &l.marks
}
