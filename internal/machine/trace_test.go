package machine

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// The trace of a grant, which is kept for a retry, shares no memory with the entry, which the
// caller of Apply may use again.
func TestTrace_OutlivesItsEntry(t *testing.T) {
	for _, release := range []string{"unlock x s/1 fence=1 trace=of_the_release", "release p s fence=2 trace=of_the_release"} {
		d := newDriverAt(t, wire.LevelTrace)
		d.line(wire.Code_OK, "open s ttl=1h")
		d.line(wire.Code_OK, "lock x s/1")
		d.line(wire.Code_OK, "acquire p s limit=1 permits=1")
		waiters := d.seq
		d.do(read(t, "lock x s/2 wait"), read(t, "acquire p s limit=1 permits=1 wait"))
		d.seq++
		data := must(proto.Marshal(&wire.Batch{Version: wire.BatchVersion, Submissions: []*wire.Submission{{
			Incarnation: d.inc[:], Floor: waiters, Member: 1,
			Calls: []*wire.Call{{Seq: d.seq, Command: must(proto.Marshal(read(t, "%s", release)))}},
		}}}))
		d.index++
		granted := d.m.Apply(d.index, 1, data).Outcomes[0]
		clear(data)
		if got := string(granted.Reply.GetTrace()); got != "of_the_release" {
			t.Errorf("%s: the grant has the trace %q", release, got)
		}
		if got := d.m.incarnation(d.inc).window.at(granted.Ticket.Seq).reply(); string(got.GetTrace()) != "of_the_release" {
			t.Errorf("%s: %v is kept for a retry", release, got)
		}
	}
}

// After a snapshot a waiter gets the trace of its grant as long as a retry would.
func TestTrace_Recheck(t *testing.T) {
	d := newDriverAt(t, wire.LevelTrace)
	d.line(wire.Code_OK, "open s ttl=1h")
	d.line(wire.Code_OK, "lock x s/1")
	d.line(wire.Code_QUEUED, "lock x s/2 wait")
	waiter := wire.Ticket{Incarnation: d.inc, Seq: d.seq}
	d.seq++
	d.submit(&wire.Submission{Incarnation: d.inc[:], Floor: waiter.Seq - 1, Member: 1, Calls: []*wire.Call{{
		Seq: d.seq, Command: must(proto.Marshal(read(t, "unlock x s/1 fence=1 trace=of_the_release"))),
	}}})
	for _, want := range []string{"of_the_release", ""} {
		loaded := must(Load(d.disk.pairs()))
		for _, m := range []*Machine{d.m, loaded} {
			r := m.Recheck(waiter, makeID("s"), "", "")
			if r.GetCode() != wire.Code_OK || r.GetFence() != 2 || string(r.GetTrace()) != want {
				t.Errorf("%v, want the trace %q", r, want)
			}
		}
		d.line(wire.Code_OK, "renew") // and the floor passes the waiter's ticket
	}
}
