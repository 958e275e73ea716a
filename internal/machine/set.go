package machine

import (
	"encoding/binary"

	"github.com/google/btree"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/machine/ordered"
	"github.com/conclave-go/conclave/internal/wire"
)

// set is a request for several locks as a whole, or the hold of them. A set that waits holds nothing,
// so sets cannot wait for each other in a circle, in whatever order their names stand.
type set struct {
	session *session
	handle  uint64
	parts   []part // those to hold exclusively first; never changed
	shared  int    // of the parts: the last ones
	label   string
	since   int64  // group time of the request; once it is granted, of that
	ticket  ticket // that the grant answers, of one that was queued; as that of a lock
	maxHold int64
	refuses bool // deadlocks, of one that waits: its names are not reserved where that would close a cycle

	position uint64 // in the queues; 0: it was not queued
	passed   uint32 // requests that it was passed over by
	passedBy uint64 // fence of the grant that has passed over it last

	fence uint64 // 0: it waits
	hold  bound  // of its shares; not in Machine.bounds if it does not end in time
	end   *bound // hold; nil: it does not end in time

	inSession ordered.Link[set]
}

// part is a name of a set.
type part struct {
	set    *set
	lock   *lock // nil: of a request for a lock that does not exist
	share  *share
	key    string // durable, of the lock
	shared bool

	inLock ordered.Link[part] // of a set that waits
}

const (
	MaxSet    = wire.MaxSet // names
	MaxPassed = 4           // times that a set is passed over before its names are reserved for it
)

// addParts gives a new set its names.
func (s *set) addParts(names, shared []string) {
	s.parts, s.shared = make([]part, 0, len(names)+len(shared)), len(shared)
	for _, name := range names {
		s.parts = append(s.parts, part{set: s, key: lockKey(false, name)})
	}
	for _, name := range shared {
		s.parts = append(s.parts, part{set: s, key: lockKey(false, name), shared: true})
	}
}

// waits reports whether the set is queued.
func (s *set) waits() bool { return s.fence == 0 }

// reserves reports whether the names are reserved for the set, which waits.
func (s *set) reserves() bool { return s.waits() && s.passed >= MaxPassed }

// isBefore reports whether the set was queued before a request of that position; 0: one that is not
// queued.
func (s *set) isBefore(position uint64) bool { return position == 0 || s.position < position }

// unclaimed reports that the set is held by an attached session, no handle of which has claimed it yet.
func (s *set) unclaimed() bool { return s.session.claimable(s.fence) }

// firstNumber is that of the first of its shares: they are numbered below its fence.
func (s *set) firstNumber() uint64 { return s.fence - uint64(s.shared) }

// fences is how many fences a grant takes: one for each share, as its number, and the set's.
func (s *set) fences() uint64 { return uint64(s.shared) + 1 }

// bytes is about what the names and the label take in a record.
func (s *set) bytes() int {
	n := setSize + len(s.label)
	for i := range s.parts {
		n += len(s.parts[i].key) + 2
	}
	return n
}

// len is how many names the set has; 0 for none.
func (s *set) len() int {
	if s == nil {
		return 0
	}
	return len(s.parts)
}

// hasSameNames reports whether the sets have the same names in the same order and modes.
func (s *set) hasSameNames(other *set) bool {
	if len(s.parts) != len(other.parts) || s.shared != other.shared {
		return false
	}
	for i := range s.parts {
		if s.parts[i].key != other.parts[i].key {
			return false
		}
	}
	return true
}

// holder describes the set as what stands before another request.
func (s *set) holder() *wire.Holder {
	if s.session.dead() {
		return nil
	}
	return &wire.Holder{Session: s.session.id[:], Member: s.session.member, Handle: s.handle, Waiting: true}
}

// waitingSets is the sets that wait for a lock, by mode and position.
type waitingSets struct {
	exclusive, shared ordered.List[part, partsOfLock]
	positions         [2]*btree.BTreeG[*part] // the same; nil: none
	reserved          [2]*btree.BTreeG[*part] // likewise, those that have the lock reserved
	names             int                     // of all of them
	looked            uint64                  // Machine.unserved when all were looked at last
}

func (ws *waitingSets) len() int {
	if ws == nil {
		return 0
	}
	return ws.exclusive.Len + ws.shared.Len
}

func (ws *waitingSets) list(shared bool) *ordered.List[part, partsOfLock] {
	if shared {
		return &ws.shared
	}
	return &ws.exclusive
}

// mode indexes what there is for each of the modes.
func (p *part) mode() int {
	if p.shared {
		return 1
	}
	return 0
}

// reservation returns the part of the oldest set that has a lock reserved against a request of that mode and
// position, or nil.
func (ws *waitingSets) reservation(shared bool, position uint64) (oldest *part) {
	if ws == nil {
		return nil
	}
	for mode, tree := range ws.reserved {
		if tree == nil || shared && mode == 1 {
			continue
		}
		if p, ok := tree.Min(); ok && p.set.isBefore(position) && (oldest == nil || p.set.position < oldest.set.position) {
			oldest = p
		}
	}
	return oldest
}

