package core

import (
	"fmt"
	"slices"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// quietCalls differ by their addresses.
type quietCall struct {
	failed    error
	fails     int
	cancelled []bool // sent?
}

func (c *quietCall) Deliver(wire.Ticket, *wire.Reply, bool)          {}
func (c *quietCall) Cancelled(sent bool)                             { c.cancelled = append(c.cancelled, sent) }
func (c *quietCall) Recheck(wire.Rechecker, wire.Ticket) *wire.Reply { return nil }
func (c *quietCall) Fail(err error)                                  { c.failed, c.fails = err, c.fails+1 }

func newCalls(t *tickets, n int) []*quietCall {
	calls := make([]*quietCall, n)
	for i := range calls {
		calls[i] = new(quietCall)
		t.add(fmt.Append(nil, i+1), calls[i], false)
	}
	return calls
}

func seqs(out outgoing) (list []uint64) {
	for _, c := range slices.Concat(out.urgent, out.ordinary) {
		list = append(list, c.GetSeq())
	}
	return list
}

func wantSeqs(t *testing.T, what string, got outgoing, want ...uint64) {
	t.Helper()
	if !slices.Equal(seqs(got), want) {
		t.Errorf("%s: sent %v, want %v", what, seqs(got), want)
	}
}

func TestTickets_FloorStopsAtHoles(t *testing.T) {
	k := newTickets()
	newCalls(k, 5)
	wantSeqs(t, "fresh", k.issueTickets(0), 1, 2, 3, 4, 5)
	for _, step := range []struct {
		answered, floor uint64
	}{{2, 0}, {4, 0}, {1, 2}, {5, 2}, {3, 5}} {
		if k.outcome(step.answered, false) == nil {
			t.Errorf("the outcome of %d finds no call", step.answered)
		}
		if k.floor != step.floor {
			t.Errorf("after %d the floor is %d, want %d", step.answered, k.floor, step.floor)
		}
	}
	if k.calls != 0 || k.pending != nil {
		t.Errorf("%d calls are open after all were answered", k.calls)
	}
}

// Each outcome reaches its call once, however often the log brings it.
func TestTickets_OutcomeOnce(t *testing.T) {
	k := newTickets()
	calls := newCalls(k, 4)
	k.issueTickets(0)
	for _, step := range []struct {
		name string
		seq  uint64
		more bool
		want Call
	}{
		{"a ticket that was not issued", 5, false, nil},
		{"queued", 1, true, calls[0]},
		{"queued, duplicate", 1, true, nil},
		{"granted", 1, false, calls[0]},
		{"granted, duplicate", 1, false, nil},
		{"a grant before the first outcome", 2, false, calls[1]},
		{"the first outcome after the grant", 2, true, nil},
		{"zero", 0, false, nil},
		{"out of order", 4, false, calls[3]},
		{"out of order, duplicate", 4, false, nil},
		{"out of order, as if queued", 4, true, nil},
		{"in order", 3, false, calls[2]},
	} {
		if got := k.outcome(step.seq, step.more); got != step.want {
			t.Errorf("%s: %v, want %v", step.name, got, step.want)
		}
	}
}

func TestTickets_Window(t *testing.T) {
	k := newTickets()
	newCalls(k, ordinaryWindow+3)
	if n := len(seqs(k.issueTickets(0))); n != ordinaryWindow {
		t.Fatalf("%d were sent, want %d", n, ordinaryWindow)
	}
	wantSeqs(t, "a full window", k.issueTickets(0))
	k.outcome(2, false)
	wantSeqs(t, "a hole", k.issueTickets(0))
	k.outcome(1, false)
	wantSeqs(t, "two behind the floor", k.issueTickets(0), ordinaryWindow+1, ordinaryWindow+2)
}

func TestTickets_Cancel(t *testing.T) {
	k := newTickets()
	calls := newCalls(k, 2)
	k.issueTickets(0)
	later := newCalls(k, 3)
	if k.cancel(calls[0]) {
		t.Error("a call was cancelled after its command was sent")
	}
	if !k.cancel(later[1]) {
		t.Error("a queued call could not be cancelled")
	}
	if k.cancel(later[1]) {
		t.Error("a command was cancelled twice")
	}
	wantSeqs(t, "what is left", k.issueTickets(0), 3, 4)
	for seq := range uint64(4) {
		k.outcome(seq+1, false)
	}
	if k.floor != 4 || k.calls != 0 {
		t.Errorf("the floor is %d, want 4: a cancelled call has no ticket; %d calls", k.floor, k.calls)
	}
}

// Urgent commands are sent before queued ones, and have reserved places in the window.
func TestTickets_UrgentFirst(t *testing.T) {
	k := newTickets()
	newCalls(k, ordinaryWindow+1)
	k.issueTickets(0)
	renewal := new(quietCall)
	k.add([]byte("renewal"), renewal, true)
	wantSeqs(t, "a full window", k.issueTickets(0), ordinaryWindow+1)
	if k.outcome(ordinaryWindow+1, false) != Call(renewal) {
		t.Error("the ticket is not the renewal's")
	}
}

// Nothing reaches the group before the command that registers this process.
func TestTickets_RegistrationFirst(t *testing.T) {
	k := newTickets()
	k.gated = true
	newCalls(k, 3)
	wantSeqs(t, "the registration", k.issueTickets(0), 1)
	wantSeqs(t, "before its outcome", k.issueTickets(1))
	wantSeqs(t, "once more", k.overdue(firstRetry), 1)
	k.outcome(1, false)
	wantSeqs(t, "then", k.issueTickets(4), 2, 3)
}

// A cancelled call makes room at once.
func TestTickets_CancelMakesRoom(t *testing.T) {
	k := newTickets()
	calls := newCalls(k, 3)
	for _, c := range calls {
		if !k.cancel(c) {
			t.Error("not cancelled")
		}
	}
	newCalls(k, 1)
	wantSeqs(t, "the next", k.issueTickets(0), 1)
	if k.floor != 0 || k.calls != 1 {
		t.Errorf("floor %d, %d calls", k.floor, k.calls)
	}
}

// An urgent command is repeated after 3, 6, 12, 24 and then each 48 ticks, another one
// after 12, 24 and then each 48; after a change of leader or connection at once.
func TestTickets_Repetition(t *testing.T) {
	for _, c := range []struct {
		urgent bool
		want   []uint64
	}{{true, []uint64{3, 9, 21, 45, 93, 141, 189}}, {false, []uint64{12, 36, 84, 132, 180}}} {
		k := newTickets()
		k.add([]byte{1}, new(quietCall), c.urgent)
		k.issueTickets(0)
		var at []uint64
		for tick := range uint64(200) {
			if len(seqs(k.overdue(tick))) > 0 {
				at = append(at, tick)
			}
		}
		if !slices.Equal(at, c.want) {
			t.Errorf("urgent %v: sent again at %v, want %v", c.urgent, at, c.want)
		}
		newCalls(k, 1)
		wantSeqs(t, "to a new leader", k.retryAll(200), 1)
		wantSeqs(t, "a tick before it is due", k.overdue(200+c.want[0]-1))
		wantSeqs(t, "when it is due", k.overdue(200+c.want[0]), 1)
		newCalls(k, 2)
		k.issueTickets(300)
		k.outcome(2+1, false)
		wantSeqs(t, "but what is answered", k.retryAll(300), 1, 2, 4)
		wantSeqs(t, "and that not later", k.overdue(300+firstRetry), 1, 2, 4)
	}
}

// Ordinary commands on their way are bounded in bytes; urgent ones pass them.
func TestTickets_SentBytes(t *testing.T) {
	k := newTickets()
	size := maxSentBytes/4 - callOverhead
	for range 6 {
		k.add(make([]byte, size), new(quietCall), false)
	}
	wantSeqs(t, "as many as fit", k.issueTickets(0), 1, 2, 3, 4)
	k.add([]byte("renewal"), new(quietCall), true)
	wantSeqs(t, "an urgent one", k.issueTickets(0), 5)
	k.outcome(5, false)
	wantSeqs(t, "after its outcome", k.issueTickets(0))
	k.outcome(2, false)
	wantSeqs(t, "after another outcome", k.issueTickets(0), 6)
	for _, seq := range []uint64{1, 3, 4, 6} {
		k.outcome(seq, false)
	}
	wantSeqs(t, "the last", k.issueTickets(0), 7)
	k.outcome(7, false)
	if k.sentBytes != 0 || k.bytes != 0 || k.urgentBytes != 0 {
		t.Errorf("%d of %d and %d bytes are left", k.sentBytes, k.bytes, k.urgentBytes)
	}
	k.add(make([]byte, maxSentBytes), new(quietCall), false)
	wantSeqs(t, "one that alone exceeds the limit", k.issueTickets(0), 8)
}

// A call beyond a limit is refused at once. Urgent ones have a limit of their own.
func TestTickets_Limits(t *testing.T) {
	const calls, bytes = 4, 10_000
	admits := func(k *tickets, size int, urgent bool) bool { return k.admits(size, urgent, calls, bytes) }
	k := newTickets()
	if !admits(k, 2*bytes, false) {
		t.Error("a large call alone is refused")
	}
	for range 2 {
		k.add(make([]byte, bytes/2-callOverhead), new(quietCall), false)
	}
	if admits(k, 1, false) || !admits(k, 2*bytes, true) {
		t.Error("with all bytes in use: want a refusal of ordinary calls only")
	}
	out := k.issueTickets(0)
	if k.outcome(seqs(out)[0], true); !admits(k, bytes/2-callOverhead, false) {
		t.Error("a call that awaits a grant still counts")
	}
	newCalls(k, calls-1)
	if admits(k, 0, false) || !admits(k, 0, true) {
		t.Error("with all calls in use: want a refusal of ordinary calls only")
	}
	k = newTickets()
	k.add(make([]byte, maxUrgentBytes-callOverhead), new(quietCall), true)
	if admits(k, 0, true) || !admits(k, 0, false) {
		t.Error("with all urgent bytes in use: want a refusal of urgent calls only")
	}
	if k.drain(); !admits(k, 0, true) {
		t.Error("drained calls still count")
	}
}

func TestTickets_Drain(t *testing.T) {
	k := newTickets()
	calls := newCalls(k, 5)
	k.issueTickets(0)
	k.outcome(3, true)
	k.outcome(1, true)
	k.outcome(4, false)
	got := k.drain()
	want := []Call{calls[1], calls[4], calls[0], calls[2]}
	if !slices.Equal(got, want) {
		t.Errorf("drained %v, want %v", got, want)
	}
	if k.calls != 0 || len(k.awaiting) != 0 || k.drain() != nil || k.outcome(2, false) != nil {
		t.Error("something is left")
	}
}
