package machine

import (
	"flag"
	"fmt"
	"math"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// What a command or deadline may look at for each thing that it touches, in a state
// of n things: a few paths through trees and heaps, and no scan.
func allowedVisits(n int) uint64 { return uint64(40 * math.Log2(float64(n))) }

// The sessions of a large state.
var (
	idleID     = wire.ID{20} // has nothing
	manyID     = wire.ID{21} // holds locks, permits and keys, a third of n each
	attachedID = wire.ID{22} // has unclaimed permits
	smallID    = wire.ID{23} // holds one of each, and expires
)

// The work of every command and deadline grows with the logarithm of the state, and
// that of ending something with what it had, a portion in each entry.
func TestGrowth_Logarithmic(t *testing.T) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		t.Run(fmt.Sprintf("%dk", n/1000), func(t *testing.T) { measureGrowth(t, n) })
	}
}

var long = flag.Bool("long", false, "run what takes long, as .ci/run does")

// The same with a million things.
func TestGrowth_Million(t *testing.T) {
	if !*long {
		t.Skip("takes half a minute: -long")
	}
	measureGrowth(t, 1_000_000)
}

func measureGrowth(t *testing.T, n int) {
	d := largeState(t, n)
	for _, step := range append(boundSteps(), growthSteps(d)...) {
		before := d.m.visits.Total()
		step.do(d)
		if visits := d.m.visits.Total() - before; visits > allowedVisits(n)*step.touches {
			t.Errorf("%s looks at %d elements, and may at %d", step.name, visits, allowedVisits(n)*step.touches)
		}
	}
	endMany(t, d, n)
}

// growthStep is something that touches few things.
type growthStep struct {
	name    string
	touches uint64
	do      func(d *driver)
}

// endMany ends the session that has most of the state, and its lock-delay.
func endMany(t *testing.T, d *driver, n int) {
	d.m.split = 500
	before, entries := d.m.visits.Total(), 0
	entry := func() {
		start := d.m.visits.Total()
		d.at(d.time)
		if visits := d.m.visits.Total() - start; visits > 500*allowedVisits(n) {
			t.Errorf("an entry looks at %d elements", visits)
		}
		entries++
	}
	drain := func() {
		for due, ok := d.m.NextDeadline(); ok && due <= d.m.Now(); due, ok = d.m.NextDeadline() {
			entry()
		}
	}
	d.do(closeCommand(manyID))
	drain()
	d.time += 60 * second
	drain()
	entry()
	drain()
	if visits := d.m.visits.Total() - before; visits > 2*uint64(n)*allowedVisits(n) {
		t.Errorf("the end of %d things looks at %d elements", n, visits)
	}
	if want := 2 * (n / 3 * 3) / 500; entries < want {
		t.Errorf("%d entries released %d things", entries, n)
	}
}

// largeState holds n things and as many that are delayed or unclaimed.
func largeState(t *testing.T, n int) *driver {
	d := newDriverAt(t, wire.FeatureLevel)
	d.m.split = 10 * n
	open := func(id wire.ID, ttl, delay int64) {
		d.want(wire.Code_OK, d.do(named(openCommand(id, ttl, delay))))
	}
	open(manyID, MaxTTL, 30*second)
	d.many(n/3, func(i int) *wire.Command {
		if i%2 == 0 {
			return boundCommand(fmt.Sprint("many/", i), manyID, MaxMaxHold)
		}
		return lockCommand(fmt.Sprint("many/", i), manyID, 1)
	})
	d.many(n/3, func(int) *wire.Command { return growthAcquire(manyID, 1, true) })
	d.many(n/3, func(i int) *wire.Command { return keyCommand(fmt.Sprint("many/", i), manyID) })
	open(smallID, MaxTTL, MaxLockDelay)
	d.many(n/3, func(int) *wire.Command { return growthAcquire(smallID, 1, true) })
	d.do(closeCommand(smallID)) // delayed for long
	d.many(min(n/10, MaxSessions/4), func(i int) *wire.Command { return openCommand(numberedID(uint64(i)), MaxTTL, 0) })
	d.leaveUnclaimed(n/10, func(int) *wire.Command { return growthAcquire(attachedID, 1, true) })
	d.many(min(n/10, 10_000), func(int) *wire.Command { return lockCommand("many/0", manyID, 2) })
	return d
}

