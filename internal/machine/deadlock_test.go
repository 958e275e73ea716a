package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// cycleWatch counts refused cycles by their length, waits for shares in them, and sessions in cycles that exist.
type cycleWatch struct {
	refused        map[uint32]int
	shared, closed int
}

func (w *cycleWatch) look(r *rig, _ []byte) {
	if r.index%8 == 0 { // the reference looks for them everywhere
		w.closed += len(r.model.Cycles())
	}
	for _, o := range r.last.Outcomes {
		if o.Reply.Code != wire.Code_DEADLOCK {
			continue
		}
		w.refused[o.Reply.Cycle.Length]++
		for _, step := range o.Reply.Cycle.Waits {
			if step.Holder.Shared {
				w.shared++
			}
		}
	}
}

// check wants refused cycles of different lengths, through shares too, and cycles that the bounds hide.
func (w *cycleWatch) check(t *testing.T) {
	t.Helper()
	t.Logf("cycles refused by length %v, %d waits for shares, %d sessions in cycles", w.refused, w.shared, w.closed)
	if w.refused[2] == 0 || w.refused[3] == 0 || w.shared == 0 || w.closed == 0 {
		t.Error("the generator does not reach each kind of cycle")
	}
}

// refusing makes a Lock one that is refused if its wait would close a cycle.
func refusing(c *wire.Command) *wire.Command {
	c.GetLock().RefuseDeadlock = true
	return c
}

// newDeadlock returns a driver with sessions of which a has the lock x and b the lock y. The first and the last of so many waiters
// of b waits for x, and those in between for y, for which the search for a cycle looks at them all.
func newDeadlock(t *testing.T, waiters int) (d *driver, a, b wire.ID) {
	t.Helper()
	d, a, b = newDriverAt(t, wire.LevelDeadlock), makeID("a"), makeID("b")
	d.want(wire.Code_OK, d.do(openCommand(a, MaxTTL, 0)))
	d.want(wire.Code_OK, d.do(openCommand(b, MaxTTL, 0)))
	d.want(wire.Code_OK, d.do(lockCommand("x", a, 1)))
	d.want(wire.Code_OK, d.do(lockCommand("y", b, 1)))
	if waiters > 1 {
		d.many(waiters-1, func(int) *wire.Command { return lockCommand("y", b, 2) })
	}
	d.want(wire.Code_QUEUED, d.do(lockCommand("x", b, 2)))
	return d, a, b
}

// A search looks at 16,384 waiters, of which a session on the way counts for eight, and not at one more: then the request waits.
func TestDeadlock_SearchBounded(t *testing.T) {
	for waiters, want := range map[int]wire.Code{1: wire.Code_DEADLOCK, MaxSearched - 9: wire.Code_DEADLOCK, MaxSearched - 8: wire.Code_QUEUED} {
		d, a, _ := newDeadlock(t, waiters)
		before := d.m.visits.Total()
		d.want(want, d.do(refusing(lockCommand("y", a, 3))))
		if visits := d.m.visits.Total() - before; visits > 4*MaxSearched {
			t.Errorf("a search looks at %d elements", visits)
		}
	}
}

// A search counts the shares of a lock that it passes, those that linger and those of ended sessions too.
func TestDeadlock_SharesCounted(t *testing.T) {
	for most, want := range map[int]wire.Code{40: wire.Code_DEADLOCK, 39: wire.Code_QUEUED} {
		d, a, b := newDeadlock(t, 1)
		other := makeID("c")
		d.want(wire.Code_OK, d.do(openCommand(other, MaxTTL, 0)))
		d.many(20, func(i int) *wire.Command {
			c := shareCommand("z", other, uint64(i), false)
			c.GetLock().Lingering = i%2 == 0
			return c
		})
		d.want(wire.Code_OK, d.do(shareCommand("z", b, 7, false)))
		// The request, two sessions, 21 shares, and the waiter of the second one.
		d.m.searched.each = most - 1
		d.want(want, d.do(refusing(lockCommand("z", a, 3))))
	}
}

// The searches of one entry share a bound, and the next entry has it again.
func TestDeadlock_EntryBounded(t *testing.T) {
	d, a, _ := newDeadlock(t, 1)
	d.m.searched.all = 25 // each takes 10
	refused := refusing(lockCommand("y", a, 3))
	for range 2 {
		out := d.do(refused, refused, refused)
		for i, want := range []wire.Code{wire.Code_DEADLOCK, wire.Code_DEADLOCK, wire.Code_QUEUED} {
			if got := out[i].Reply.Code; got != want {
				t.Errorf("request %d of an entry: %v, want %v", i, got, want)
			}
		}
		d.want(wire.Code_OK, d.do(withdrawCommand(d.inc, d.seq)))
	}
}

