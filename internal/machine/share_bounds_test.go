package machine

import (
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// A share that is granted between two exclusive requests of an entry is recalled by the second one, also behind the
// waiters that the first one has recalled.
func TestShare_RecalledBehindPortion(t *testing.T) {
	d, s := newSharing(t)
	fence := d.want(wire.Code_OK, d.do(lockCommand("x", s, 1))).Fence
	d.many(8, func(i int) *wire.Command { return shareCommand("x", s, uint64(10+i), true) })
	d.m.split = 2
	d.do(unlockCommand("x", s, 1, fence))
	lingering := shareCommand("x", s, 2, false)
	lingering.GetLock().Lingering = true
	first := d.seq + 1
	r := d.execute(lockCommand("x", s, 1), withdrawCommand(d.inc, first), lingering, lockCommand("x", s, 1))
	d.want(wire.Code_QUEUED, r.Outcomes)
	if len(r.Recalls) != 1 || r.Recalls[0].Handle != 2 || r.Recalls[0].Share == 0 {
		t.Errorf("recalled: %v", r.Recalls)
	}
}

// newLeft is a driver of a group in which a session has been attached that left n shares of each of some locks,
// all of them lingering.
func newLeft(tb testing.TB, n int, locks ...string) (d *driver, other wire.ID) {
	d, other = newSharing(tb)
	d.leaveUnclaimed(n*len(locks), func(i int) *wire.Command {
		c := shareCommand(locks[i/n], attachedID, uint64(i), false)
		c.GetLock().Lingering = true
		return c
	})
	return d, other
}

// A claim recalls what it has made alone: waiting exclusive requests have recalled all other shares.
func TestShare_ClaimRecallsOne(t *testing.T) {
	const n = 1000
	d, s := newLeft(t, n, "x")
	if r := d.execute(lockCommand("x", s, 1)); len(r.Recalls) != n {
		t.Errorf("an exclusive request recalls %d shares, want %d", len(r.Recalls), n)
	}
	claim := shareCommand("x", attachedID, 1, false)
	if r := d.execute(claim); len(r.Recalls) != 0 {
		t.Errorf("a claim recalls %d shares", len(r.Recalls))
	}
	claim.GetLock().Lingering = true
	r := d.execute(claim)
	if share := d.want(wire.Code_OK, r.Outcomes).Share; len(r.Recalls) != 1 || r.Recalls[0].Share != share {
		t.Errorf("a claim that lingers recalls %v, want share %d", r.Recalls, share)
	}
}

// An entry releases a portion of the shares that a session left of locks which it asks for exclusively, and at least one of
// each. Further requests release the rest.
func TestShare_DisclaimedInPortions(t *testing.T) {
	names := []string{"a", "b", "c"}
	d, _ := newLeft(t, 10, names...)
	d.m.split = 6
	for entries := 0; d.m.shares > 0; entries++ {
		var commands []*wire.Command
		for _, name := range names {
			commands = append(commands, lockCommand(name, attachedID, 1))
		}
		before := d.m.shares
		out := d.do(commands...)
		if n := before - d.m.shares; n == 0 || n > d.m.split+len(names) {
			t.Fatalf("entry %d releases %d shares", entries, n)
		}
		if busy := d.m.shares > 0; entries == 0 && !busy || busy != (out[len(out)-1].Reply.Code == wire.Code_BUSY) {
			t.Fatalf("entry %d: %v", entries, out[len(out)-1].Reply)
		}
		if err := audit(d.m); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		if v := lockOf(d.m, name); v.Session != attachedID {
			t.Errorf("%+v", v)
		}
	}
	d, _ = newLeft(t, 10, "x")
	d.want(wire.Code_OK, d.do(lockCommand("x", attachedID, 1)))
}

// What an ended session waits for is released in portions also if the lock is held shared, so that each release looks
// for shared requests that can be granted.
func TestShare_EndedWaitersInPortions(t *testing.T) {
	const n = 100
	d, s := newSharing(t)
	u := makeID("u")
	d.want(wire.Code_OK, d.do(openCommand(u, MaxTTL, 0)))
	d.want(wire.Code_OK, d.do(shareCommand("x", s, 1, false)))
	d.many(n, func(i int) *wire.Command { return lockCommand("x", u, uint64(i)) })
	d.want(wire.Code_QUEUED, d.do(shareCommand("x", s, 2, true)))
	d.m.split = 10
	ended := d.do(closeCommand(u))
	for entries := 0; d.m.waiting > 0; entries++ {
		if len(ended) > d.m.split+2 || entries > n {
			t.Fatalf("entry %d: %d outcomes", entries, len(ended))
		}
		loaded, err := Load(d.disk.pairs())
		if err != nil || audit(loaded) != nil || audit(d.m) != nil {
			t.Fatal(err, audit(loaded), audit(d.m))
		}
		ended = d.do()
	}
	if v := lockOf(d.m, "x"); v.Shared != 2 {
		t.Errorf("%+v", v)
	}
}

// The entry ends that goes on with a lock which has nothing to grant, in whatever way that has got among those that do.
func TestShare_PortionOfNothing(t *testing.T) {
	d, s := newSharing(t)
	d.want(wire.Code_OK, d.do(lockCommand("x", s, 1)))
	d.want(wire.Code_QUEUED, d.do(shareCommand("x", s, 2, true)))
	d.m.portions.Push(d.m.locks.byName["x"])
	d.do()
	if n := d.m.portions.Len(); n != 0 {
		t.Errorf("%d locks are due", n)
	}
	if err := audit(d.m); err != nil {
		t.Error(err)
	}
}

// While others hold a lock shared, its view has the lock-delay that exclusive requests wait for after them: the longest.
func TestShare_DelayBesideHolders(t *testing.T) {
	d, s := newSharing(t)
	d.want(wire.Code_OK, d.do(shareCommand("x", s, 1, false)))
	for name, delay := range map[string]int64{"a": 5 * second, "b": 30 * second, "c": 0} {
		ended := makeID(name)
		d.want(wire.Code_OK, d.do(openCommand(ended, MaxTTL, delay)))
		d.want(wire.Code_OK, d.do(shareCommand("x", ended, 1, false)))
		d.want(wire.Code_OK, d.do(closeCommand(ended)))
	}
	for _, row := range []struct{ now, left int64 }{{0, 30}, {10, 20}, {30, 0}} {
		d.at(row.now * second)
		v, e := lockOf(d.m, "x"), Ask[*ExplainView](d.m, ExplainQuery{Name: "x"})
		if v.Shared != 1 || v.Session != s || v.Delay != row.left*second || e.Delay != v.Delay {
			t.Errorf("at %d s: %+v, and explained with %v, want one share and a lock-delay of %d s", row.now, v, e.Delay, row.left)
		}
	}
}