// leaveUnclaimed attaches a session with what n commands have acquired for a process that has ended.
func (d *driver) leaveUnclaimed(n int, command func(i int) *wire.Command) {
	p := &driver{tb: d.tb, m: d.m, disk: d.disk, inc: wire.ID{3}, index: d.index}
	p.do(upToDate(registerCommand(3, MaxTTL)))
	p.do(openCommand(attachedID, 0, 0))
	p.many(n, command)
	p.do(&wire.Command{Op: &wire.Command_Deregister{Deregister: &wire.Deregister{}}})
	d.index = p.index
	before := d.m.visits.Total()
	d.want(wire.Code_OK, d.do(attachCommand(attachedID)))
	if visits := d.m.visits.Total() - before; visits > allowedVisits(n) {
		d.tb.Errorf("AttachSession of %d holds looks at %d elements", n, visits)
	}
}

// upToDate has a registration state the highest feature level.
func upToDate(register *wire.Command) *wire.Command {
	register.GetRegister().FeatureLevel = wire.FeatureLevel
	return register
}

// named has all sessions that are opened have one name, by which numbers of permits are remembered.
func named(open *wire.Command) *wire.Command {
	open.GetOpenSession().Name = "worker"
	return open
}

func attachCommand(session wire.ID) *wire.Command {
	return &wire.Command{Op: &wire.Command_AttachSession{AttachSession: &wire.AttachSession{Id: session[:]}}}
}

// many applies n commands, 1,000 in an entry.
func (d *driver) many(n int, command func(i int) *wire.Command) {
	d.tb.Helper()
	for i := 0; i < n; i += 1000 {
		var commands []*wire.Command
		for j := i; j < min(n, i+1000); j++ {
			commands = append(commands, command(j))
		}
		out := d.do(commands...)
		if code := out[len(out)-1].Reply.Code; code != wire.Code_OK && code != wire.Code_QUEUED {
			d.tb.Fatal(out[len(out)-1])
		}
	}
	d.do() // the floor lets the outcomes go
}

func growthAcquire(session wire.ID, permits uint32, wait bool) *wire.Command {
	return &wire.Command{Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
		Name: "many", Session: session[:], Limit: 10_000_000, Permits: permits, Wait: wait,
	}}}
}

func writeCommand(op *wire.KeyOp) *wire.Command {
	return &wire.Command{Op: &wire.Command_Write{Write: &wire.Write{Ops: []*wire.KeyOp{op}}}}
}

// boundSteps are those of holds that end in time.
func boundSteps() []growthStep {
	return []growthStep{
		{"Lock with an end", 1, func(d *driver) { d.do(boundCommand("bound", manyID, second)) }},
		{"Extend", 1, func(d *driver) {
			d.do(&wire.Command{Op: &wire.Command_Extend{Extend: &wire.Extend{
				Name: "bound", Session: manyID[:], Handle: 1, Fence: d.m.fence(), MaxHold: MaxMaxHold,
			}}})
		}},
		{"Unlock before the end", 1, func(d *driver) { d.do(unlockCommand("bound", manyID, 1, d.m.fence())) }},
	}
}

