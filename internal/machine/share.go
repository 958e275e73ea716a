package machine

import (
	"cmp"

	"github.com/google/btree"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/machine/ordered"
	"github.com/conclave-go/conclave/internal/wire"
)

// A lock can be held shared: by several owners at the same time, of which each has a share. A
// shared phase lasts from the first share of a lock that is free until the last one is released.
// All shares of a phase have one fence, taken when the phase begins, so what they protect accepts
// each of them; whatever is granted later has a larger one. A share is found by its number, which
// comes from the counter of the fences: numbers are in the order of the grants.

// share is one shared hold. It is held by a session, or delayed by the lock-delay of one that was
// invalidated; a delayed one keeps the lock from exclusive owners alone.
type share struct {
	lock       *lock
	owner      *session // nil: delayed
	handle     uint64
	holds      uint32
	lingering  bool
	number     uint64
	ticket     ticket // of the waiter that it was granted to; see granted
	since      int64  // group time of the grant
	label      string
	delayUntil int64
	end        *bound // nil: it does not end in time; of a share of a set that of the set, which may have no time

	inSession ordered.Link[share]
	inPhase   ordered.Link[share] // among those that linger
}

// phase is what only locks need that are, or were, held shared or awaited so.
type phase struct {
	fence      uint64                                // of the live shares
	live       *btree.BTreeG[*share]                 // by number
	lingering  ordered.List[share, lingeringOfPhase] // of the live ones, by number
	delayed    int
	delayUntil int64 // the last end of the delayed ones
	waiting    int   // of the queue: those for a share
	at         int   // position in Machine.portions; 0: it is not there

	recalled recalled
}

func byNumber(a, b *share) int { return cmp.Compare(a.number, b.number) }

// byClaimOfLock orders the shares of a session by what a request must name in order to claim them: those of the lock alone
// first.
func byClaimOfLock(a, b *share) int {
	return cmp.Or(cmp.Compare(a.lock.key, b.lock.key), cmp.Compare(a.ofSet(), b.ofSet()), cmp.Compare(a.number, b.number))
}

func (sh *share) ofSet() int {
	if sh.set() != nil {
		return 1
	}
	return 0
}

// set returns the set that the share is of; nil: it is of the lock alone.
func (sh *share) set() *set {
	if sh.end == nil {
		return nil
	}
	s, _ := sh.end.of.(*set)
	return s
}

// phase returns what the lock has of shared holds; nil: it has none.
func (l *lock) phase() *phase {
	if l.extra == nil {
		return nil
	}
	return l.extra.shared
}

// held reports that the lock has a share, live or delayed, so no exclusive owner can have it.
func (p *phase) held() bool { return p != nil && p.live.Len()+p.delayed > 0 }

// isLive reports that the lock has a live share.
func (p *phase) isLive() bool { return p != nil && p.live.Len() > 0 }

// requests counts the shares and the waiters for one.
func (p *phase) requests() int {
	if p == nil {
		return 0
	}
	return p.live.Len() + p.delayed + p.waiting
}

// shareRequests counts the shares, the waiters for one, and the sets that wait for one.
func (l *lock) shareRequests() int {
	n := l.phase().requests()
	if ws := l.sets(); ws != nil {
		n += ws.shared.Len
	}
	return n
}

// first returns the oldest live share, or nil.
func (p *phase) first() *share {
	if p == nil {
		return nil
	}
	sh, _ := p.live.Min()
	return sh
}

// find returns the live share of the session with that number, unless it is unclaimed; or nil.
func (p *phase) find(s *session, number uint64) *share {
	if p == nil {
		return nil
	}
	if sh, ok := p.live.Get(&share{number: number}); ok && sh.owner == s && sh.set() == nil && !sh.unclaimed() {
		return sh
	}
	return nil
}

// exclusives counts the waiters that want the lock for themselves.
func (l *lock) exclusives() int {
	if p := l.phase(); p != nil {
		return l.waiters() - p.waiting
	}
	return l.waiters()
}

