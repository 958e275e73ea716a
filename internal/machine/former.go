package machine

import (
	"cmp"
	"slices"
)

// former is the members that were removed. Their IDs are kept, so that none is used again: in
// time they are many more than the members, so nothing visits all of them.
type former struct {
	byID      map[uint64]*member
	ids       []uint64           // ascending; never changed in place
	unstarted map[uint64]*member // those that have never registered, at most MaxForgettable
}

func newFormer() former {
	return former{byID: make(map[uint64]*member), ids: make([]uint64, 0), unstarted: make(map[uint64]*member)}
}

// known returns the member, also one that was removed, or nil.
func (m *Machine) known(id uint64) *member {
	if k := m.members[id]; k != nil {
		return k
	}
	return m.former.byID[id]
}

// add adds a member that was removed.
func (f *former) add(k *member) {
	f.byID[k.id] = k
	if at, found := slices.BinarySearch(f.ids, k.id); !found {
		f.ids = slices.Concat(f.ids[:at], []uint64{k.id}, f.ids[at:])
	}
	if !k.isRegistered() {
		f.unstarted[k.id] = k
	}
}

// makeRoom forgets one in favor of another member that is removed and has never registered, or
// else strangers that are admitted and never start would fill the state. Such a member has
// acknowledged nothing, so it may be admitted again; those that registered are kept.
func (m *Machine) makeRoom() {
	f := &m.former
	if len(f.unstarted) < MaxForgettable {
		return
	}
	var oldest *member
	for _, k := range f.unstarted { // order: the minimum does not depend on it
		m.visits.Count()
		if oldest == nil || cmp.Or(cmp.Compare(k.since, oldest.since), cmp.Compare(k.id, oldest.id)) < 0 {
			oldest = k
		}
	}
	delete(f.byID, oldest.id)
	delete(f.unstarted, oldest.id)
	at, _ := slices.BinarySearch(f.ids, oldest.id)
	f.ids = slices.Concat(f.ids[:at], f.ids[at+1:])
	m.dirty.drop(oldest.key())
}

// Removed returns the removed members, ascending. The slice is never changed.
func (m *Machine) Removed() []uint64 { return m.former.ids }