// growthSteps are the commands and deadlines, in an order in which each succeeds.
func growthSteps(d *driver) []growthStep {
	one := func(name string, c *wire.Command) growthStep {
		return growthStep{name, 1, func(d *driver) { d.do(c) }}
	}
	register := upToDate(registerCommand(2, MaxTTL))
	other := wire.ID{2}
	as := func(inc wire.ID, member uint64, seq uint64, c *wire.Command) func(*driver) {
		return func(d *driver) {
			d.submit(&wire.Submission{Incarnation: inc[:], Member: member, Calls: []*wire.Call{{Seq: seq, Command: must(proto.Marshal(c))}}})
		}
	}
	checked := openCommand(wire.ID{31}, MaxTTL, 0)
	checked.GetOpenSession().Checks = []string{"disk"}
	return append([]growthStep{
		one("Renew", &wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}}),
		one("SetCheck", setCheckCommand(wire.CheckState_PASSING)),
		one("OpenSession", named(openCommand(idleID, 100*second, 2*second))),
		one("OpenSession with a check", checked),
		{"a check that fails", 2, func(d *driver) { d.do(setCheckCommand(wire.CheckState_CRITICAL)) }},
		one("Lock", lockCommand("free", idleID, 1)),
		one("Lock, queued", lockCommand("free", idleID, 2)),
		{"Withdraw", 1, func(d *driver) { d.do(withdrawCommand(d.inc, d.seq)) }},
		{"Unlock", 1, func(d *driver) { d.do(unlockCommand("free", idleID, 1, d.m.fence())) }},
		one("Campaign", electionCommand("free", idleID)),
		{"Proclaim", 1, func(d *driver) {
			d.do(&wire.Command{Op: &wire.Command_Proclaim{Proclaim: &wire.Proclaim{
				Name: "free", Session: idleID[:], Handle: 9, Fence: d.m.fence(), Value: []byte("w"),
			}}})
		}},
		one("Lock, the last of a long queue", lockCommand("many/0", idleID, 1)),
		one("Acquire, claimed", growthAcquire(attachedID, 1, true)),
		one("Acquire, of more than is unclaimed", growthAcquire(attachedID, 2, true)),
		one("Acquire", growthAcquire(idleID, 1, true)),
		{"Release", 1, func(d *driver) {
			d.do(&wire.Command{Op: &wire.Command_Release{Release: &wire.Release{Name: "many", Session: idleID[:], Fence: d.m.fence()}}})
		}},
		{"Acquire, refused because of lock-delays", 1, func(d *driver) {
			free := d.m.semaphores.byName["many"].free()
			delayed := d.m.semaphores.byName["many"].delayed
			d.want(wire.Code_LOCK_DELAY, d.do(growthAcquire(idleID, uint32(free+delayed/2), false)))
		}},
		one("Acquire, queued", growthAcquire(idleID, 10_000_000, true)),
		{"Resize", 2, func(d *driver) {
			d.do(&wire.Command{Op: &wire.Command_Resize{Resize: &wire.Resize{Name: "many", Limit: 9_999_999}}})
			d.do(&wire.Command{Op: &wire.Command_Resize{Resize: &wire.Resize{Name: "many", Limit: 10_000_000}}})
		}},
		one("Acquire of a key", keyCommand("free", idleID)),
		one("Put", writeCommand(&wire.KeyOp{Kind: wire.KeyOp_PUT, Key: "free", Value: []byte("x")})),
		{"DeletePrefix", 1, func(d *driver) { d.do(writeCommand(&wire.KeyOp{Kind: wire.KeyOp_DELETE_PREFIX, Key: "free"})) }},
		{"Register", 1, as(other, 2, 1, register)},
		{"OpenSession of another process", 1, as(other, 2, 2, openCommand(wire.ID{32}, 0, 0))},
		{"Lock of another process", 1, as(other, 2, 3, lockCommand("other", wire.ID{32}, 1))},
		{"Deregister", 3, as(other, 2, 4, &wire.Command{Op: &wire.Command_Deregister{Deregister: &wire.Deregister{}}})},
		one("AttachSession", attachCommand(wire.ID{32})),
		one("Lock, claimed", lockCommand("other", wire.ID{32}, 7)),
		one("Lock before the end", lockCommand("ending", idleID, 3)),
	}, lastSteps()...)
}

// lastSteps end the session that has done the steps before, and refuse a wait by which it would close a cycle.
func lastSteps() []growthStep {
	do := func(c *wire.Command) func(*driver) { return func(d *driver) { d.do(c) } }
	return []growthStep{
		{"Lock that may be refused, of a session without locks", 1, do(refusing(lockCommand("ending", attachedID, 2)))},
		{"Withdraw of that", 1, func(d *driver) { d.do(withdrawCommand(d.inc, d.seq)) }},
		{"Lock before a cycle", 1, do(lockCommand("across", attachedID, 1))},
		{"Lock that it waits for", 1, do(lockCommand("ending", attachedID, 2))},
		{"Lock that is refused", 2, func(d *driver) { d.want(wire.Code_DEADLOCK, d.do(refusing(lockCommand("across", idleID, 4)))) }},
		{"CloseSession", 3, do(closeCommand(idleID))},
		{"a lock-delay that ends", 3, func(d *driver) { d.at(d.time + 3*second) }},
	}
}
