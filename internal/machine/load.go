package machine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

var (
	// ErrCorrupt marks pairs that no machine can have written.
	ErrCorrupt = errors.New("machine: the stored state is damaged")
	// ErrNewer marks pairs that a later version wrote.
	ErrNewer = errors.New("machine: the stored state was written by a newer version")
)

// Load rebuilds the machine from all changes written so far, sorted by key,
// none at all being the machine before the first entry. The bytes are copied.
func Load(pairs iter.Seq2[[]byte, []byte]) (*Machine, error) {
	ld := &loader{m: New()}
	for key, value := range pairs {
		// The version comes after pairs that it tells about: go on to see it.
		if err := ld.pair(string(key), value); err != nil && ld.err == nil {
			ld.err = fmt.Errorf("%w: key %q: %w", ErrCorrupt, key, err)
		}
	}
	switch {
	case ld.version > wire.StateVersion:
		return nil, fmt.Errorf("%w: version %d; this one reads up to %d", ErrNewer, ld.version, wire.StateVersion)
	case ld.err != nil:
		return nil, ld.err
	}
	if err := ld.link(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return ld.m, nil
}

// loader gathers what refers to something else, to be linked when all is read.
type loader struct {
	m        *Machine
	version  uint32 // 0: none read
	pairs    int
	err      error
	sessions []pending[session, *wire.SessionState]
	locks    []pending[lock, *wire.LockState]
	waiters  []pending[waiter, *wire.WaiterState]
	tickets  []pending[wire.Ticket, *wire.Reply]
}

// pending is a thing read, and the state from which it is to be linked.
type pending[T, S any] struct {
	of    *T
	state S
	lock  string // of a waiter
}

var (
	errShape  = errors.New("the key or a field has a wrong length")
	errKind   = errors.New("the kind of key is not known")
	errRange  = errors.New("a number is out of range")
	errTwice  = errors.New("the key comes twice")
	errLoose  = errors.New("it refers to what does not exist")
	errAbsent = errors.New("the machine's own record is missing")
)

func (ld *loader) pair(key string, value []byte) error {
	if key == "" {
		return errShape
	}
	ld.pairs++
	rest := key[1:]
	switch key[0] {
	case machineKey[0]:
		return ld.machine(rest, value)
	case memoryKind:
		return ld.memory(rest, value)
	case incarnationKind:
		return ld.incarnation(rest, value)
	case sessionKind:
		return ld.session(rest, value)
	case lockKind:
		return ld.lock(rest, value)
	case waiterKind:
		return ld.waiter(rest, value)
	case ticketKind:
		return ld.ticket(rest, value)
	}
	return errKind
}

func (ld *loader) machine(rest string, value []byte) error {
	var st wire.MachineState
	if err := proto.Unmarshal(value, &st); err != nil {
		return err
	}
	ld.version = st.Version
	if rest != "" || st.Version == 0 {
		return errShape
	}
	if st.Now < 0 || st.Fences > maxFences || st.Epoch > maxEpoch {
		return errRange
	}
	m := ld.m
	m.now, m.fences, m.epoch, m.positions = st.Now, st.Fences, st.Epoch, st.Positions
	return nil
}

func (ld *loader) memory(rest string, value []byte) error {
	var st wire.MemberState
	if err := proto.Unmarshal(value, &st); err != nil {
		return err
	}
	id, ok := wire.IDFrom(st.Incarnation)
	if len(rest) != 8 || !ok {
		return errShape
	}
	member := binary.BigEndian.Uint64([]byte(rest))
	if ld.m.members[member] != nil {
		return errTwice
	}
	ld.m.members[member] = &memory{member: member, boot: st.Boot, attempt: st.Attempt, incarnation: id}
	return nil
}

func (ld *loader) incarnation(rest string, value []byte) error {
	var st wire.IncarnationState
	if err := proto.Unmarshal(value, &st); err != nil {
		return err
	}
	id, ok := wire.IDFrom([]byte(rest))
	switch {
	case !ok:
		return errShape
	case st.Ttl < MinTTL || st.Ttl > MaxTTL || st.Renewed < 0:
		return errRange
	case ld.m.incarnation(id) != nil:
		return errTwice
	}
	ld.m.insert(&incarnation{
		id: id, member: st.Member, ttl: st.Ttl, renewed: st.Renewed, window: window{floor: st.Floor},
	})
	return nil
}

func (ld *loader) session(rest string, value []byte) error {
	st := new(wire.SessionState)
	if err := proto.Unmarshal(value, st); err != nil {
		return err
	}
	id, ok := wire.IDFrom([]byte(rest))
	switch {
	case !ok:
		return errShape
	case st.Ttl < MinTTL || st.Ttl > MaxTTL || st.LockDelay < 0 || st.LockDelay > MaxLockDelay:
		return errRange
	case ld.m.sessions[id] != nil:
		return errTwice
	}
	s := &session{id: id, name: st.Name, ttl: st.Ttl, lockDelay: st.LockDelay, createIndex: st.CreateIndex}
	ld.m.sessions[id] = s
	ld.sessions = append(ld.sessions, pending[session, *wire.SessionState]{of: s, state: st})
	return nil
}

func (ld *loader) lock(rest string, value []byte) error {
	st := new(wire.LockState)
	if err := proto.Unmarshal(value, st); err != nil {
		return err
	}
	l := &lock{
		key: lockKey(rest), handle: st.Handle, holds: st.Holds, fence: st.Fence, delayUntil: st.DelayUntil,
	}
	l.ticket.Seq = st.Seq
	if st.Seq != 0 {
		id, ok := wire.IDFrom(st.Incarnation)
		if !ok {
			return errShape
		}
		l.ticket.Incarnation = id
	}
	if ld.m.locks[rest] != nil {
		return errTwice
	}
	ld.m.locks[rest] = l
	ld.locks = append(ld.locks, pending[lock, *wire.LockState]{of: l, state: st})
	return nil
}

func (ld *loader) waiter(rest string, value []byte) error {
	st := new(wire.WaiterState)
	if err := proto.Unmarshal(value, st); err != nil {
		return err
	}
	name, position, ok := strings.Cut(rest, "\x00")
	if !ok || len(position) != 8 {
		return errShape
	}
	w := &waiter{handle: st.Handle, seq: st.Seq, position: binary.BigEndian.Uint64([]byte(position))}
	ld.waiters = append(ld.waiters, pending[waiter, *wire.WaiterState]{of: w, state: st, lock: name})
	return nil
}

func (ld *loader) ticket(rest string, value []byte) error {
	st := new(wire.Reply)
	if err := proto.Unmarshal(value, st); err != nil {
		return err
	}
	if len(rest) != 16+8 {
		return errShape
	}
	t := &wire.Ticket{Seq: binary.BigEndian.Uint64([]byte(rest[16:]))}
	t.Incarnation, _ = wire.IDFrom([]byte(rest[:16]))
	ld.tickets = append(ld.tickets, pending[wire.Ticket, *wire.Reply]{of: t, state: st})
	return nil
}
