package core

import (
	"maps"
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// window bounds how far a ticket may be ahead of the floor. The machine has a larger
// bound of its own. The last places are reserved for urgent commands, so that a burst of
// others cannot delay renewals.
const (
	window         = 4096
	ordinaryWindow = window - 256
)

// tickets holds the calls of this process until their last outcome. A call is queued
// until there is a place in the window, urgent ones first, and gets its ticket when its
// command is sent. It is then pending until its first outcome, and its command is
// retried. A call whose first outcome announces another one is awaiting that.
type tickets struct {
	gated    bool // the first ticket registers the incarnation: no other is issued before its outcome
	urgent   []*pendingCall
	ordinary []*pendingCall
	floor    uint64         // every ticket up to here has had its first outcome
	pending  []*pendingCall // pending[i] has ticket floor+1+i; nil if it has its outcome
	calls    int            // queued and pending
	awaiting map[uint64]Call
}

type pendingCall struct {
	seq     uint64 // 0: queued
	command []byte
	call    Call
	due     uint64 // tick of the next retry
	pause   uint64 // ticks from that to the following retry
}

// Ticks until a command without an outcome is retried. They double: at first a message
// was probably lost, later the group is probably busy or unreachable.
const (
	firstRetry = 3
	maxRetry   = 48
)

func newTickets() *tickets {
	return &tickets{awaiting: make(map[uint64]Call)}
}

func (t *tickets) add(command []byte, call Call, urgent bool) {
	o := &pendingCall{command: command, call: call, pause: firstRetry}
	if urgent {
		t.urgent = append(t.urgent, o)
	} else {
		t.ordinary = append(t.ordinary, o)
	}
	t.calls++
}

// issueTickets issues tickets to queued calls, within the window, and returns their
// commands.
func (t *tickets) issueTickets(tick uint64) []*wire.Call {
	calls := t.issueFrom(nil, &t.urgent, window, tick)
	return t.issueFrom(calls, &t.ordinary, ordinaryWindow, tick)
}

func (t *tickets) issueFrom(calls []*wire.Call, queue *[]*pendingCall, limit int, tick uint64) []*wire.Call {
	if t.gated && t.floor == 0 {
		limit = 1
	}
	for len(*queue) > 0 && len(t.pending) < limit {
		o := (*queue)[0]
		(*queue)[0] = nil
		*queue = (*queue)[1:]
		o.seq = t.floor + uint64(len(t.pending)) + 1
		t.pending = append(t.pending, o)
		calls = append(calls, o.send(tick))
	}
	if len(*queue) == 0 {
		*queue = nil // frees the array
	}
	return calls
}

// overdue returns the commands whose retry is due.
func (t *tickets) overdue(tick uint64) []*wire.Call {
	var calls []*wire.Call
	for _, o := range t.pending {
		if o != nil && o.due <= tick {
			calls = append(calls, o.send(tick))
		}
	}
	return calls
}

// retryAll returns the commands of all pending calls: a former leader may have lost them.
func (t *tickets) retryAll(tick uint64) []*wire.Call {
	for _, o := range t.pending {
		if o != nil {
			o.due, o.pause = tick, firstRetry
		}
	}
	return t.overdue(tick)
}

func (o *pendingCall) send(tick uint64) *wire.Call {
	o.due = tick + o.pause
	o.pause = min(2*o.pause, maxRetry)
	return &wire.Call{Seq: o.seq, Command: o.command}
}

func (t *tickets) isPending(seq uint64) bool {
	i := seq - t.floor - 1
	return seq > t.floor && i < uint64(len(t.pending)) && t.pending[i] != nil
}

// outcome returns the call of an outcome; nil: the outcome is a duplicate. The first
// outcome closes the ticket.
func (t *tickets) outcome(seq uint64, more bool) Call {
	if t.isPending(seq) {
		i := int(seq - t.floor - 1)
		call := t.pending[i].call
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

// cancel drops a queued call. It returns false if the command was sent: then the result
// is unknown until the outcome.
func (t *tickets) cancel(call Call) bool {
	for _, queue := range []*[]*pendingCall{&t.urgent, &t.ordinary} {
		if i := slices.IndexFunc(*queue, func(o *pendingCall) bool { return o.call == call }); i >= 0 {
			*queue = slices.Delete(*queue, i, i+1)
			t.calls--
			return true
		}
	}
	return false
}

func (t *tickets) close(i int) {
	t.pending[i] = nil
	t.calls--
	closed := 0
	for closed < len(t.pending) && t.pending[closed] == nil {
		closed++
	}
	t.pending = t.pending[closed:]
	t.floor += uint64(closed)
	if len(t.pending) == 0 {
		t.pending = nil // frees the array
	}
}

// awaitingInOrder returns the tickets that await a second outcome, in order, so that
// simulations are deterministic.
func (t *tickets) awaitingInOrder() []uint64 { return slices.Sorted(maps.Keys(t.awaiting)) }

// drain removes and returns every call, each kind in order.
func (t *tickets) drain() []Call {
	var calls []Call
	for _, o := range slices.Concat(t.pending, t.urgent, t.ordinary) {
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
