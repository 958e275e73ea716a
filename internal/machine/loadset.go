package machine

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// Reading the sets. The locks of one that is held have no records: they are made of its record.

// ordinal reads the number that is all of a key.
func ordinal(rest string) (n uint64, ok bool) {
	if len(rest) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64([]byte(rest)), true
}

func (ld *loader) set(rest string, value []byte) error {
	st := new(wire.SetState)
	if err := proto.Unmarshal(value, st); err != nil {
		return err
	}
	fence, ok := ordinal(rest)
	if !ok || fence == 0 {
		return errShape
	}
	s := &set{handle: st.Handle, fence: fence, label: st.Label, since: st.Since}
	if err := ld.names(s, st.Names, st.Shared); err != nil {
		return err
	}
	ld.sets = append(ld.sets, pending[set, *wire.SetState]{of: s, state: st})
	return nil
}

func (ld *loader) setWaiter(rest string, value []byte) error {
	st := new(wire.SetWaiterState)
	if err := proto.Unmarshal(value, st); err != nil {
		return err
	}
	position, ok := ordinal(rest)
	if !ok || position == 0 {
		return errShape
	}
	s := &set{handle: st.Handle, position: position, label: st.Label, since: st.Since, maxHold: st.MaxHold, refuses: st.RefuseDeadlock}
	if err := ld.names(s, st.Names, st.Shared); err != nil {
		return err
	}
	ld.setWaiters = append(ld.setWaiters, pending[set, *wire.SetWaiterState]{of: s, state: st})
	return nil
}

// names gives a set its parts.
func (ld *loader) names(s *set, names, shared []string) error {
	if (setting{ld.m}).checkNames(&wire.LockSet{Names: names, Shared: shared}) != nil {
		return errRange
	}
	s.addParts(names, shared)
	return nil
}

func (ld *loader) passed(rest string, value []byte) error {
	var st wire.PassedState
	if err := proto.Unmarshal(value, &st); err != nil {
		return err
	}
	position, ok := ordinal(rest)
	if !ok {
		return errShape
	}
	if st.Times == 0 || st.Times > MaxPassed {
		return errRange
	}
	if ld.passings == nil {
		ld.passings = make(map[uint64]uint32)
	}
	if ld.passings[position] != 0 {
		return errTwice
	}
	ld.passings[position] = st.Times
	return nil
}

// linkSets gives sessions the sets that they hold, in the order of the fences, and locks their owners.
func (ld *loader) linkSets() error {
	if len(ld.sets)+len(ld.setWaiters)+len(ld.passings) > 0 && !(setting{ld.m}).hasSets() {
		return fmt.Errorf("sets: %w", errRange)
	}
	slices.SortFunc(ld.sets, func(a, b pending[set, *wire.SetState]) int { return cmp.Compare(a.of.fence, b.of.fence) })
	drawn := ld.drawn()
	for _, p := range ld.sets {
		if err := ld.linkSet(p.of, p.state, drawn); err != nil {
			return fmt.Errorf("set %d: %w", p.of.fence, err)
		}
	}
	return nil
}

// drawn returns what was taken from the counter by something else than sets: of shares with their locks.
func (ld *loader) drawn() map[uint64]*lock {
	if len(ld.sets) == 0 {
		return nil
	}
	drawn := make(map[uint64]*lock)
	for _, p := range ld.locks {
		drawn[p.of.fence] = nil
	}
	for _, p := range ld.permits {
		drawn[p.of.fence] = nil
	}
	for _, p := range ld.shares {
		drawn[p.of.number] = p.of.lock
	}
	return drawn
}

