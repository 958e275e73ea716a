package machine

import (
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// newSets is a driver of a group at the level of sets, with a session.
func newSets(tb testing.TB) (*driver, wire.ID) {
	d, s := newDriverAt(tb, wire.LevelSets), makeID("s")
	d.want(wire.Code_OK, d.do(openCommand(s, MaxTTL, 0)))
	return d, s
}

// Shares of a lock are left for the next entry, and the only one that was granted is released before that: an older set
// has the lock then. What is left waits for the set, and the next entry grants nothing.
func TestSet_GrantedLockThatIsDue(t *testing.T) {
	d, s := newSets(t)
	d.m.split = 1
	x := d.want(wire.Code_OK, d.do(lockCommand("x", s, 1))).Fence
	b := d.want(wire.Code_OK, d.do(lockCommand("b", s, 1))).Fence
	d.want(wire.Code_QUEUED, d.do(shareCommand("x", s, 2, true)))
	d.want(wire.Code_QUEUED, d.do(setCommand(&wire.LockSet{Session: s[:], Names: []string{"b", "x"}, Handle: 3, Wait: true})))
	d.want(wire.Code_QUEUED, d.do(shareCommand("x", s, 4, true)))

	d.do(unlockCommand("x", s, 1, x), unlockCommand("b", s, 1, b), unshareCommand("x", s, d.m.fence()+1))
	if v := lockOf(d.m, "x"); v.Handle != 3 || v.Set != 2 {
		t.Fatalf("the set does not hold the lock: %+v", v)
	}
	if due, ok := d.m.NextDeadline(); ok && due <= d.m.Now() {
		t.Fatalf("the next entry is due at %d", due) // and would not end
	}
	if got := granted(d.do(unlockSetCommand(s, d.m.fence()))); len(got) != 1 {
		t.Errorf("the release of the set grants %v", got)
	}
}

func unlockSetCommand(session wire.ID, fence uint64) *wire.Command {
	return &wire.Command{Op: &wire.Command_UnlockSet{UnlockSet: &wire.UnlockSet{Session: session[:], Fence: fence}}}
}