// An entry with as many requests as there can be is bounded as a whole.
func TestDeadlock_ManyInOneEntry(t *testing.T) {
	d, a, _ := newDeadlock(t, MaxSearched/2)
	var requests []*wire.Command
	for range 1000 {
		requests = append(requests, refusing(lockCommand("y", a, 3)))
	}
	before, refused := d.m.visits.Total(), 0
	for _, o := range d.do(requests...) {
		if o.Reply.Code == wire.Code_DEADLOCK {
			refused++
		}
	}
	if want := MaxAllSearched / (MaxSearched/2 + 9); refused != want {
		t.Errorf("%d requests are refused, want %d", refused, want)
	}
	if visits := d.m.visits.Total() - before; visits > 4*MaxAllSearched+1000*allowedVisits(MaxQueued) {
		t.Errorf("an entry looks at %d elements", visits)
	}
}

// A long cycle with long names is listed as far as its outcome has room.
func TestDeadlock_CycleCut(t *testing.T) {
	for name, row := range map[string]struct{ text, listed int }{"short": {2, 15}, "long": {MaxName, 2}} {
		t.Run(name, func(t *testing.T) {
			const sessions = 100
			d := newDriverAt(t, wire.LevelDeadlock)
			text := func(i int) string { return strings.Repeat("n", row.text-2) + fmt.Sprintf("%02d", i) }
			label := []byte(strings.Repeat("l", min(row.text, MaxLabel)))
			lock := func(i, of int) *wire.Command {
				c := refusing(lockCommand(text(of%sessions), numberedID(uint64(i+1)), uint64(of+1)))
				c.GetLock().Label = label
				return c
			}
			for i := range sessions {
				open := openCommand(numberedID(uint64(i+1)), MaxTTL, 0)
				open.GetOpenSession().Name = text(i)
				d.want(wire.Code_OK, d.do(open))
				d.want(wire.Code_OK, d.do(lock(i, i)))
			}
			for i := range sessions - 1 {
				d.want(wire.Code_QUEUED, d.do(lock(i, i+1)))
			}
			request := lock(sessions-1, sessions)
			r := d.want(wire.Code_DEADLOCK, d.do(request))
			steps := Cycle(r)
			if r.Cycle.Length != sessions || len(steps) != row.listed {
				t.Fatalf("%d steps are listed of %d, want %d of %d", len(steps), r.Cycle.Length, row.listed, sessions)
			}
			for i, step := range steps {
				waiter, holder := (sessions-1+i)%sessions, i%sessions
				if step.Name != text(holder) || step.Waiter.Session != numberedID(uint64(waiter+1)) || step.Holder.Session != numberedID(uint64(holder+1)) ||
					step.Holder.Name != text(holder) || step.Holder.Label != string(label) || step.Waiter.Label != string(label) {
					t.Errorf("step %d is %+v", i, step)
				}
			}
			if n, most := wire.OutcomeBytes(r), wire.OutcomeBound(must(proto.Marshal(request))); n+wire.TicketBytes > most || proto.Size(r) > n {
				t.Errorf("the outcome has %d bytes, counts %d, and its command %d", proto.Size(r), n, most)
			}
		})
	}
}

// What searches for clients look at does not count for members, nor the other way round.
func TestDeadlock_ClassesApart(t *testing.T) {
	d, a, _ := newDeadlock(t, 1)
	d.registerClients(1, 2, 60*second, d.time+60*second)
	d.m.searched.all = 10 // as much as one search takes
	request := refusing(lockCommand("y", a, 3))
	client := func(seq uint64) *wire.Submission { return ofClient(1, seq, request) }
	member := func(seq uint64) *wire.Submission {
		return &wire.Submission{Incarnation: d.inc[:], Member: 1, Calls: []*wire.Call{{Seq: d.seq + seq, Command: must(proto.Marshal(request))}}}
	}
	var got []wire.Code
	for _, o := range d.submit(client(2), member(1), client(3), member(2)).Outcomes {
		got = append(got, o.Reply.Code)
	}
	if want := []wire.Code{wire.Code_DEADLOCK, wire.Code_DEADLOCK, wire.Code_QUEUED, wire.Code_QUEUED}; !slices.Equal(got, want) {
		t.Errorf("outcomes %v, want %v", got, want)
	}
}
