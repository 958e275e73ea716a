package machine

import (
	"fmt"
	"testing"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// boundDisk is sharedDisk with a hold of each kind that ends in time, and waiters for such holds.
func boundDisk() disk {
	d := sharedDisk()
	session := []byte(soundSession)
	d["m"] = marshalled(&wire.MachineState{Version: 1, FeatureLevel: wire.LevelMaxHold, Now: 5 * second, Fences: 20, Positions: 9, Changes: 9})
	d["lx"] = marshalled(&wire.LockState{Session: session, Holds: 1, Fence: 1, Ends: 9 * second, Requested: second, Incarnation: []byte(soundInc), Seq: 8})
	d["hr\x00"+be(10)] = soundShare(&wire.ShareState{Holds: 1, Ends: 2 * second}) // has passed, and is to be released
	d["px\x00"+be(3)] = marshalled(&wire.PermitState{Session: session, Permits: 2, Ends: 5*second + MaxMaxHold, Requested: 5 * second})
	d["wlr\x00"+be(7)] = marshalled(&wire.WaiterState{Session: session, Incarnation: []byte(soundInc), Seq: 11, Shared: true, MaxHold: MinMaxHold})
	d["wSx\x00"+be(8)] = marshalled(&wire.WaiterState{Session: session, Incarnation: []byte(soundInc), Seq: 12, Permits: 2, MaxHold: MaxMaxHold, Since: 3})
	return d
}

func TestLoad_MaxHold(t *testing.T) {
	session := []byte(soundSession)
	lock := func(ends, requested int64) []byte {
		return marshalled(&wire.LockState{Session: session, Holds: 1, Fence: 12, Ends: ends, Requested: requested})
	}
	permit := func(ends, requested int64) []byte {
		return marshalled(&wire.PermitState{Session: session, Permits: 1, Ends: ends, Requested: requested})
	}
	below := marshalled(&wire.MachineState{Version: 1, FeatureLevel: wire.LevelMaxHold - 1, Now: 5 * second, Fences: 20, Positions: 9, Changes: 9})
	for _, row := range []struct {
		name, key string
		value     []byte
		want      string // of the error; "": none
	}{
		{"nothing else", "ky", boundDisk()["ky"], ""},
		{"one below the level", "m", below, "range"},
		{"the latest end", "lz", lock(5*second+MaxMaxHold, 0), ""},
		{"an end that is too late", "lz", lock(5*second+MaxMaxHold+1, 0), "range"},
		{"a request in the future", "lz", lock(9*second, 5*second+1), "range"},
		{"a request before the beginning", "lz", lock(9*second, -1), "range"},
		{"a request without an end", "lz", lock(0, 2), "range"},
		{"an end before the request", "lz", lock(second, second), "range"},
		{"an end before the beginning", "lz", lock(-1, 0), "range"},
		{"of leadership", "ez", lock(9*second, 0), "range"},
		{"of a lock that lingers", "lz", marshalled(&wire.LockState{Session: session, Holds: 1, Fence: 12, Lingering: true, Ends: 9 * second}), "range"},
		{"of a lock in its lock-delay", "lz", marshalled(&wire.LockState{DelayUntil: 9 * second, Ends: 9 * second}), "range"},
		{"a request of a lock in its lock-delay", "lz", marshalled(&wire.LockState{DelayUntil: 9 * second, Requested: second}), "range"},
		{"of a share that lingers", "hz\x00" + be(12), soundShare(&wire.ShareState{Holds: 1, Fence: 12, Lingering: true, Ends: 9 * second}), "range"},
		{"of a delayed share", "hr\x00" + be(12), marshalled(&wire.ShareState{DelayUntil: 9 * second, Ends: 9 * second}), "range"},
		{"of a share that is too late", "hr\x00" + be(12), soundShare(&wire.ShareState{Holds: 1, Ends: 6*second + MaxMaxHold}), "range"},
		{"of a delayed permit", "px\x00" + be(5), marshalled(&wire.PermitState{Permits: 1, DelayUntil: 9 * second, Ends: 9 * second}), "range"},
		{"of a permit that is too late", "px\x00" + be(5), permit(6*second+MaxMaxHold, 0), "range"},
		{"of a permit", "px\x00" + be(5), permit(6*second, 1), ""},
		{"a waiter for too short a hold", "wlx\x00" + be(9), soundWaiter(&wire.WaiterState{MaxHold: MinMaxHold - 1}), "range"},
		{"a waiter for too long a hold", "wlx\x00" + be(9), soundWaiter(&wire.WaiterState{MaxHold: MaxMaxHold + 1}), "range"},
		{"a waiter for a hold that has ended", "wlx\x00" + be(9), soundWaiter(&wire.WaiterState{MaxHold: -1}), "range"},
		{"a waiter for a hold that lingers", "wlx\x00" + be(9), soundWaiter(&wire.WaiterState{MaxHold: second, Lingering: true}), "range"},
		{"a waiter for leadership", "wex\x00" + be(9), soundWaiter(&wire.WaiterState{MaxHold: second}), "range"},
		{"a waiter for permits since a time", "wSx\x00" + be(9), soundWaiter(&wire.WaiterState{Permits: 1, Since: 1}), "range"},
		{"a waiter for permits with a label", "wSx\x00" + be(9), soundWaiter(&wire.WaiterState{Permits: 1, Since: 1, MaxHold: second, Label: "x"}), "range"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := boundDisk()
			d[row.key] = row.value
			checkLoad(t, d, row.want)
		})
	}
}

// boundCommand is a Lock of a hold that ends in time.
func boundCommand(name string, session wire.ID, maxHold int64) *wire.Command {
	c := lockCommand(name, session, 1)
	c.GetLock().MaxHold = maxHold
	return c
}

