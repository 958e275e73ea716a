package machine

import (
	"encoding/binary"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine/slots"
	"github.com/conclave-go/conclave/internal/wire"
)

// Reading what sessions hold and await, and the keys.

func (ld *loader) lock(key string, value []byte) error {
	st := new(wire.LockState)
	if err := proto.Unmarshal(value, st); err != nil {
		return err
	}
	l := &lock{
		key: key, handle: st.Handle, holds: st.Holds, fence: st.Fence, delayUntil: st.DelayUntil, lingering: st.Lingering,
		since: st.Since,
	}
	ld.m.setLabel(l, st.Label)
	space := l.spaceIn(ld.m)
	if space.byName[l.name()] != nil {
		return errTwice
	}
	space.add(l)
	ld.locks = append(ld.locks, pending[lock, *wire.LockState]{of: l, state: st})
	return nil
}

// ticket finds the ticket that a hold or waiter was read with; it must not have
// obtained anything else. No incarnation and sequence number 0: none.
func (ld *loader) ticket(incarnation []byte, seq uint64) (t ticket, err error) {
	if len(incarnation) == 0 && seq == 0 {
		return ticket{}, nil
	}
	id, ok := wire.IDFrom(incarnation)
	if !ok || seq == 0 {
		return ticket{}, errShape
	}
	if t = (ticket{ld.m.incarnation(id), seq}); t.by == nil {
		t.by = ld.m.goneAs(id)
	}
	if t.by.taken(seq) {
		return ticket{}, errTwice
	}
	return t, nil
}

func (ld *loader) semaphore(rest string, value []byte) error {
	var st wire.SemaphoreState
	if err := proto.Unmarshal(value, &st); err != nil {
		return err
	}
	switch {
	case st.Limit == 0 || st.Limit > MaxPermits:
		return errRange
	case ld.m.semaphores.byName[rest] != nil:
		return errTwice
	}
	s := ld.m.semaphores.add(rest, st.Limit)
	if s.resized = st.Resized; s.resized {
		ld.m.resized++
	}
	return nil
}

// number is the inverse of numbered.
func number(rest string) (of string, n uint64, ok bool) {
	at := len(rest) - 9
	if at < 0 || rest[at] != 0 {
		return "", 0, false
	}
	return rest[:at], binary.BigEndian.Uint64([]byte(rest[at+1:])), true
}

func (ld *loader) permit(rest string, value []byte) error {
	st := new(wire.PermitState)
	if err := proto.Unmarshal(value, st); err != nil {
		return err
	}
	name, fence, ok := number(rest)
	p := &permit{n: st.Permits, fence: fence, delayUntil: st.DelayUntil, slots: st.Slots}
	switch {
	case !ok:
		return errShape
	case len(p.slots) > 0 && (uint64(len(p.slots)) != uint64(p.n) || p.n > MaxSlots || !slots.Valid(p.slots, MaxPermits)):
		return errRange
	}
	ld.permits = append(ld.permits, pending[permit, *wire.PermitState]{of: p, state: st, at: name})
	return nil
}

func (ld *loader) slot(rest string, value []byte) error {
	var st wire.SlotState
	if err := proto.Unmarshal(value, &st); err != nil {
		return err
	}
	name, n, ok := number(rest)
	switch {
	case !ok:
		return errShape
	case n >= MaxPermits, len(st.Session) > MaxName:
		return errRange
	}
	ld.slots = append(ld.slots, &slots.Former{Semaphore: name, Session: st.Session, Number: uint32(n), Position: st.Position})
	return nil
}

func (ld *loader) waiter(rest string, value []byte) error {
	st := new(wire.WaiterState)
	if err := proto.Unmarshal(value, st); err != nil {
		return err
	}
	of, position, ok := number(rest)
	if !ok || len(of) < 2 { // a kind and a name
		return errShape
	}
	w := &waiter{
		handle: st.Handle, permits: st.Permits, value: st.Value, lingering: st.Lingering, position: position,
		label: st.Label, since: st.Since, shared: st.Shared, maxHold: st.MaxHold,
	}
	ld.waiters = append(ld.waiters, pending[waiter, *wire.WaiterState]{of: w, state: st, at: of})
	return nil
}

func (ld *loader) entry(key string, value []byte) error {
	var st wire.KeyState
	if err := proto.Unmarshal(value, &st); err != nil {
		return err
	}
	e := &fact.Entry{
		Key: key, Value: st.Value, Flags: st.Flags, CreateIndex: st.CreateIndex, ModifyIndex: st.ModifyIndex,
		LockIndex: st.LockIndex, Fence: st.Fence,
	}
	if len(st.Session) > 0 {
		id, ok := wire.IDFrom(st.Session)
		if !ok {
			return errShape
		}
		e.Session = id
	}
	if ld.m.keys.get(key) != nil {
		return errTwice
	}
	ld.m.keys.replace(nil, e)
	return nil
}

func (ld *loader) keyDelay(key string, value []byte) error {
	var st wire.KeyDelayState
	if err := proto.Unmarshal(value, &st); err != nil {
		return err
	}
	switch {
	case st.Until <= 0:
		return errRange
	case ld.m.keys.delays[key] != nil:
		return errTwice
	}
	d := &keyDelay{key: key, until: st.Until}
	ld.m.keys.delays[key] = d
	ld.m.delays.Push(d)
	return nil
}