// isDue reports that waiters for shares could be granted, and the next entry has to do that.
func (l *lock) isDue() bool {
	w := l.head()
	return l.owner == nil && l.delayUntil == 0 && w != nil && w.shared && l.sets().reservation(true, w.position) == nil
}

// unclaimed reports that the share is held by an attached session, no handle of which has
// claimed it yet.
func (sh *share) unclaimed() bool { return sh.owner != nil && sh.owner.claimable(sh.number) }

// unclaimedShare returns the session's oldest unclaimed share of the lock alone, or nil.
func (s *session) unclaimedShare(l *lock) (oldest *share) {
	s.unclaimedShares(l, false, func(sh *share) bool { oldest = sh; return false })
	return oldest
}

// unclaimedOf returns the session's oldest unclaimed share of the lock, alone or of a set; or nil.
func (s *session) unclaimedOf(l *lock) (oldest *share) {
	oldest = s.unclaimedShare(l)
	s.unclaimedShares(l, true, func(sh *share) bool {
		if oldest == nil || sh.number < oldest.number {
			oldest = sh
		}
		return false
	})
	return oldest
}

// unclaimedShares yields the session's unclaimed shares of the lock, alone or of sets, by number.
func (s *session) unclaimedShares(l *lock, ofSets bool, yield func(*share) bool) {
	if s.attached == 0 || s.shareClaims == nil {
		return
	}
	pivot := &share{lock: l}
	if ofSets {
		pivot.end = &bound{of: new(set)}
	}
	s.shareClaims.AscendGreaterOrEqual(pivot, func(sh *share) bool {
		return sh.lock == l && (sh.set() != nil) == ofSets && sh.unclaimed() && yield(sh)
	})
}

// holder describes the owner of the share; nil: it has ended.
func (sh *share) holder() *wire.Holder {
	if sh == nil || sh.owner.dead() {
		return nil
	}
	return &wire.Holder{Session: sh.owner.id[:], Member: sh.owner.member, Handle: sh.handle, Fence: sh.lock.phase().fence, Shared: true}
}

func (sh *share) ends() int64  { return sh.delayUntil }
func (sh *share) place() place { return place{shareKind, sh.lock.name(), sh.number} }

// over ends the lock-delay.
func (sh *share) over(m *Machine) {
	p := sh.lock.phase()
	if p.delayed--; p.delayed == 0 {
		p.delayUntil = 0 // delays end in the order of their ends
	}
	m.shares--
	m.dirty.drop(sh.key())
	sharing{m}.vacated(sh.lock, false)
}

// delay adds a share that has no owner, and its end set.
func (p *phase) delay(sh *share) {
	p.delayed++
	p.delayUntil = max(p.delayUntil, sh.delayUntil)
}

// ending returns the end in time of the hold; nil: it has none.
func (sh *share) ending() *bound {
	if s := sh.set(); s != nil {
		return s.end
	}
	return sh.end
}

func (sh *share) key() string { return numbered(shareKind, sh.lock.name(), sh.number) }

func (sh *share) state() proto.Message {
	st := &wire.ShareState{DelayUntil: sh.delayUntil}
	if sh.owner != nil {
		st.Session = sh.owner.id[:]
		st.Handle, st.Holds, st.Fence, st.Lingering, st.Since, st.Label = sh.handle, sh.holds, sh.lock.phase().fence, sh.lingering, sh.since, sh.label
	}
	st.Incarnation, st.Seq = ticketState(sh.ticket)
	st.Ends, st.Requested = sh.end.state()
	return st
}

func (sh *share) fields(w *wire.Writer) bool {
	if sh.owner != nil {
		w.Bytes(1, sh.owner.id[:])
		w.Number(2, sh.handle)
		w.Number(3, uint64(sh.holds))
		w.Number(4, sh.lock.phase().fence)
	}
	if sh.ticket != (ticket{}) {
		w.Bytes(5, sh.ticket.by.id[:])
		w.Number(6, sh.ticket.seq)
	}
	w.Number(7, uint64(sh.delayUntil))
	w.Flag(8, sh.lingering)
	w.Number(9, uint64(sh.since))
	w.String(10, sh.label)
	sh.end.fields(w)
	return true
}