// reservations yields the parts of the sets for which the lock is reserved before a request of that mode and position: those that
// want it exclusively, and then those that want shares, each by age. A request for a share waits for one of the latter where it
// stands behind a waiter for the lock alone that does. It counts down left for each, and for each waiter that it looks at.
func (ws *waitingSets) reservations(l *lock, shared bool, position uint64, v *ordered.Visits, left *int, yield func(*part) bool) {
	more := true
	before := func(tree *btree.BTreeG[*part], position uint64) {
		if tree == nil || !more {
			return
		}
		tree.Ascend(func(p *part) bool {
			v.Count()
			if !p.set.isBefore(position) {
				return false
			}
			*left--
			more = *left >= 0 && yield(p)
			return more
		})
	}
	before(ws.reserved[0], position)
	if tree := ws.reserved[1]; shared && more && tree != nil && tree.Len() > 0 {
		w := l.lastExclusive(position, v, left)
		if w == nil {
			return
		}
		position = w.position
	}
	before(ws.reserved[1], position)
}

// candidates goes through the sets that wait for a lock, the oldest first.
type candidates struct {
	exclusive, shared *part
}

// candidates returns the sets that were queued behind those positions, exclusive and shared ones; 0: all.
func (ws *waitingSets) candidates(exclusive, shared uint64) candidates {
	if ws == nil {
		return candidates{}
	}
	return candidates{ws.firstBehind(exclusive, 0), ws.firstBehind(shared, 1)}
}

func (ws *waitingSets) firstBehind(position uint64, mode int) (first *part) {
	if position == 0 {
		return ws.list(mode == 1).First()
	}
	if tree := ws.positions[mode]; tree != nil {
		tree.AscendGreaterOrEqual(&part{set: &set{position: position + 1}}, func(p *part) bool {
			first = p
			return false
		})
	}
	return first
}

// drop leaves out what has the mode of p.
func (c *candidates) drop(p *part) {
	if p.shared {
		c.shared = nil
	} else {
		c.exclusive = nil
	}
}

// next returns the part of the oldest waiting set that was not returned before and is older than the position; nil: none.
// What it returns may leave the queues.
func (c *candidates) next(before uint64) *part {
	at := &c.exclusive
	if *at == nil || c.shared != nil && c.shared.set.position < (*at).set.position {
		at = &c.shared
	}
	if *at == nil || !(*at).set.isBefore(before) {
		return nil
	}
	p := *at
	*at = p.inLock.Next()
	return p
}

func (s *set) key() string {
	if s.waits() {
		return string(binary.BigEndian.AppendUint64([]byte{setWaiterKind}, s.position))
	}
	return string(binary.BigEndian.AppendUint64([]byte{setKind}, s.fence))
}

// names returns those to hold exclusively, and the shared ones.
func (s *set) names() (names, shared []string) {
	all := make([]string, len(s.parts))
	for i := range s.parts {
		all[i] = s.parts[i].key[1:]
	}
	n := len(all) - s.shared
	return all[:n], all[n:]
}

func (s *set) state() proto.Message {
	names, shared := s.names()
	incarnation, seq := ticketState(s.ticket)
	if s.waits() {
		return &wire.SetWaiterState{
			Session: s.session.id[:], Handle: s.handle, Names: names, Shared: shared, Incarnation: incarnation, Seq: seq,
			Since: s.since, Label: s.label, MaxHold: s.maxHold, RefuseDeadlock: s.refuses,
		}
	}
	st := &wire.SetState{
		Session: s.session.id[:], Handle: s.handle, Names: names, Shared: shared, Fences: s.phases(), Incarnation: incarnation,
		Seq: seq, Since: s.since, Label: s.label,
	}
	st.Ends, st.Requested = s.end.state()
	return st
}

// phases returns the fences of the shared names.
func (s *set) phases() (fences []uint64) {
	for _, p := range s.parts[len(s.parts)-s.shared:] {
		fences = append(fences, p.lock.phase().fence)
	}
	return fences
}

// passing is how often a set that waits was passed over, as a record.
type passing struct{ *set }

func (p passing) key() string {
	return string(binary.BigEndian.AppendUint64([]byte{passedKind}, p.position))
}

func (p passing) state() proto.Message { return &wire.PassedState{Times: p.passed} }

func (s *set) place() place      { return place{kind: setKind, fence: s.fence} }
func (s *set) bound() *bound     { return s.end }
func (s *set) setBound(b *bound) { s.end = b }
func (s *set) touch(d *dirty)    { d.put(s.key(), s) }

func (s *set) lose(m *Machine, until int64) { setting{m}.release(s, until) }
