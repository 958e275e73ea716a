package machine

import (
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// appendState appends a record's durable form. Equal states have equal bytes, which the
// digests that members compare rely on.
func appendState(w *wire.Writer, r record) {
	if p, ok := r.(plain); ok && p.fields(w) {
		return
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(w.Buf, r.state())
	if err == nil {
		w.Buf = encoded
	}
	// The only possible error is a string that is not UTF-8, and the decoder of commands
	// lets none in.
}

func encode(r record) []byte {
	w := wire.Writer{Buf: []byte{}}
	appendState(&w, r)
	return w.Buf
}

// plain is a record that nearly every entry changes. It writes the fields of its state
// without reflection, to the same bytes; false: it cannot, and has written nothing.
type plain interface{ fields(w *wire.Writer) bool }

var _ = []plain{(*lock)(nil), (*share)(nil), (*permit)(nil), stored{}, (*answer)(nil), (*incarnation)(nil)}

func (l *lock) fields(w *wire.Writer) bool {
	if l.owner != nil {
		w.Bytes(1, l.owner.id[:])
	}
	w.Number(2, l.handle)
	w.Number(3, uint64(l.holds))
	w.Number(4, l.fence)
	if l.ticket != (ticket{}) {
		w.Bytes(5, l.ticket.by.id[:])
		w.Number(6, l.ticket.seq)
	}
	w.Number(7, uint64(l.delayUntil))
	if leader := l.leader(); leader != nil {
		w.Bytes(9, leader.Value)
	}
	w.Flag(10, l.lingering)
	w.Number(11, uint64(l.since))
	w.String(12, l.label())
	l.bound().fields(w)
	return true
}

func (s stored) fields(w *wire.Writer) bool {
	r := s.reply
	if r.Detail != "" || r.Holder != nil || r.Cycle != nil || r.Set != nil || r.Run != nil || len(r.Keys)+len(r.Checks) > 0 {
		return false
	}
	w.Number(1, uint64(r.Code))
	w.Number(2, r.Fence)
	w.Number(3, uint64(r.Holds))
	w.Number(4, uint64(r.Delay))
	w.Number(5, r.Index)
	w.Number(8, uint64(r.Limit))
	w.Number(9, uint64(r.Op))
	w.Number(11, uint64(r.Position))
	if r.LockDelay|int64(r.Block)|int64(r.Allowed)|r.Now == 0 && r.Share == 0 && len(r.Trace)+len(r.Slots) == 0 {
		return true // most have none of the others
	}
	w.Number(13, uint64(r.LockDelay))
	w.Number(14, uint64(r.Block))
	w.Bytes(15, r.Trace)
	w.Number(16, r.Share)
	w.Numbers(17, r.Slots)
	w.Number(18, uint64(r.Allowed))
	w.Number(30, uint64(r.Now))
	return true
}

func (p *permit) fields(w *wire.Writer) bool {
	if p.owner != nil {
		w.Bytes(1, p.owner.id[:])
	}
	w.Number(2, uint64(p.n))
	if p.ticket != (ticket{}) {
		w.Bytes(3, p.ticket.by.id[:])
		w.Number(4, p.ticket.seq)
	}
	w.Number(5, uint64(p.delayUntil))
	w.Numbers(7, p.slots)
	p.end.fields(w)
	return true
}

func (inc *incarnation) fields(w *wire.Writer) bool {
	w.Number(1, inc.member)
	w.Number(2, uint64(inc.ttl))
	w.Number(3, uint64(inc.renewed))
	w.Number(4, inc.window.floor)
	w.Flag(5, inc.client)
	w.Number(6, uint64(inc.until))
	w.Number(7, inc.barred)
	return true
}

func (a *answer) fields(w *wire.Writer) bool {
	w.Buf = append(w.Buf, a.encoded...)
	return true
}
