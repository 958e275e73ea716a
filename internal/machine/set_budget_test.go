package machine

import (
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// An UnlockSet has some bytes, and can release 128 locks: one entry releases no more than a share of them for members, and as
// much for clients. What is refused has no effect, and is applied in the next entry.
func TestLimit_NamesTouchedInEntry(t *testing.T) {
	d := newDriverAt(t, wire.LevelSets)
	d.do(openCommand(wire.ID{1}, 0, 0))
	const sets = MaxTouched/MaxSet + 1
	var fences []uint64
	for i := range sets {
		c := &wire.LockSet{Session: id(1), Handle: uint64(i), Names: numberedNames(string(rune('A'+i)), MaxSet)}
		fences = append(fences, d.want(wire.Code_OK, d.do(setCommand(c))).Fence)
	}
	var commands []*wire.Command
	for _, fence := range fences {
		commands = append(commands, unlockSetCommand(wire.ID{1}, fence))
	}
	outcomes := d.do(commands...)
	for i, o := range outcomes {
		if want := wire.Code_OK; i < sets-1 && o.Reply.Code != want {
			t.Fatalf("release %d: %v", i, o.Reply)
		}
	}
	d.want(wire.Code_BUSY, outcomes)
	d.want(wire.Code_OK, d.do(commands[sets-1]))
	if len(d.m.locks.byName) != 0 {
		t.Errorf("%d locks are left", len(d.m.locks.byName))
	}
}

// Requests leave half of that to releases.
func TestLimit_RequestsLeaveNamesToReleases(t *testing.T) {
	d := newDriverAt(t, wire.LevelSets)
	d.m.touched.most = 8
	d.do(openCommand(wire.ID{1}, 0, 0))
	request := func(name string) *wire.Command {
		return setCommand(&wire.LockSet{Session: id(1), Names: numberedNames(name, 2)})
	}
	fence := d.want(wire.Code_OK, d.do(request("a"))).Fence
	var got []wire.Code
	for _, o := range d.do(request("b"), request("c"), request("d"), unlockSetCommand(wire.ID{1}, fence)) {
		got = append(got, o.Reply.Code)
	}
	if want := [4]wire.Code{wire.Code_OK, wire.Code_OK, wire.Code_BUSY, wire.Code_OK}; [4]wire.Code(got) != want {
		t.Errorf("got %v, want %v", got, want)
	}
}