// A hundred thousand holds end at one instant: a portion in each entry, the first by name first.
func TestMaxHold_EndInPortions(t *testing.T) {
	const n = 100_000
	d := newDriverAt(t, wire.LevelMaxHold)
	d.want(wire.Code_OK, d.do(openCommand(idleID, MaxTTL, 0)))
	d.many(n, func(i int) *wire.Command { return boundCommand(fmt.Sprintf("%06d", i), idleID, 10*second) })
	d.do(lockCommand("plain", idleID, 1))
	d.time = 10 * second
	for left := n; left > 0; left -= MaxReleased {
		if got := len(d.m.locks.byName); got != left+1 {
			t.Fatalf("%d locks are held, want %d", got, left+1)
		}
		if at, ok := d.m.NextDeadline(); !ok || at > d.time {
			t.Fatalf("the next deadline is %d, %t, with %d left", at, ok, left)
		}
		before := d.m.visits.Total()
		d.do()
		if visits := d.m.visits.Total() - before; visits > MaxReleased*allowedVisits(n) {
			t.Errorf("an entry looks at %d elements", visits)
		}
		if d.m.locks.byName["000000"] != nil {
			t.Fatal("the first one is still held")
		}
	}
	if err := audit(d.m); err != nil || len(d.m.locks.byName) != 1 {
		t.Errorf("%d locks are held: %v", len(d.m.locks.byName), err)
	}
	if r := d.want(wire.Code_OK, d.do(boundCommand("000000", idleID, second))); r.Allowed != second || r.Now != d.time {
		t.Errorf("%v", r)
	}
}

// A hold that is due, and that the entry has no room to end, is held: it can be released and extended yet.
func TestMaxHold_HeldUntilItsPortion(t *testing.T) {
	d := newDriverAt(t, wire.LevelMaxHold)
	d.m.split = 1
	d.line(wire.Code_OK, "open s ttl=1h delay=1m")
	for _, name := range []string{"a", "b", "c"} {
		d.line(wire.Code_OK, "lock %s s/1 max-hold=1s", name)
	}
	b, c := d.m.locks.byName["b"].fence, d.m.locks.byName["c"].fence
	d.time = second
	out := d.do(read(t, "unlock c s/1 fence=%d", c), read(t, "extend b s/1 fence=%d max-hold=1h", b))
	if r := d.want(wire.Code_OK, out); out[0].Reply.Code != wire.Code_OK || r.Allowed != 3600*second || r.Now != second {
		t.Errorf("%v", out)
	}
	if l := d.m.locks.byName["a"]; l.owner != nil || l.delayUntil != 61*second {
		t.Errorf("the first is held, or delayed until %d", l.delayUntil)
	}
	if at, _ := d.m.NextDeadline(); at != 61*second || d.m.locks.byName["c"] != nil {
		t.Errorf("the next deadline is %d", at)
	}
}

// The outcome of a request is the same when it is sent again, and when a member finds it after a snapshot.
func TestMaxHold_OutcomesAgain(t *testing.T) {
	d := newDriverAt(t, wire.LevelMaxHold)
	d.line(wire.Code_OK, "open s ttl=1h")
	for _, kind := range []struct{ first, queued, release string }{
		{"lock x s/1", "lock x s/2 wait max-hold=5s", "unlock x s/1 fence=%d"},
		{"lock y s/1", "lock y s/2 shared wait max-hold=5s", "unlock y s/1 fence=%d"},
		{"acquire p s limit=1 permits=1", "acquire p s limit=1 permits=1 wait max-hold=5s", "release p s fence=%d"},
	} {
		asked := d.time
		held := d.line(wire.Code_OK, "%s", kind.first)
		command := read(t, "%s", kind.queued)
		d.want(wire.Code_QUEUED, d.do(command))
		queued := wire.Ticket{Incarnation: d.inc, Seq: d.seq}
		d.time += 7 * second
		s := &wire.Submission{Incarnation: d.inc[:], Member: 1, Floor: queued.Seq - 1, Calls: []*wire.Call{
			{Seq: d.seq + 1, Command: must(proto.Marshal(read(t, kind.release, held.Fence)))},
		}}
		granted := d.submit(s).Outcomes[0].Reply
		d.seq++
		if granted.Allowed != 12*second || granted.Now != asked {
			t.Errorf("granted: %v", granted)
		}
		d.time += second
		m := must(Load(d.disk.pairs()))
		found := m.Recheck(queued, makeID("s"), "p", "")
		if found.GetAllowed() != granted.Allowed || found.GetNow() != granted.Now || found.GetFence() != granted.Fence {
			t.Errorf("found: %v, want %v", found, granted)
		}
		s.Calls = []*wire.Call{{Seq: queued.Seq, Command: must(proto.Marshal(command))}}
		if again := d.submit(s).Outcomes[0].Reply; !proto.Equal(again, granted) {
			t.Errorf("sent again: %v, want %v", again, granted)
		}
	}
}

// A lock that does not end in time has no byte more for those that do.
func TestMaxHold_Sizes(t *testing.T) {
	d := newDriverAt(t, wire.LevelMaxHold)
	d.line(wire.Code_OK, "open s ttl=1h")
	fence := d.line(wire.Code_OK, "lock x s/1").Fence
	d.line(wire.Code_INVALID, "extend x s/1 fence=%d max-hold=1s", fence)
	if d.m.locks.byName["x"].extra != nil {
		t.Error("a lock that is held alone has an extra")
	}
	if size := unsafe.Sizeof(lock{}); size > 192 {
		t.Errorf("a lock has %d bytes", size)
	}
	if size := unsafe.Sizeof(share{}); size > 128 {
		t.Errorf("a share has %d bytes", size)
	}
}
