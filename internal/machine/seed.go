package machine

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// The seed is the state with which disaster recovery begins a new group, made from the
// state of an old one. No promise of the old group may be broken by the new one, whatever
// the old one did after the state was taken, and however often a group is begun from the
// same state. So what the new group counts begins behind everything of the old one: at
// the next epoch and a count that differs each time.

var (
	// ErrLastEpoch: the state is of the last epoch, so no group can follow it.
	ErrLastEpoch = errors.New("machine: the fences of all epochs are used")
	// ErrCount: the count with which fences are to begin is out of range.
	ErrCount = errors.New("machine: the first count of fences is out of range")
)

// FirstState returns the state with which a new group begins at a feature level: what its founders
// agree on, so each of them must have the same. At the first level it is empty, as for builds
// that know no other.
func FirstState(level uint32) []wire.Change {
	if level <= firstLevel {
		return nil
	}
	m := New()
	m.levels.agreed = level
	return []wire.Change{{Key: []byte(machineKey), Value: encode(m), Created: true}}
}

// Seed returns the state of a new group, as pairs sorted by key: the keys and the limits
// that Resize has set, what jobs retain of their runs, and the group's settings. All sessions end, with what they hold and await; members, processes,
// checks and lock-delays are forgotten. Keys that a session has locked are released or
// deleted, as the session's behavior says.
//
// Fences begin behind count in the next epoch. The indexes of changes begin behind the
// same number, and so do the lock indexes of keys that were locked before: it is larger
// than each that the old group gives out, as long as that makes fewer than 2^48 changes in
// an epoch. Nothing of the state depends on the feature level, so that of the new group is the highest
// that this build supports. Fences of groups that are created later begin behind count, too. A further group lists the new group's first member, which could not register otherwise. The machine
// must not be used while the pairs are read.
func (m *Machine) Seed(count uint64, in fact.Seeding) (iter.Seq2[[]byte, []byte], error) {
	if err := CheckSeed(m); err != nil {
		return nil, err
	}
	if count >= maxFences {
		return nil, fmt.Errorf("%w: %d, want at most %d", ErrCount, count, uint64(maxFences-1))
	}
	s := New()
	s.levels, s.settings = levels{m.levels.supported, m.levels.supported}, m.settings
	s.now, s.positions, s.endings = m.now, m.positions, m.endings
	s.epoch, s.fences = m.epoch+1, count
	s.keys.changes = max(m.keys.changes, s.fence())
	s.keys.lockFloor = max(m.keys.lockFloor, s.fence())
	s.keys.lockFloorAt = m.keys.lockFloorAt
	s.groups = m.groups.seed(s.epoch, in.Keep)
	if f := m.following; f != nil && !in.Default { // the new default group may be at a lower index than the old one was
		s.following = &following{group: f.group, sealed: f.sealed, voters: []uint64{in.First.ID}}
		k := newMember(in.First.ID)
		k.follow(groupMember(&in.First))
		s.addMember(k)
	} else if (grouping{s}).hasGroups() {
		s.groups.fences = count // as those of this group: another cluster that begins with this state creates groups in the same epoch
	}
	m.keys.tree.Ascend(func(e *fact.Entry) bool {
		s.plant(e, m.sessions[e.Session])
		return true
	})
	jobs := jobRuns{m}.seed()
	return func(yield func(key, value []byte) bool) { s.yield(m, jobs, yield) }, nil
}

// maxCounted bounds what a seed goes on with: group time, which would take 146 years, and what the machine counts.
const maxCounted = 1 << 62

// CheckSeed returns an error if no group can follow one with a state: [ErrLastEpoch], or [ErrCorrupt] where what the new group would go on with
// is so large that no group has come to it. Its time would stand still then, or its indexes begin again at zero.
func CheckSeed(m *Machine) error {
	if m.epoch >= maxEpoch {
		return ErrLastEpoch
	}
	if m.now > maxCounted || m.positions > maxCounted || m.endings > maxCounted {
		return fmt.Errorf("%w: group time %d, %d places in queues and %d ended sessions: %w", ErrCorrupt, m.now, m.positions, m.endings, errRange)
	}
	// Indexes begin behind the fences of an epoch, and stay below those of the next one.
	largest := max(m.keys.changes, m.keys.lockFloor)
	m.keys.tree.Ascend(func(e *fact.Entry) bool {
		largest = max(largest, e.LockIndex)
		return true
	})
	if largest > max(maxCounted>>1, uint64(m.epoch+1)<<48|maxFences) {
		return fmt.Errorf("%w: index %d in epoch %d: %w", ErrCorrupt, largest, m.epoch, errRange)
	}
	return nil
}

// plant adds a key of the old group; by is the session that has locked it, or nil.
func (m *Machine) plant(e *fact.Entry, by *session) {
	m.keys.lockFloor = max(m.keys.lockFloor, e.LockIndex)
	if by != nil {
		if e = released(e, by.behavior); e == nil {
			return
		}
		m.keys.changes++
		e.ModifyIndex = m.keys.changes
	}
	if e.LockIndex > 0 {
		locked := *e
		locked.LockIndex = max(e.LockIndex, m.fence())
		e = &locked
	}
	m.keys.replace(nil, e)
}

// yield yields the pairs of a seed; semaphores are the old group's.
func (m *Machine) yield(old *Machine, jobs seedJobs, yield func(key, value []byte) bool) {
	for _, g := range m.Directory().Groups {
		if f := (&furtherGroup{g}); !yield([]byte(f.key()), encode(f)) {
			return
		}
	}
	if !yieldSeed(jobs.jobs, yield) {
		return
	}
	for _, r := range m.Members() {
		if k := m.members[r.ID]; !yield([]byte(k.key()), encode(k)) {
			return
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old.semaphores.byName)) {
		s := old.semaphores.byName[name]
		if s.resized && !yield([]byte(s.key), encode(s)) {
			return
		}
	}
	more := yieldSeed(jobs.locks, yield)
	if !more {
		return
	}
	m.keys.tree.Ascend(func(e *fact.Entry) bool {
		more = yield([]byte(entryKey(e.Key)), encode(entry{e}))
		return more
	})
	if more && yield([]byte(machineKey), encode(m)) {
		yieldSeed(jobs.runs, yield)
	}
}

// Summary is what people ask about a state at rest.
type Summary struct {
	Level                 uint32
	Fence                 uint64 // the largest granted
	Change                uint64 // index of the last change of a key
	Keys, Sessions, Locks int    // sessions that live; locks and leaderships held, awaited or delayed
	Semaphores            int
}

// Summary counts what the state holds.
func (m *Machine) Summary() Summary {
	return Summary{
		Level: m.levels.agreed, Fence: m.fence(), Change: m.keys.changes,
		Keys: m.keys.tree.Len(), Sessions: len(m.sessions) - m.ending.Len,
		Locks: len(m.locks.byName) + len(m.elections.byName), Semaphores: len(m.semaphores.byName),
	}
}
