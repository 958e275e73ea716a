package tickets

import (
	"fmt"
	"slices"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// quietCall differs from others by its address, so it must not be empty.
type quietCall struct{ _ byte }

func newCalls(t *Table[*quietCall], n int) []*quietCall {
	calls := make([]*quietCall, n)
	for i := range calls {
		calls[i] = new(quietCall)
		t.Add(fmt.Append(nil, i+1), calls[i], false)
	}
	return calls
}

func seqs(out Outgoing) (list []uint64) {
	for _, c := range slices.Concat(out.Urgent, out.Ordinary) {
		list = append(list, c.GetSeq())
	}
	return list
}

func wantSeqs(t *testing.T, what string, got Outgoing, want ...uint64) {
	t.Helper()
	if !slices.Equal(seqs(got), want) {
		t.Errorf("%s: sent %v, want %v", what, seqs(got), want)
	}
}

func TestTickets_FloorStopsAtHoles(t *testing.T) {
	k := New[*quietCall]()
	newCalls(k, 5)
	wantSeqs(t, "fresh", k.Issue(0), 1, 2, 3, 4, 5)
	for _, step := range []struct {
		answered, floor uint64
	}{{2, 0}, {4, 0}, {1, 2}, {5, 2}, {3, 5}} {
		if _, ok := k.Outcome(step.answered, false); !ok {
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
	k := New[*quietCall]()
	calls := newCalls(k, 4)
	k.Issue(0)
	for _, step := range []struct {
		name string
		seq  uint64
		more bool
		want *quietCall
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
		if got, ok := k.Outcome(step.seq, step.more); got != step.want || ok != (step.want != nil) {
			t.Errorf("%s: %v, want %v", step.name, got, step.want)
		}
	}
}

func TestTickets_Window(t *testing.T) {
	k := New[*quietCall]()
	newCalls(k, ordinaryWindow+3)
	if n := len(seqs(k.Issue(0))); n != ordinaryWindow {
		t.Fatalf("%d were sent, want %d", n, ordinaryWindow)
	}
	wantSeqs(t, "a full Window", k.Issue(0))
	k.Outcome(2, false)
	wantSeqs(t, "a hole", k.Issue(0))
	k.Outcome(1, false)
	wantSeqs(t, "two behind the floor", k.Issue(0), ordinaryWindow+1, ordinaryWindow+2)
}

// What the outcomes above the floor can count bounds the tickets, as their number does: the
// last part is for urgent calls.
func TestTickets_Outcomes(t *testing.T) {
	k := New[*quietCall]()
	large := append([]byte{0x8a, 1}, make([]byte, 2000)...) // a Write
	bound := wire.OutcomeBound(large)
	for range 2 * MaxOutcomes / bound {
		k.Add(large, new(quietCall), false)
	}
	first := len(k.Issue(0).Ordinary)
	if n := first * bound; n > maxOrdinaryOutcomes || n+bound <= maxOrdinaryOutcomes {
		t.Fatalf("%d calls, whose outcomes can count %d bytes", first, n)
	}
	for seq := uint64(2); seq <= uint64(first); seq++ {
		k.Outcome(seq, false)
	}
	if n := len(k.Issue(0).Ordinary); n > 0 {
		t.Errorf("%d more calls while the first has no outcome", n)
	}
	for range MaxOutcomes / bound {
		k.Add(large, new(quietCall), true)
	}
	if out := k.Issue(0); len(out.Ordinary) > 0 || (first+len(out.Urgent)+1)*bound <= MaxOutcomes {
		t.Errorf("%d urgent calls, and %d others", len(out.Urgent), len(out.Ordinary))
	}
	k.Outcome(1, false)
	if n := len(k.Issue(0).Urgent); n == 0 {
		t.Error("no call after the floor has moved")
	}
}

func TestTickets_Cancel(t *testing.T) {
	k := New[*quietCall]()
	calls := newCalls(k, 2)
	k.Issue(0)
	later := newCalls(k, 3)
	if k.Cancel(calls[0]) {
		t.Error("a call was cancelled after its command was sent")
	}
	if !k.Cancel(later[1]) {
		t.Error("a queued call could not be cancelled")
	}
	if k.Cancel(later[1]) {
		t.Error("a command was cancelled twice")
	}
	wantSeqs(t, "what is left", k.Issue(0), 3, 4)
	for seq := range uint64(4) {
		k.Outcome(seq+1, false)
	}
	if k.floor != 4 || k.calls != 0 {
		t.Errorf("the floor is %d, want 4: a cancelled call has no ticket; %d calls", k.floor, k.calls)
	}
}

// Urgent commands are sent before queued ones, and have reserved places in the Window.
func TestTickets_UrgentFirst(t *testing.T) {
	k := New[*quietCall]()
	newCalls(k, ordinaryWindow+1)
	k.Issue(0)
	renewal := new(quietCall)
	k.Add([]byte("renewal"), renewal, true)
	wantSeqs(t, "a full Window", k.Issue(0), ordinaryWindow+1)
	if got, _ := k.Outcome(ordinaryWindow+1, false); got != renewal {
		t.Error("the ticket is not the renewal's")
	}
}

// Nothing reaches the group before the command that registers this process.
func TestTickets_RegistrationFirst(t *testing.T) {
	k := New[*quietCall]()
	k.Gate()
	newCalls(k, 3)
	wantSeqs(t, "the registration", k.Issue(0), 1)
	wantSeqs(t, "before its outcome", k.Issue(1))
	wantSeqs(t, "once more", k.Overdue(firstRetry), 1)
	k.Outcome(1, false)
	wantSeqs(t, "then", k.Issue(4), 2, 3)
}

// A cancelled call makes room at once.
func TestTickets_CancelMakesRoom(t *testing.T) {
	k := New[*quietCall]()
	calls := newCalls(k, 3)
	for _, c := range calls {
		if !k.Cancel(c) {
			t.Error("not cancelled")
		}
	}
	newCalls(k, 1)
	wantSeqs(t, "the next", k.Issue(0), 1)
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
		k := New[*quietCall]()
		k.Add([]byte{1}, new(quietCall), c.urgent)
		k.Issue(0)
		var at []uint64
		for tick := range uint64(200) {
			if len(seqs(k.Overdue(tick))) > 0 {
				at = append(at, tick)
			}
		}
		if !slices.Equal(at, c.want) {
			t.Errorf("urgent %v: sent again at %v, want %v", c.urgent, at, c.want)
		}
		newCalls(k, 1)
		wantSeqs(t, "to a new leader", k.RetryAll(200), 1)
		wantSeqs(t, "a tick before it is due", k.Overdue(200+c.want[0]-1))
		wantSeqs(t, "when it is due", k.Overdue(200+c.want[0]), 1)
		newCalls(k, 2)
		k.Issue(300)
		k.Outcome(2+1, false)
		wantSeqs(t, "but what is answered", k.RetryAll(300), 1, 2, 4)
		wantSeqs(t, "and that not later", k.Overdue(300+firstRetry), 1, 2, 4)
	}
}

// Ordinary commands on their way are bounded in bytes; urgent ones pass them.
func TestTickets_SentBytes(t *testing.T) {
	k := New[*quietCall]()
	size := maxSentBytes/4 - callOverhead
	for range 6 {
		k.Add(make([]byte, size), new(quietCall), false)
	}
	wantSeqs(t, "as many as fit", k.Issue(0), 1, 2, 3, 4)
	k.Add([]byte("renewal"), new(quietCall), true)
	wantSeqs(t, "an urgent one", k.Issue(0), 5)
	k.Outcome(5, false)
	wantSeqs(t, "after its outcome", k.Issue(0))
	k.Outcome(2, false)
	wantSeqs(t, "after another outcome", k.Issue(0), 6)
	for _, seq := range []uint64{1, 3, 4, 6} {
		k.Outcome(seq, false)
	}
	wantSeqs(t, "the last", k.Issue(0), 7)
	k.Outcome(7, false)
	if k.sentBytes != 0 || k.bytes != 0 || k.urgentBytes != 0 {
		t.Errorf("%d of %d and %d bytes are left", k.sentBytes, k.bytes, k.urgentBytes)
	}
	k.Add(make([]byte, maxSentBytes), new(quietCall), false)
	wantSeqs(t, "one that alone exceeds the limit", k.Issue(0), 8)
}

// A call beyond a limit is refused at once. Urgent ones have a limit of their own.
func TestTickets_Limits(t *testing.T) {
	const calls, bytes = 4, 10_000
	admits := func(k *Table[*quietCall], size int, urgent bool) bool { return k.Admits(size, urgent, calls, bytes) }
	k := New[*quietCall]()
	if !admits(k, 2*bytes, false) {
		t.Error("a large call alone is refused")
	}
	for range 2 {
		k.Add(make([]byte, bytes/2-callOverhead), new(quietCall), false)
	}
	if admits(k, 1, false) || !admits(k, 2*bytes, true) {
		t.Error("with all bytes in use: want a refusal of ordinary calls only")
	}
	out := k.Issue(0)
	if k.Outcome(seqs(out)[0], true); !admits(k, bytes/2-callOverhead, false) {
		t.Error("a call that awaits a grant still counts")
	}
	newCalls(k, calls-1)
	if admits(k, 0, false) || !admits(k, 0, true) {
		t.Error("with all calls in use: want a refusal of ordinary calls only")
	}
	k = New[*quietCall]()
	k.Add(make([]byte, maxUrgentBytes-callOverhead), new(quietCall), true)
	if admits(k, 0, true) || !admits(k, 0, false) {
		t.Error("with all urgent bytes in use: want a refusal of urgent calls only")
	}
	if k.Drain(); !admits(k, 0, true) {
		t.Error("drained calls still count")
	}
}

func TestTickets_Drain(t *testing.T) {
	k := New[*quietCall]()
	calls := newCalls(k, 5)
	k.Issue(0)
	k.Outcome(3, true)
	k.Outcome(1, true)
	k.Outcome(4, false)
	unsent := newCalls(k, 2)
	sent, queued := k.Drain()
	if want := []*quietCall{calls[1], calls[4], calls[0], calls[2]}; !slices.Equal(sent, want) || !slices.Equal(queued, unsent) {
		t.Errorf("drained %v and %v, want %v and %v", sent, queued, want, unsent)
	}
	if sent, queued = k.Drain(); k.calls != 0 || len(k.awaiting) != 0 || sent != nil || queued != nil {
		t.Error("something is left")
	}
}

// Nothing is sent under an incarnation that the group has refused to register, however much comes later.
func TestTickets_RegistrationRefused(t *testing.T) {
	k := New[*quietCall]()
	k.Gate()
	k.Add(nil, new(quietCall), true) // the registration
	wantSeqs(t, "registration", k.Issue(0), 1)
	waiting := newCalls(k, 3)
	k.Outcome(1, false)
	if got := k.Refuse(); !slices.Equal(got, waiting) || !k.Refused() || k.Registered() || k.Backlog() != (Backlog{}) {
		t.Errorf("waiting %v, want %v; refused %v, registered %v, backlog %v", got, waiting, k.Refused(), k.Registered(), k.Backlog())
	}
	newCalls(k, 1)
	wantSeqs(t, "after the refusal", k.Issue(0))
	if k.Drain(); k.Refused() {
		t.Error("the next incarnation is refused")
	}
}

// The calls of several groups share a bound. Those of one leave as much to those of every other one, and urgent calls are not counted.
func TestTickets_SharedBudget(t *testing.T) {
	const most, size = 8 << 20, 64 << 10
	shared := NewBudget(most)
	fill := func() *Table[*quietCall] {
		k := New[*quietCall]()
		k.Share(shared)
		for k.Admits(size, false, 1<<20, most) {
			k.Add(make([]byte, size), new(quietCall), false)
		}
		return k
	}
	first := fill()
	if n := first.bytes; n > most || n < most-2*size {
		t.Errorf("one alone has %d bytes, want %d", n, most)
	}
	if second := fill(); second.bytes < most/2-2*size || second.bytes > most/2+size {
		t.Errorf("the second one has %d bytes, want %d", second.bytes, most/2)
	}
	all := []*Table[*quietCall]{first}
	for range 50 {
		all = append(all, fill())
	}
	last := all[len(all)-1]
	if n := last.bytes; n < leastCallBytes-2*size || n > leastCallBytes {
		t.Errorf("the last one has %d bytes, want %d", n, leastCallBytes)
	}
	if !last.Admits(size, true, 0, most) || !first.Admits(size, true, 0, most) {
		t.Error("an urgent call is refused for others")
	}
	taken := shared.Taken()
	if last.Add(make([]byte, size), new(quietCall), true); shared.Taken() != taken {
		t.Error("an urgent call is counted")
	}
	freed := last.bytes
	if last.Drain(); shared.Taken() != taken-freed || !last.Admits(size, false, 1<<20, most) {
		t.Errorf("%d bytes are taken of %d, of which %d have been drained", shared.Taken(), taken, freed)
	}
	if last.Add(make([]byte, size), new(quietCall), false); shared.Taken() != taken-freed+size+callOverhead {
		t.Error("a call after Drain is not counted")
	}
	if last.Cancel(last.ordinary[0].call); shared.Taken() != taken-freed {
		t.Error("a call that was cancelled is counted")
	}
	if NewBudget(0) != nil {
		t.Error("calls without a limit share one")
	}
}

// Twice the largest Limits.CallBytes is more than an int of 32 bits has.
func TestTickets_LargestBudget(t *testing.T) {
	const most = 1 << 30
	if n := NewBudget(most).Allowed(most); n != most {
		t.Errorf("%d bytes are allowed of one group alone, want %d", n, most)
	}
}
