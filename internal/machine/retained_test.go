package machine

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// largeWrite puts 128 keys, with the numbers from one on, and returns the terms of all of them.
func largeWrite(value string) *wire.Command {
	ops := make([]*wire.KeyOp, MaxOps)
	for i := range ops {
		ops[i] = &wire.KeyOp{Kind: wire.KeyOp_PUT, Key: fmt.Sprint(i), Value: []byte(value)}
	}
	return &wire.Command{Op: &wire.Command_Write{Write: &wire.Write{Ops: ops}}}
}

// keptBytes is what the outcomes of all incarnations take on disk.
func (d *driver) keptBytes() (n int) {
	for key, value := range d.disk {
		if key[0] == ticketKind {
			n += len(key) + len(value)
		}
	}
	return n
}

// A process that never acknowledges an outcome fills its own budget, and no more: the commands
// beyond it are refused without an effect, also if they are retried, and renewals a quarter later. As soon as
// it acknowledges, it goes on.
func TestOutcomes_NeverAcknowledged(t *testing.T) {
	d := newDriverAt(t, wire.LevelBounds)
	d.submit(ofClient(1, 1, registerClientCommand(1, 600*second, second)))
	before := heapInUse()
	refused, kept := uint64(0), 0
	for seq := uint64(2); refused == 0 && seq <= MaxInFlight; seq++ {
		switch r := d.submit(ofClient(1, seq, largeWrite("same"))).Outcomes[0].Reply; r.Code {
		case wire.Code_OK:
			kept++
		case wire.Code_BUSY:
			refused = seq
		default:
			t.Fatal(r)
		}
	}
	if n := d.keptBytes(); refused == 0 || n > MaxOutcomeBytes {
		t.Fatalf("%d outcomes take %d bytes, want at most %d", kept, n, MaxOutcomeBytes)
	}
	if grown := int(heapInUse()-before) - d.keptBytes(); grown > MaxOutcomeBytes {
		t.Errorf("%d outcomes take %d bytes of memory, want at most %d", kept, grown, MaxOutcomeBytes)
	}
	client := func(seq, floor uint64, c *wire.Command) *wire.Reply {
		s := ofClient(1, seq, c)
		s.Floor = floor
		return d.submit(s).Outcomes[0].Reply
	}
	d.want(wire.Code_OK, d.submit(ofClient(1, refused+1, read(t, "renew"))).Outcomes)
	d.want(wire.Code_OK, d.do(largeWrite("another client's is not refused")))
	if r := client(refused+2, 0, largeWrite("changed")); r.Code != wire.Code_BUSY || string(d.m.keys.get("0").Value) == "changed" {
		t.Errorf("beyond the budget: %v", r)
	}
	if err := audit(d.m); err != nil {
		t.Fatal(err)
	}
	d.m = must(Load(d.disk.pairs()))
	if r := client(refused+2, refused-1, largeWrite("late")); r.Code != wire.Code_BUSY {
		t.Errorf("a duplicate of a refused command, below the budget: %v", r)
	}
	if r := client(refused+3, refused-1, largeWrite("next")); r.Code != wire.Code_OK {
		t.Errorf("acknowledged: %v", r)
	}
	if err := audit(d.m); err != nil {
		t.Error(err)
	}
}

// The ticket far ahead takes memory as well as the outcomes do.
func TestOutcomes_TicketsFarAhead(t *testing.T) {
	d := newDriverAt(t, wire.LevelBounds)
	d.m.retention.most = 100_000
	d.submit(ofClient(1, 1, registerClientCommand(1, 600*second, second)))
	for _, seq := range []uint64{10_000, 1_000, 10_001} { // the second one because of the first
		d.want(wire.Code_BUSY, d.submit(ofClient(1, seq, read(t, "renew"))).Outcomes)
	}
	s := ofClient(1, 10_002, read(t, "renew"))
	s.Floor = 10_001
	d.want(wire.Code_OK, d.submit(s).Outcomes)
}

