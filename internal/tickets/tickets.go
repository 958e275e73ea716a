// Package tickets keeps the calls of one process until their outcomes: it gives each command
// its ticket, within a window, and decides when to retry it. A member's core and a client
// that is no member use it alike.
package tickets

import (
	"maps"
	"slices"

	"github.com/conclave-go/conclave/internal/budget"
	"github.com/conclave-go/conclave/internal/wire"
)

// Window bounds how far a ticket may be ahead of the floor. The machine has a larger
// bound of its own. The last places are reserved for urgent commands, so that a burst of
// others cannot delay renewals.
const (
	Window         = 4096
	ordinaryWindow = Window - 256
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

	// MaxOutcomes and maxOrdinaryOutcomes bound what the outcomes above the floor count at most,
	// whatever their commands return: see wire.OutcomeBound. The group's limits are larger, so
	// that it refuses nothing because of outcomes that are not acknowledged yet.
	MaxOutcomes         = 12 << 20
	maxOrdinaryOutcomes = MaxOutcomes - 4<<20
)

// Table holds the calls of one process until their last outcome. It is not safe for
// concurrent use. A call is queued
// until there is a place in the window, urgent ones first, and gets its ticket when its
// command is sent. It is then pending until its first outcome, and its command is
// retried. A call whose first outcome announces another one is awaiting that.
type Table[C comparable] struct {
	budget      *budget.Budget // of several tables; nil: it shares none
	gated       bool           // the first ticket registers the incarnation: no other is issued before its outcome
	refused     bool           // the group has refused that: none is issued at all
	urgent      []*pendingCall[C]
	ordinary    []*pendingCall[C]
	floor       uint64            // every ticket up to here has had its first outcome
	pending     []*pendingCall[C] // pending[i] has ticket floor+1+i; nil if it has its outcome
	bounds      []int             // of the outcomes of the same tickets
	outcomes    int               // the sum of bounds
	calls       int               // queued and pending
	bytes       int               // of the ordinary ones among calls
	urgentBytes int               // of the urgent ones
	sentBytes   int               // of the ordinary ones that are pending
	awaiting    map[uint64]C
}

type pendingCall[C comparable] struct {
	seq     uint64 // 0: queued
	command []byte
	call    C
	urgent  bool
	due     uint64 // tick of the next retry
	pause   uint64 // ticks from that to the following retry
}

func (o *pendingCall[C]) size() int { return len(o.command) + callOverhead }

func (o *pendingCall[C]) firstRetry() uint64 {
	if o.urgent {
		return FirstRetryUrgent
	}
	return firstRetry
}

// Ticks until a command without an outcome is retried. They double. What the leader or
// a connection has lost is retried at once when either changes, so these are for rare
// losses: an ordinary command without an outcome is probably queued at the leader, and a
// retry costs bandwidth. An urgent one is small and rare.
const (
	FirstRetryUrgent = 3
	firstRetry       = 12
	maxRetry         = 48
)

// Outgoing is commands to send, by lane.
type Outgoing struct{ Urgent, Ordinary []*wire.Call }

func add[C comparable](l *Outgoing, o *pendingCall[C], tick uint64) {
	o.due = tick + o.pause
	o.pause = min(2*o.pause, maxRetry)
	lane := &l.Ordinary
	if o.urgent {
		lane = &l.Urgent
	}
	*lane = append(*lane, &wire.Call{Seq: o.seq, Command: o.command})
}

// New returns an empty table.
func New[C comparable]() *Table[C] {
	return &Table[C]{awaiting: make(map[uint64]C)}
}

// Share has the table count the bytes of its ordinary commands in a budget from now on, unless that is nil. It must be empty.
func (t *Table[C]) Share(budget *budget.Budget) { t.budget = budget }

