package cluster

import (
	"maps"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// window is how far a ticket may be ahead of the acknowledged floor before it
// is held back. The machine refuses tickets further ahead than its own bound,
// which is at least this one.
const window = 4096

// tickets holds the calls of this process from the moment that they got a
// ticket to their last outcome. A call is open until its first outcome: its
// command is sent again whenever it may have been lost. A call that was
// answered "more follows" is awaiting: the log will bring the rest by itself.
type tickets struct {
	incarnation wire.ID
	floor       uint64  // every ticket up to here has had its first outcome
	open        []*open // of floor+1, floor+2, ...; nil where it was answered
	unsent      int     // open[unsent:] were never handed on
	calls       int     // open calls
	awaiting    map[uint64]Call
}

type open struct {
	seq     uint64
	command []byte
	call    Call
	due     uint64 // tick at which it is to be sent again
	pause   uint64 // ticks to the sending after that
}

// Ticks until a command is sent again whose outcome has not come: at first
// soon, as something was probably lost, then ever more rarely, as the group is
// probably busy or out of reach.
const (
	firstResend = 3
	maxResend   = 48
)

func newTickets(incarnation wire.ID) *tickets {
	return &tickets{incarnation: incarnation, awaiting: make(map[uint64]Call)}
}

func (t *tickets) add(command []byte, call Call) {
	seq := t.floor + uint64(len(t.open)) + 1
	t.open = append(t.open, &open{seq: seq, command: command, call: call, pause: firstResend})
	t.calls++
}

// fresh takes the commands that were never handed on, as far as the window lets them.
func (t *tickets) fresh(tick uint64) []*wire.Call {
	end := min(len(t.open), window)
	if t.unsent >= end {
		return nil
	}
	calls := make([]*wire.Call, 0, end-t.unsent)
	for _, o := range t.open[t.unsent:end] {
		if o != nil { // cancelled in time
			calls = append(calls, o.send(tick))
		}
	}
	t.unsent = end
	return calls
}

// overdue takes the commands whose outcome should have come by now.
func (t *tickets) overdue(tick uint64) []*wire.Call {
	var calls []*wire.Call
	for _, o := range t.open[:t.unsent] {
		if o != nil && o.due <= tick {
			calls = append(calls, o.send(tick))
		}
	}
	return calls
}

// handed takes every command that was handed on before, because whoever had
// them may have gone.
func (t *tickets) handed(tick uint64) []*wire.Call {
	for _, o := range t.open[:t.unsent] {
		if o != nil {
			o.due, o.pause = tick, firstResend
		}
	}
	return t.overdue(tick)
}

func (o *open) send(tick uint64) *wire.Call {
	o.due = tick + o.pause
	o.pause = min(2*o.pause, maxResend)
	return &wire.Call{Seq: o.seq, Command: o.command}
}

func (t *tickets) isOpen(seq uint64) bool {
	i := seq - t.floor - 1
	return seq > t.floor && i < uint64(len(t.open)) && t.open[i] != nil
}

// outcome finds the call that an outcome is for. The first outcome closes the
// ticket; nil means that the outcome was seen before.
func (t *tickets) outcome(seq uint64, more bool) Call {
	if t.isOpen(seq) {
		i := int(seq - t.floor - 1)
		call := t.open[i].call
		t.close(i)
		if more {
			t.awaiting[seq] = call
		}
		return call
	}
	if more {
		return nil
	}
	call := t.awaiting[seq]
	delete(t.awaiting, seq)
	return call
}

// cancel drops a call whose command was never handed on; false means that it
// was, so that only its outcome can tell.
func (t *tickets) cancel(call Call) bool {
	for i := t.unsent; i < len(t.open); i++ {
		if o := t.open[i]; o != nil && o.call == call {
			t.close(i)
			return true
		}
	}
	return false
}

func (t *tickets) close(i int) {
	t.open[i] = nil
	t.calls--
	gone := 0
	for gone < len(t.open) && t.open[gone] == nil {
		gone++
	}
	t.open = t.open[gone:]
	t.floor += uint64(gone)
	t.unsent = max(t.unsent-gone, 0)
	if len(t.open) == 0 {
		t.open = nil // let the array behind it go
	}
}

// awaitingInOrder lists the tickets that await a second outcome: in an order, so
// that a simulation repeats.
func (t *tickets) awaitingInOrder() []uint64 { return slices.Sorted(maps.Keys(t.awaiting)) }

// drain takes every call that still waits for something, each kind in ticket
// order; none of them will hear anything further.
func (t *tickets) drain() []Call {
	var calls []Call
	for _, o := range t.open {
		if o != nil {
			calls = append(calls, o.call)
		}
	}
	for _, seq := range t.awaitingInOrder() {
		calls = append(calls, t.awaiting[seq])
	}
	*t = *newTickets(t.incarnation)
	return calls
}