// What all clients leave is bounded too, each of them keeps a part of it, and members have a
// sum of their own.
func TestOutcomes_ManyClients(t *testing.T) {
	d := newDriverAt(t, wire.LevelBounds)
	d.m.retention = retention{most: 1 << 20, all: 1 << 20, least: 64 << 10, members: d.m.retention.members}
	const clients = 40
	for i := range uint64(clients) {
		d.submit(ofClient(i, 1, registerClientCommand(i, 600*second, second)))
		for seq := uint64(2); ; seq++ {
			r := d.submit(ofClient(i, seq, largeWrite("same"))).Outcomes[0].Reply
			if r.Code == wire.Code_BUSY {
				if seq < 6 {
					t.Errorf("client %d could leave %d outcomes", i, seq-2)
				}
				break
			}
		}
	}
	if n, most := d.m.retention.clients, 1<<20+clients*(64<<10); n > most {
		t.Errorf("%d bytes of all clients, want at most %d", n, most)
	}
	for range 60 {
		d.want(wire.Code_OK, d.do(largeWrite("same")))
	}
	if err := audit(d.m); err != nil {
		t.Error(err)
	}
}

// Below the level outcomes are bounded by their number alone, as builds of before do it. A
// state of such builds is read at the level, whatever it has.
func TestOutcomes_BelowLevel(t *testing.T) {
	d := newDriverAt(t, wire.LevelBounds-1)
	d.m.retention.most = 100_000
	seq, floor := d.seq, d.seq
	write := func() wire.Code {
		seq++
		data := must(proto.Marshal(largeWrite("same")))
		s := &wire.Submission{Member: 1, Incarnation: d.inc[:], Floor: floor, Calls: []*wire.Call{{Seq: seq, Command: data}}}
		return d.submit(s).Outcomes[0].Reply.Code
	}
	for range 100 {
		if code := write(); code != wire.Code_OK {
			t.Fatal(code)
		}
	}
	if n := d.m.retention.members; n < 1_000_000 {
		t.Fatalf("%d bytes are counted", n)
	}
	state := d.m.state().(*wire.MachineState)
	state.FeatureLevel = wire.LevelBounds
	d.disk[machineKey] = must(proto.Marshal(state))
	d.m = must(Load(d.disk.pairs()))
	d.m.retention.most = 100_000
	if code := write(); code != wire.Code_BUSY {
		t.Errorf("a new command beyond the budget: %v", code)
	}
	floor = seq
	if code := write(); code != wire.Code_OK {
		t.Errorf("acknowledged: %v", code)
	}
}

// A process that numbers its calls by package tickets is not refused, even if its first
// outcome is lost for as long as the window allows and all other calls are large.
func TestOutcomes_HonestProcess(t *testing.T) {
	d := newDriverAt(t, wire.LevelBounds)
	d.submit(ofClient(1, 1, registerClientCommand(1, 600*second, second)))
	table := tickets.New[int]()
	const calls = tickets.Window + 100
	data := must(proto.Marshal(largeWrite("same")))
	for i := range calls {
		table.Add(data, i, i%8 == 0)
	}
	lost, answered := uint64(2), 0
	send := func(out tickets.Outgoing) (sent int) {
		for _, calls := range [][]*wire.Call{out.Urgent, out.Ordinary} {
			for _, c := range calls {
				if c.Seq == lost {
					continue
				}
				s := ofClient(1, 0, deregisterCommand())
				s.Floor, s.Calls = table.Floor(), []*wire.Call{c}
				for _, o := range d.submit(s).Outcomes {
					if o.Reply.Code != wire.Code_OK {
						t.Fatalf("call %d: %v", o.Ticket.Seq, o.Reply)
					}
					if _, ok := table.Outcome(o.Ticket.Seq, false); ok {
						answered++
					}
				}
				sent++
			}
		}
		return sent
	}
	for send(table.Issue(0)) > 0 {
	}
	if n := d.m.retention.clients; answered < 500 || n > tickets.MaxOutcomes {
		t.Errorf("%d calls were answered, and %d bytes are kept", answered, n)
	}
	lost = 0
	for send(table.RetryAll(1))+send(table.Issue(1)) > 0 {
	}
	if answered != calls {
		t.Errorf("%d of %d calls have an outcome", answered, calls)
	}
}