// Admits reports whether the limits admit another command of that many bytes, and what other tables leave of the budget. Both are for ordinary commands.
func (t *Table[C]) Admits(size int, urgent bool, maxCalls, maxBytes int) bool {
	if urgent {
		return t.urgentBytes+size+callOverhead <= maxUrgentBytes
	}
	return t.Backlog().Admits(size, maxCalls, t.budget.Allowed(maxBytes))
}

// Backlog returns the calls without an outcome.
func (t *Table[C]) Backlog() Backlog { return Backlog{t.calls, t.bytes} }

// Add queues a call.
func (t *Table[C]) Add(command []byte, call C, urgent bool) {
	o := &pendingCall[C]{command: command, call: call, urgent: urgent}
	o.pause = o.firstRetry()
	if urgent {
		t.urgent = append(t.urgent, o)
	} else {
		t.ordinary = append(t.ordinary, o)
	}
	t.count(o, 1)
}

// count adds a call to the totals, or with -1 removes it.
func (t *Table[C]) count(o *pendingCall[C], sign int) {
	t.calls += sign
	if o.urgent {
		t.urgentBytes += sign * o.size()
	} else {
		t.bytes += sign * o.size()
		t.budget.Take(sign * o.size())
	}
}

// Issue issues tickets to queued calls, within the window, and returns their
// commands.
func (t *Table[C]) Issue(tick uint64) (out Outgoing) {
	for len(t.urgent) > 0 && t.hasPlace(Window) && t.mayLeave(t.urgent[0], MaxOutcomes) {
		t.issue(&t.urgent, &out, tick)
	}
	for len(t.ordinary) > 0 && t.hasPlace(ordinaryWindow) && t.mayLeave(t.ordinary[0], maxOrdinaryOutcomes) {
		size := t.ordinary[0].size()
		if t.sentBytes > 0 && t.sentBytes+size > maxSentBytes {
			break
		}
		t.sentBytes += size
		t.issue(&t.ordinary, &out, tick)
	}
	return out
}

func (t *Table[C]) hasPlace(limit int) bool {
	if t.gated && t.floor == 0 {
		limit = 1
	}
	return !t.refused && len(t.pending) < limit
}

// mayLeave reports whether the group may keep the call's outcome besides those above the floor.
func (t *Table[C]) mayLeave(o *pendingCall[C], limit int) bool {
	return t.outcomes+wire.OutcomeBound(o.command) <= limit
}

func (t *Table[C]) issue(queue *[]*pendingCall[C], out *Outgoing, tick uint64) {
	o := (*queue)[0]
	(*queue)[0] = nil
	if *queue = (*queue)[1:]; len(*queue) == 0 {
		*queue = nil // frees the array
	}
	o.seq = t.floor + uint64(len(t.pending)) + 1
	t.pending = append(t.pending, o)
	bound := wire.OutcomeBound(o.command)
	t.bounds = append(t.bounds, bound)
	t.outcomes += bound
	add(out, o, tick)
}

// Overdue returns the commands whose retry is due.
func (t *Table[C]) Overdue(tick uint64) (out Outgoing) {
	for _, o := range t.pending {
		if o != nil && o.due <= tick {
			add(&out, o, tick)
		}
	}
	return out
}

// RetryAll returns the commands of all pending calls: a former leader or connection may
// have lost them.
func (t *Table[C]) RetryAll(tick uint64) Outgoing {
	for _, o := range t.pending {
		if o != nil {
			o.due, o.pause = tick, o.firstRetry()
		}
	}
	return t.Overdue(tick)
}

func (t *Table[C]) isPending(seq uint64) bool {
	i := seq - t.floor - 1
	return seq > t.floor && i < uint64(len(t.pending)) && t.pending[i] != nil
}

// Outcome returns the call of an outcome, and false if the outcome is a duplicate. The first
// outcome closes the ticket; more says that another one follows.
func (t *Table[C]) Outcome(seq uint64, more bool) (call C, ok bool) {
	if t.isPending(seq) {
		i := int(seq - t.floor - 1)
		call := t.pending[i].call
		t.close(i)
		if more {
			t.awaiting[seq] = call
		}
		return call, true
	}
	if more {
		return call, false
	}
	return t.Settle(seq)
}

