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

const (
	// maxSentBytes bounds the ordinary commands that are on their way. It is several
	// entries, so that the leader never waits for the next one, and no more, so that
	// they queue here, where urgent commands overtake them.
	maxSentBytes = 4 << 20
	// maxUrgentBytes bounds the urgent commands without an outcome: more than the
	// releases of all that one session can hold.
	maxUrgentBytes = 256 << 20
	callOverhead   = 128 // approximate memory of a call without its command
)

// tickets holds the calls of this process until their last outcome. A call is queued
// until there is a place in the window, urgent ones first, and gets its ticket when its
// command is sent. It is then pending until its first outcome, and its command is
// retried. A call whose first outcome announces another one is awaiting that.
type tickets struct {
	gated       bool // the first ticket registers the incarnation: no other is issued before its outcome
	urgent      []*pendingCall
	ordinary    []*pendingCall
	floor       uint64         // every ticket up to here has had its first outcome
	pending     []*pendingCall // pending[i] has ticket floor+1+i; nil if it has its outcome
	calls       int            // queued and pending
	bytes       int            // of the ordinary ones among calls
	urgentBytes int            // of the urgent ones
	sentBytes   int            // of the ordinary ones that are pending
	awaiting    map[uint64]Call
}

type pendingCall struct {
	seq     uint64 // 0: queued
	command []byte
	call    Call
	urgent  bool
	due     uint64 // tick of the next retry
	pause   uint64 // ticks from that to the following retry
}

func (o *pendingCall) size() int { return len(o.command) + callOverhead }

func (o *pendingCall) firstRetry() uint64 {
	if o.urgent {
		return firstRetryUrgent
	}
	return firstRetry
}

// Ticks until a command without an outcome is retried. They double. What the leader or
// a connection has lost is retried at once when either changes, so these are for rare
// losses: an ordinary command without an outcome is probably queued at the leader, and a
// retry costs bandwidth. An urgent one is small and rare.
const (
	firstRetryUrgent = 3
	firstRetry       = 12
	maxRetry         = 48
)

// outgoing is commands to send, by lane.
type outgoing struct{ urgent, ordinary []*wire.Call }

func (l *outgoing) add(o *pendingCall, tick uint64) {
	o.due = tick + o.pause
	o.pause = min(2*o.pause, maxRetry)
	lane := &l.ordinary
	if o.urgent {
		lane = &l.urgent
	}
	*lane = append(*lane, &wire.Call{Seq: o.seq, Command: o.command})
}

func newTickets() *tickets {
	return &tickets{awaiting: make(map[uint64]Call)}
}

// admits reports whether the limits admit another command of that many bytes.
func (t *tickets) admits(size int, urgent bool, maxCalls, maxBytes int) bool {
	if urgent {
		return t.urgentBytes+size+callOverhead <= maxUrgentBytes
	}
	return t.backlog().Admits(size, maxCalls, maxBytes)
}

func (t *tickets) backlog() Backlog { return Backlog{t.calls, t.bytes} }

func (t *tickets) add(command []byte, call Call, urgent bool) {
	o := &pendingCall{command: command, call: call, urgent: urgent}
	o.pause = o.firstRetry()
	if urgent {
		t.urgent = append(t.urgent, o)
	} else {
		t.ordinary = append(t.ordinary, o)
	}
	t.count(o, 1)
}

// count adds a call to the totals, or with -1 removes it.
func (t *tickets) count(o *pendingCall, sign int) {
	t.calls += sign
	if o.urgent {
		t.urgentBytes += sign * o.size()
	} else {
		t.bytes += sign * o.size()
	}
}

// issueTickets issues tickets to queued calls, within the window, and returns their
// commands.
func (t *tickets) issueTickets(tick uint64) (out outgoing) {
	for len(t.urgent) > 0 && t.hasPlace(window) {
		t.issue(&t.urgent, &out, tick)
	}
	for len(t.ordinary) > 0 && t.hasPlace(ordinaryWindow) {
		size := t.ordinary[0].size()
		if t.sentBytes > 0 && t.sentBytes+size > maxSentBytes {
			break
		}
		t.sentBytes += size
		t.issue(&t.ordinary, &out, tick)
	}
	return out
}

func (t *tickets) hasPlace(limit int) bool {
	if t.gated && t.floor == 0 {
		limit = 1
	}
	return len(t.pending) < limit
}

func (t *tickets) issue(queue *[]*pendingCall, out *outgoing, tick uint64) {
	o := (*queue)[0]
	(*queue)[0] = nil
	if *queue = (*queue)[1:]; len(*queue) == 0 {
		*queue = nil // frees the array
	}
	o.seq = t.floor + uint64(len(t.pending)) + 1
	t.pending = append(t.pending, o)
	out.add(o, tick)
}

// overdue returns the commands whose retry is due.
func (t *tickets) overdue(tick uint64) (out outgoing) {
	for _, o := range t.pending {
		if o != nil && o.due <= tick {
			out.add(o, tick)
		}
	}
	return out
}

// retryAll returns the commands of all pending calls: a former leader or connection may
// have lost them.
func (t *tickets) retryAll(tick uint64) outgoing {
	for _, o := range t.pending {
		if o != nil {
			o.due, o.pause = tick, o.firstRetry()
		}
	}
	return t.overdue(tick)
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
			t.count((*queue)[i], -1)
			*queue = slices.Delete(*queue, i, i+1)
			return true
		}
	}
	return false
}

func (t *tickets) close(i int) {
	o := t.pending[i]
	t.pending[i] = nil
	t.count(o, -1)
	if !o.urgent {
		t.sentBytes -= o.size()
	}
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
