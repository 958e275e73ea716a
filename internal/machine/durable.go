package machine

import (
	"encoding/binary"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// The durable form of the state, one key for each thing that changes alone. A
// waiter has a key of its own, so that joining a long queue is one small
// write. Names contain no NUL, so the keys of two queues never mix.
const (
	machineKey = "m" // MachineState

	memoryKind      = 'M' // + member                        MemberState
	incarnationKind = 'i' // + incarnation                   IncarnationState
	lockKind        = 'l' // + name                          LockState
	sessionKind     = 's' // + session                       SessionState
	ticketKind      = 't' // + incarnation + sequence number Reply
	waiterKind      = 'w' // + name + NUL + position         WaiterState
)

func lockKey(name string) string { return string(lockKind) + name }

func ticketKey(t wire.Ticket) string {
	b := make([]byte, 0, 1+len(t.Incarnation)+8)
	b = append(append(b, ticketKind), t.Incarnation[:]...)
	return string(binary.BigEndian.AppendUint64(b, t.Seq))
}

func (k *memory) key() string {
	return string(binary.BigEndian.AppendUint64([]byte{memoryKind}, k.member))
}

func (inc *incarnation) key() string { return string(incarnationKind) + string(inc.id[:]) }

func (s *session) key() string { return string(sessionKind) + string(s.id[:]) }

func (w *waiter) key() string {
	name := w.lock.name()
	b := make([]byte, 0, 1+len(name)+1+8)
	b = append(append(append(b, waiterKind), name...), 0)
	return string(binary.BigEndian.AppendUint64(b, w.position))
}

// stored is an outcome in its incarnation's window.
type stored struct{ reply *wire.Reply }

func (s stored) state() proto.Message { return s.reply }

func (m *Machine) state() proto.Message {
	return &wire.MachineState{
		Version: wire.StateVersion, Now: m.now,
		Fences: m.fences, Epoch: m.epoch, Positions: m.positions,
	}
}

func (k *memory) state() proto.Message {
	return &wire.MemberState{Boot: k.boot, Attempt: k.attempt, Incarnation: k.incarnation[:]}
}

func (inc *incarnation) state() proto.Message {
	return &wire.IncarnationState{
		Member: inc.member, Ttl: inc.ttl, Renewed: inc.renewed, Floor: inc.window.floor,
	}
}

func (s *session) state() proto.Message {
	return &wire.SessionState{
		Name: s.name, Incarnation: s.incarnation.id[:], Member: s.incarnation.member,
		Ttl: s.ttl, LockDelay: s.lockDelay, CreateIndex: s.createIndex,
	}
}

func (l *lock) state() proto.Message {
	st := &wire.LockState{
		Handle: l.handle, Holds: l.holds, Fence: l.fence,
		Seq: l.ticket.Seq, DelayUntil: l.delayUntil,
	}
	if l.owner != nil {
		st.Session = l.owner.id[:]
	}
	if l.ticket != (wire.Ticket{}) {
		st.Incarnation = l.ticket.Incarnation[:]
	}
	return st
}

func (w *waiter) state() proto.Message {
	return &wire.WaiterState{
		Session: w.session.id[:], Handle: w.handle,
		Incarnation: w.incarnation.id[:], Seq: w.seq,
	}
}