// Awaiting returns the call that awaits the second outcome of a ticket.
func (t *Table[C]) Awaiting(seq uint64) (call C, ok bool) {
	call, ok = t.awaiting[seq]
	return call, ok
}

// Awaits reports whether a second outcome is awaited.
func (t *Table[C]) Awaits() bool { return len(t.awaiting) > 0 }

// Settle removes and returns the call that awaits the second outcome of a ticket.
func (t *Table[C]) Settle(seq uint64) (call C, ok bool) {
	call, ok = t.awaiting[seq]
	delete(t.awaiting, seq)
	return call, ok
}

// Gate makes the next ticket one that registers the process: no other is issued before its
// outcome.
func (t *Table[C]) Gate() { t.gated = true }

// Registered reports whether the gate has been passed.
func (t *Table[C]) Registered() bool { return !t.refused && (!t.gated || t.floor > 0) }

// Refuse notes that the outcome of the first ticket was a refusal to register the process. It removes and returns the calls that have waited for it,
// in order. No other ticket is issued: a late duplicate may register the incarnation after all, and would have applied what was sent under it.
func (t *Table[C]) Refuse() []C {
	t.refused = true
	return t.takeQueued()
}

// Refused reports whether the group has refused to register the process: a call would wait for ever.
func (t *Table[C]) Refused() bool { return t.refused }

// Unanswered reports whether a command that was sent has had no outcome.
func (t *Table[C]) Unanswered() bool { return len(t.pending) > 0 }

// Floor returns the ticket up to which each has had its first outcome.
func (t *Table[C]) Floor() uint64 { return t.floor }

// Cancel drops a queued call. It returns false if the command was sent: then the result
// is unknown until the outcome.
func (t *Table[C]) Cancel(call C) bool {
	for _, queue := range []*[]*pendingCall[C]{&t.urgent, &t.ordinary} {
		if i := slices.IndexFunc(*queue, func(o *pendingCall[C]) bool { return o.call == call }); i >= 0 {
			t.count((*queue)[i], -1)
			*queue = slices.Delete(*queue, i, i+1)
			return true
		}
	}
	return false
}

func (t *Table[C]) close(i int) {
	o := t.pending[i]
	t.pending[i] = nil
	t.count(o, -1)
	if !o.urgent {
		t.sentBytes -= o.size()
	}
	closed := 0
	for closed < len(t.pending) && t.pending[closed] == nil {
		t.outcomes -= t.bounds[closed]
		closed++
	}
	t.pending, t.bounds = t.pending[closed:], t.bounds[closed:]
	t.floor += uint64(closed)
	if len(t.pending) == 0 {
		t.pending, t.bounds = nil, nil // frees the arrays
	}
}

// AwaitingInOrder returns the tickets that await a second outcome, in order, so that
// simulations are deterministic.
func (t *Table[C]) AwaitingInOrder() []uint64 { return slices.Sorted(maps.Keys(t.awaiting)) }

// Drain removes and returns every call, each kind in order: those that were sent, and those that were not. The table is then new.
func (t *Table[C]) Drain() (sent, queued []C) {
	for _, o := range t.pending {
		if o != nil {
			sent = append(sent, o.call)
		}
	}
	for _, seq := range t.AwaitingInOrder() {
		sent = append(sent, t.awaiting[seq])
	}
	queued = t.takeQueued()
	t.budget.Take(-t.bytes)
	shared := t.budget
	*t = *New[C]()
	t.Share(shared)
	return sent, queued
}

// takeQueued removes and returns the calls that were not sent.
func (t *Table[C]) takeQueued() (calls []C) {
	for _, o := range slices.Concat(t.urgent, t.ordinary) {
		t.count(o, -1)
		calls = append(calls, o.call)
	}
	t.urgent, t.ordinary = nil, nil
	return calls
}
