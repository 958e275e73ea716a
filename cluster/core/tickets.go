package core

import (
	"maps"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// window is how far a ticket may be ahead of the acknowledged floor. The machine
// refuses tickets further ahead than its own bound, which is larger. The last
// places are kept for urgent commands, so that a burst of others cannot hold up
// the renewals that keep the locks.
const (
	window         = 4096
	ordinaryWindow = window - 256
)

// tickets holds the calls of this process until their last outcome. A call
// waits for a place in the window, urgent ones first; it gets its ticket when it
// is handed on. From then on it is open until its first outcome: its command is
// sent again whenever it may have been lost. A call that was answered "more
// follows" is awaiting: the log will bring the rest by itself.
type tickets struct {
	gated    bool // the first ticket registers the incarnation: none follows before its outcome
	urgent   []*open
	ordinary []*open
	floor    uint64  // every ticket up to here has had its first outcome
	open     []*open // of floor+1, floor+2, ...; nil where it was answered
	calls    int     // waiting and open
	awaiting map[uint64]Call
}

type open struct {
	seq     uint64 // 0 while it waits
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

func newTickets() *tickets {
	return &tickets{awaiting: make(map[uint64]Call)}
}

func (t *tickets) add(command []byte, call Call, urgent bool) {
	o := &open{command: command, call: call, pause: firstResend}
	if urgent {
		t.urgent = append(t.urgent, o)
	} else {
		t.ordinary = append(t.ordinary, o)
	}
	t.calls++
}

// fresh gives tickets to the calls that wait, as far as the window lets it, and
// takes their commands.
func (t *tickets) fresh(tick uint64) []*wire.Call {
	calls := t.issue(nil, &t.urgent, window, tick)
	return t.issue(calls, &t.ordinary, ordinaryWindow, tick)
}

func (t *tickets) issue(calls []*wire.Call, queue *[]*open, limit int, tick uint64) []*wire.Call {
	if t.gated && t.floor == 0 {
		limit = 1
	}
	for len(*queue) > 0 && len(t.open) < limit {
		o := (*queue)[0]
		(*queue)[0] = nil
		*queue = (*queue)[1:]
		o.seq = t.floor + uint64(len(t.open)) + 1
		t.open = append(t.open, o)
		calls = append(calls, o.send(tick))
	}
	if len(*queue) == 0 {
		*queue = nil // let the array behind it go
	}
	return calls
}

// overdue takes the commands whose outcome should have come by now.
func (t *tickets) overdue(tick uint64) []*wire.Call {
	var calls []*wire.Call
	for _, o := range t.open {
		if o != nil && o.due <= tick {
			calls = append(calls, o.send(tick))
		}
	}
	return calls
}

// handed takes every command that was handed on before, because whoever had
// them may have gone.
func (t *tickets) handed(tick uint64) []*wire.Call {
	for _, o := range t.open {
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

// cancel drops a call that still waits for its ticket; false means that its
// command was handed on, so that only its outcome can tell.
func (t *tickets) cancel(call Call) bool {
	for _, queue := range []*[]*open{&t.urgent, &t.ordinary} {
		if i := slices.IndexFunc(*queue, func(o *open) bool { return o.call == call }); i >= 0 {
			*queue = slices.Delete(*queue, i, i+1)
			t.calls--
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
	if len(t.open) == 0 {
		t.open = nil // let the array behind it go
	}
}

// awaitingInOrder lists the tickets that await a second outcome: in an order, so
// that a simulation repeats.
func (t *tickets) awaitingInOrder() []uint64 { return slices.Sorted(maps.Keys(t.awaiting)) }

// drain takes every call that still waits for something, each kind in its order;
// none of them will hear anything further.
func (t *tickets) drain() []Call {
	var calls []Call
	for _, o := range slices.Concat(t.open, t.urgent, t.ordinary) {
		if o != nil {
			calls = append(calls, o.call)
		}
	}
	for _, seq := range t.awaitingInOrder() {
		calls = append(calls, t.awaiting[seq])
	}
	*t = *newTickets()
	return calls
}
