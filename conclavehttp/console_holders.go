package conclavehttp

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
)

const (
	maxNoted  = 512 // locks of which holders are noted
	maxFormer = 8   // holders of each that are noted
)

// seenHolders notes the holders of locks that the console has read: the group records no grants. One that held
// a lock between two readings only is missing.
type seenHolders struct {
	mu    sync.Mutex
	locks map[lockID]*notedLock // guarded by mu
}

// lockID identifies a lock: a name in two groups is two locks.
type lockID struct{ Group, Name string }

// notedLock has the holders of a lock, the latest last.
type notedLock struct {
	read    time.Time // last
	holders []formerHolder
}

// formerHolder is a holder of a lock, or one of those that shared it: those that do so together have one fence.
type formerHolder struct {
	Holder conclave.LockOwner
	Shared int // the most that were seen to share it; 0: it was exclusive
	Fence  conclave.Fence
	From   time.Time // zero: not known
	Seen   time.Time // the last reading at which it held the lock
	// Until is the next reading, or when the next holder began; zero: it holds the lock.
	Until time.Time
	How   conclave.HistoryKind // its session has ended; 0: not known to have
}

// Text is how the session has ended.
func (f formerHolder) Text() string {
	switch f.How {
	case conclave.HistorySessionExpired:
		return "its session expired"
	case conclave.HistorySessionCheck:
		return "a check ended its session"
	case conclave.HistorySessionForced:
		return "its session was closed by force"
	case conclave.HistorySessionSuperseded:
		return "its process was started again"
	case conclave.HistorySessionRemoved:
		return "its member was removed"
	}
	return ""
}

// Exact reports whether the end is known to within some readings.
func (f formerHolder) Exact() bool { return f.Until.Sub(f.Seen) <= 3*refresh }

// endedBy reports whether the end of a session ended the hold. A lock that was shared is held by the others then.
func (f formerHolder) endedBy(e conclave.HistoryEvent) bool {
	return f.Shared == 0 && e.Session == f.Holder.Session && e.Session != (conclave.SessionID{}) && e.Kind != conclave.HistoryHoldLost &&
		!e.Time.Before(f.Seen.Add(-refresh)) && !e.Time.After(f.Until.Add(refresh))
}

func (h *seenHolders) noteListed(now time.Time, group string, l conclave.LockInfo) {
	o := conclave.LockOwner{Node: l.Node, Client: l.Client, Session: l.Session, SessionName: l.SessionName, Label: l.Label, Since: l.Since}
	h.note(now, lockID{group, l.Name}, l.Held, formerHolder{Holder: o, Shared: l.Shared, Fence: l.Fence})
}

func (h *seenHolders) noteExplained(now time.Time, group string, e conclave.Explanation) {
	h.note(now, lockID{group, e.Lock}, e.Held, formerHolder{Holder: e.Holder, Shared: e.Shared, Fence: e.Fence})
}

// note notes what was read of a lock.
func (h *seenHolders) note(now time.Time, lock lockID, held bool, next formerHolder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.locks[lock]
	switch {
	case l == nil && !held:
		return
	case l == nil:
		l = h.add(lock)
	case now.Before(l.read):
		return // another reading was faster
	}
	l.read = now
	last := len(l.holders) - 1
	if last >= 0 && held && l.holders[last].Fence == next.Fence && l.holders[last].Until.IsZero() {
		l.holders[last].Seen, l.holders[last].Shared = now, max(l.holders[last].Shared, next.Shared)
		return
	}
	next.Seen = now
	if held && next.Holder.Since >= 0 {
		next.From = now.Add(-next.Holder.Since)
	}
	if last >= 0 && l.holders[last].Until.IsZero() {
		l.holders[last].Until = later(cmp.Or(next.From, now), l.holders[last].Seen)
	}
	if held {
		l.holders = append(l.holders, next)
		l.holders = l.holders[max(0, len(l.holders)-maxFormer-1):]
	}
}

// add makes room for a lock in place of the one that was read least recently. h.mu is held.
func (h *seenHolders) add(lock lockID) *notedLock {
	if h.locks == nil {
		h.locks = make(map[lockID]*notedLock)
	}
	if len(h.locks) >= maxNoted {
		var oldest lockID
		for id, l := range h.locks { // order: of those read at the same moment any
			if oldest == (lockID{}) || l.read.Before(h.locks[oldest].read) {
				oldest = id
			}
		}
		delete(h.locks, oldest)
	}
	l := new(notedLock)
	h.locks[lock] = l
	return l
}

// former returns the holders that a lock had, the latest first.
func (h *seenHolders) former(lock lockID, history []conclave.HistoryEvent) (all []formerHolder) {
	h.mu.Lock()
	if l := h.locks[lock]; l != nil {
		all = slices.Clone(l.holders)
	}
	h.mu.Unlock()
	all = slices.DeleteFunc(all, func(f formerHolder) bool { return f.Until.IsZero() })
	slices.Reverse(all)
	for i := range all {
		for _, e := range history {
			if e.Group == lock.Group && all[i].endedBy(e) {
				all[i].How = e.Kind
			}
		}
	}
	return all
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