func (ld *loader) linkSet(s *set, st *wire.SetState, drawn map[uint64]*lock) (err error) {
	m := ld.m
	id, _ := wire.IDFrom(st.Session)
	if s.ticket, err = ld.ticket(st.Incarnation, st.Seq); err != nil {
		return err
	}
	switch {
	case s.fence > m.fence(), s.fence <= uint64(s.shared), len(st.Fences) != s.shared:
		return errFence
	case m.sessions[id] == nil:
		return errLoose
	case !m.soundLabel(s.label, s.since, true):
		return errRange
	}
	for n := s.firstNumber(); n <= s.fence; n++ {
		if _, taken := drawn[n]; taken {
			return errFence
		}
		drawn[n] = nil
	}
	s.session, s.hold.of = m.sessions[id], s
	for i := range s.parts {
		if err := ld.linkPart(s, i, st.Fences, drawn); err != nil {
			return err
		}
	}
	setting{m}.hold(s)
	return ld.linkBound(s, st.Ends, st.Requested, true)
}

// linkPart makes a set the owner of one of its locks. A phase has begun with its first share, or with a set.
func (ld *loader) linkPart(s *set, i int, fences []uint64, drawn map[uint64]*lock) error {
	p := &s.parts[i]
	l := ld.m.locks.byName[p.key[1:]]
	switch {
	case l == nil:
		l = ld.freeLock(p.key)
	case l.owner != nil, l.delayUntil != 0, !p.shared && l.phase().held():
		return errTwice
	}
	if p.lock = l; !p.shared {
		setting{ld.m}.own(p)
		return nil
	}
	n := i - (len(s.parts) - s.shared) // among the shared ones
	phase := fences[n]
	by, taken := drawn[phase]
	switch bySet := phase == s.fence || ld.m.sets.byFence[phase] != nil; {
	case phase == 0, phase > s.fence, l.phase().isLive() && phase != l.phase().fence, taken && by != l && !bySet:
		return errFence
	}
	setting{ld.m}.share(p, s.firstNumber()+uint64(n))
	l.phase().fence = phase
	return nil
}

// linkSetWaiters fills the queues of sets in the order of the positions.
func (ld *loader) linkSetWaiters() error {
	slices.SortFunc(ld.setWaiters, func(a, b pending[set, *wire.SetWaiterState]) int {
		return cmp.Compare(a.of.position, b.of.position)
	})
	taken := make(map[uint64]bool)
	for _, p := range ld.waiters {
		taken[p.of.position] = true
	}
	for _, p := range ld.setWaiters {
		if err := ld.linkSetWaiter(p.of, p.state); err != nil {
			return fmt.Errorf("set in position %d: %w", p.of.position, err)
		}
		if taken[p.of.position] {
			return fmt.Errorf("set in position %d: %w", p.of.position, errTwice)
		}
	}
	if len(ld.passings) > 0 {
		return fmt.Errorf("passed over: %w", errLoose)
	}
	return nil
}

func (ld *loader) linkSetWaiter(s *set, st *wire.SetWaiterState) (err error) {
	m := ld.m
	id, _ := wire.IDFrom(st.Session)
	s.session = m.sessions[id]
	if s.ticket, err = ld.ticket(st.Incarnation, st.Seq); err != nil {
		return err
	}
	switch {
	case s.session == nil, s.ticket == ticket{}, ld.isLoose(s.ticket, s.session):
		return errLoose
	case s.position > m.positions, !m.soundLabel(s.label, s.since, true), s.maxHold != 0 && !ld.soundMaxHold(s.maxHold),
		s.refuses && !(deadlocks{m}).seesReservations():
		return errRange
	}
	for i := range s.parts {
		p := &s.parts[i]
		if p.lock = m.locks.byName[p.key[1:]]; p.lock == nil {
			p.lock = ld.freeLock(p.key)
		}
		if p.shared {
			sharing{m}.sharedBy(p.lock)
		}
	}
	s.passed = ld.passings[s.position]
	delete(ld.passings, s.position)
	setting{m}.join(s)
	return nil
}

// checkSetWaiters checks that each set that waits has to.
func (ld *loader) checkSetWaiters() error {
	for _, p := range ld.setWaiters {
		if x := (setting{ld.m}); !p.of.session.dead() && x.hasFences(p.of) && x.obstacle(p.of) == nil {
			return fmt.Errorf("set in position %d: %w", p.of.position, errRange)
		}
	}
	return nil
}
