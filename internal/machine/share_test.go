package machine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

func shareCommand(name string, session wire.ID, handle uint64, wait bool) *wire.Command {
	return &wire.Command{Op: &wire.Command_Lock{Lock: &wire.Lock{Name: name, Session: session[:], Handle: handle, Shared: true, Wait: wait}}}
}

func unshareCommand(name string, session wire.ID, share uint64) *wire.Command {
	return &wire.Command{Op: &wire.Command_Unlock{Unlock: &wire.Unlock{Name: name, Session: session[:], Share: share}}}
}

// newSharing is a driver of a group at the level of shares, with a session.
func newSharing(tb testing.TB) (*driver, wire.ID) {
	d, s := newDriverAt(tb, wire.LevelShared), makeID("s")
	d.want(wire.Code_OK, d.do(openCommand(s, MaxTTL, 0)))
	return d, s
}

// granted returns the shares that outcomes grant.
func granted(outcomes []fact.Outcome) (replies []*wire.Reply) {
	for _, o := range outcomes {
		if o.Reply.Code == wire.Code_OK && o.Reply.Share != 0 && o.Reply.Holds > 0 {
			replies = append(replies, o.Reply)
		}
	}
	return replies
}

// An entry grants a portion of shares, and the next ones the rest, whatever else they do, and on each member
// alike, also on one that has been loaded in between. All have one fence.
func TestShare_GrantedInPortions(t *testing.T) {
	const readers = 2*MaxGrants + 100
	d, s := newSharing(t)
	fence := d.want(wire.Code_OK, d.do(lockCommand("x", s, 1))).Fence
	d.many(readers, func(i int) *wire.Command { return shareCommand("x", s, uint64(i), true) })
	d.want(wire.Code_QUEUED, d.do(lockCommand("x", s, 1)))
	d.many(3, func(i int) *wire.Command { return shareCommand("x", s, uint64(i), true) }) // behind the exclusive request

	got := granted(d.do(unlockCommand("x", s, 1, fence)))
	for _, want := range []int{MaxGrants, 2 * MaxGrants, readers} {
		if len(got) != want {
			t.Fatalf("%d shares are granted, want %d", len(got), want)
		}
		due, ok := d.m.NextDeadline()
		if more := want < readers; (ok && due <= d.m.Now()) != more {
			t.Fatalf("after %d the next entry is due at %d, %t", want, due, ok)
		}
		loaded, err := Load(d.disk.pairs())
		if err != nil || audit(loaded) != nil || !d.disk.equal(dump(loaded)) {
			t.Fatal("the loaded machine differs: ", err)
		}
		d.m = loaded
		out := d.do(shareCommand("x", s, 1, false))
		if r := d.want(wire.Code_LOCKED, out); r.Holder != nil && !r.Holder.Waiting {
			t.Errorf("a share is refused because of %v", r.Holder)
		}
		got = append(got, granted(out)...)
	}
	for _, r := range got {
		if r.Fence != got[0].Fence || r.Share < r.Fence {
			t.Fatalf("%v is not of the phase %d", r, got[0].Fence)
		}
	}
}

// The portions of an entry are of all locks together, and the first of each lock is granted at once.
func TestShare_PortionsOfManyLocks(t *testing.T) {
	d, s := newSharing(t)
	fences := map[string]uint64{}
	names := []string{"c", "a", "b"}
	for _, name := range names {
		fences[name] = d.want(wire.Code_OK, d.do(lockCommand(name, s, 1))).Fence
		d.many(4, func(i int) *wire.Command { return shareCommand(name, s, uint64(i), true) })
	}
	d.m.split = 2
	held := func() (counts []int) {
		for _, name := range names {
			counts = append(counts, lockOf(d.m, name).Shared)
		}
		return counts
	}
	d.do(unlockCommand("a", s, 1, fences["a"]), unlockCommand("b", s, 1, fences["b"]), unlockCommand("c", s, 1, fences["c"]))
	for _, want := range [][]int{{1, 2, 1}, {3, 2, 1}, {4, 3, 1}, {4, 4, 2}, {4, 4, 4}} { // the oldest request first
		if got := held(); !slices.Equal(got, want) {
			t.Errorf("%v shares, want %v", got, want)
		}
		d.do()
	}
	if err := audit(d.m); err != nil {
		t.Error(err)
	}
}

// All shares of a portion that is not whole may be released before the next entry grants the rest.
func TestShare_ReleasedBetweenPortions(t *testing.T) {
	d, s := newSharing(t)
	fence := d.want(wire.Code_OK, d.do(lockCommand("x", s, 1))).Fence
	d.many(5, func(i int) *wire.Command { return shareCommand("x", s, uint64(i), true) })
	d.m.split = 2
	got := granted(d.do(unlockCommand("x", s, 1, fence)))
	fences := map[uint64]bool{}
	for entries := 0; len(got) > 0; entries++ {
		fences[got[0].Fence] = true
		loaded, err := Load(d.disk.pairs())
		if err != nil {
			t.Fatal(err)
		}
		loaded.split = d.m.split
		d.m = loaded
		var release []*wire.Command
		for _, r := range got {
			release = append(release, unshareCommand("x", s, r.Share))
		}
		got = granted(d.do(release...))
		if err := audit(d.m); err != nil {
			t.Fatal(err)
		}
	}
	if d.m.locks.byName["x"] != nil || len(fences) != 1 {
		t.Errorf("the lock is %v after the fences %v", lockOf(d.m, "x"), fences)
	}
}

// With 10,000 shared holders the exclusive request is granted in the entry of the last release.
func TestShare_ManyHolders(t *testing.T) {
	const holders = 10_000
	d, s := newSharing(t)
	d.many(holders, func(i int) *wire.Command { return shareCommand("x", s, uint64(i), false) })
	first := lockOf(d.m, "x").Fence
	d.want(wire.Code_QUEUED, d.do(lockCommand("x", s, 1)))
	for i := 0; i < holders; i += 2_000 {
		var release []*wire.Command
		for j := range uint64(2_000) {
			release = append(release, unshareCommand("x", s, first+uint64(i)+j))
		}
		if v := lockOf(d.m, "x"); v.Shared != holders-i {
			t.Fatalf("%d shares, want %d", v.Shared, holders-i)
		}
		out := d.do(release...)
		if last := out[len(out)-2].Reply; (last.Share == 0) != (i+2_000 == holders) { // before that of the release
			t.Fatalf("after %d releases: %v", i+2_000, last)
		}
	}
	if v := lockOf(d.m, "x"); !v.Held || v.Shared > 0 || v.Fence != first+holders {
		t.Errorf("%+v", v)
	}
}

// A lock has a limited number of shares and requests for some.
func TestLimit_Shares(t *testing.T) {
	d, s := newSharing(t)
	d.many(MaxShares-2, func(i int) *wire.Command { return shareCommand("x", s, uint64(i), false) })
	d.line(wire.Code_QUEUED, "lock x s/1 wait")
	d.line(wire.Code_QUEUED, "lock x s/1 wait shared")
	d.line(wire.Code_QUEUED, "lock x s/1 wait shared")
	d.line(wire.Code_BUSY, "lock x s/1 wait shared")
	d.line(wire.Code_LOCKED, "lock x s/1 shared")
	d.line(wire.Code_QUEUED, "lock x s/1 wait")
	d.line(wire.Code_OK, "lock y s/1 shared")
	d.line(wire.Code_OK, "lock x s/1 shared reentrant share=7")
	d.line(wire.Code_OK, "unlock x s/1 share=9")
	d.line(wire.Code_QUEUED, "lock x s/1 wait shared")
	d.line(wire.Code_BUSY, "lock x s/1 wait shared")
	if err := audit(d.m); err != nil {
		t.Error(err)
	}
	d, s = newSharing(t)
	d.many(MaxShares, func(i int) *wire.Command { return shareCommand("x", s, uint64(i), false) })
	d.line(wire.Code_BUSY, "lock x s/1 shared")
	d.line(wire.Code_BUSY, "lock x s/1 wait shared")
}

// The shares of a session count among what it may have.
func TestLimit_SharesOfSession(t *testing.T) {
	d, s := newSharing(t)
	places := &d.m.sessions[s].shares.Len
	*places += MaxPlaces - 1 // as if
	d.line(wire.Code_OK, "lock x s/1 shared")
	d.line(wire.Code_BUSY, "lock x s/1 shared")
	d.line(wire.Code_BUSY, "lock y s/1")
	*places -= MaxPlaces - 1
	d.line(wire.Code_OK, "lock y s/1")
}

// One session of a process lives on by the renewals of another no longer than its own TTL allows
// (redisson#7098: one instance's renewal kept dead readers alive): the process that does not renew loses its shares.
func TestShare_DeadReaderExpires(t *testing.T) {
	d, s := newSharing(t)
	d.want(wire.Code_OK, d.do(shareCommand("x", s, 1, false)))
	dead := &driver{tb: t, m: d.m, disk: d.disk, inc: wire.ID{7}, index: d.index}
	u := makeID("u")
	dead.want(wire.Code_OK, dead.do(upToDate(registerCommand(7, 10*second))))
	dead.want(wire.Code_OK, dead.do(openCommand(u, 10*second, 5*second)))
	dead.want(wire.Code_OK, dead.do(shareCommand("x", u, 1, false)))
	d.index = dead.index
	d.want(wire.Code_QUEUED, d.do(lockCommand("x", s, 2)))
	for now := second; now < 14*second; now += second {
		d.time = now
		d.do(&wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}})
		if v, want := lockOf(d.m, "x"), 1+btoi(now < 10*second); v.Shared != want {
			t.Fatalf("at %v: %d shares, want %d", time.Duration(now), v.Shared, want)
		}
	}
	first := d.m.sessions[s].shares.First().number
	d.want(wire.Code_OK, d.do(unshareCommand("x", s, first)))
	if v := lockOf(d.m, "x"); v.Held || v.Delay == 0 {
		t.Errorf("in the lock-delay of the dead reader: %+v", v)
	}
	d.at(15 * second)
	if v := lockOf(d.m, "x"); !v.Held || v.Session != s {
		t.Errorf("after it: %+v", v)
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A command that concerns shares looks at few things, however many there are, but for what it releases and recalls.
func TestGrowth_Shares(t *testing.T) {
	const n = MaxShares - 100
	d, s := newSharing(t)
	d.many(n/2, func(i int) *wire.Command { return shareCommand("x", s, uint64(i), false) })
	d.many(10_000, func(i int) *wire.Command { return shareCommand(fmt.Sprint("y", i), s, 1, false) })
	d.want(wire.Code_OK, d.do(openCommand(idleID, MaxTTL, 2*second)))
	d.leaveUnclaimed(n/2, func(i int) *wire.Command { return shareCommand("x", attachedID, uint64(i), false) })
	number := func() uint64 { return d.m.fence() }
	for _, step := range []growthStep{
		{"a share that is claimed", 1, func(d *driver) { d.want(wire.Code_OK, d.do(shareCommand("x", attachedID, 1, false))) }},
		{"a share", 1, func(d *driver) { d.want(wire.Code_OK, d.do(shareCommand("x", idleID, 1, false))) }},
		{"an exclusive request", 1, func(d *driver) { d.want(wire.Code_QUEUED, d.do(lockCommand("x", idleID, 1))) }},
		{"a share, queued", 1, func(d *driver) { d.want(wire.Code_QUEUED, d.do(shareCommand("x", idleID, 1, true))) }},
		{"a share again", 1, func(d *driver) {
			c := shareCommand("x", idleID, 1, true)
			c.GetLock().Share, c.GetLock().Reentrant = number(), true
			d.want(wire.Code_OK, d.do(c))
		}},
		{"its release", 1, func(d *driver) { d.want(wire.Code_OK, d.do(unshareCommand("x", idleID, number()))) }},
		{"a session with a share and two requests", 5, func(d *driver) { d.do(closeCommand(idleID)) }},
		{"its lock-delay", 2, func(d *driver) { d.at(3 * second) }},
	} {
		before := d.m.visits.Total()
		step.do(d)
		if visits := d.m.visits.Total() - before; visits > allowedVisits(n)*step.touches {
			t.Errorf("%s looks at %d elements, and may at %d", step.name, visits, allowedVisits(n)*step.touches)
		}
	}
	if err := audit(d.m); err != nil {
		t.Error(err)
	}
}

// No query looks at more than MaxVisits because of shares.
func TestQuery_VisitsOfSharesBounded(t *testing.T) {
	d, s := newSharing(t)
	other := makeID("t")
	d.want(wire.Code_OK, d.do(openCommand(other, MaxTTL, 0)))
	for _, name := range []string{"a", "b", "c", "d"} {
		d.many(MaxShares/2, func(i int) *wire.Command { return shareCommand(name, s, uint64(i), false) })
		d.many(MaxShares/2, func(i int) *wire.Command { return shareCommand(name, other, uint64(i), false) })
		d.want(wire.Code_QUEUED, d.do(lockCommand(name, other, 9)))
		d.want(wire.Code_QUEUED, d.do(lockCommand(name, s, 9)))
	}
	d.many(3000, func(i int) *wire.Command { return shareCommand(fmt.Sprint("few", i), s, 1, false) })
	ask := func(state string) {
		for _, q := range []Query{
			LockQuery{Name: "a"}, LocksQuery{}, LocksQuery{After: "c"}, ExplainQuery{Name: "a"}, ExplainQuery{Name: "d", Limit: MaxPage},
			WaitCyclesQuery{},
		} {
			before := d.m.visits.Total()
			answer := q.Begin(d.m)()
			if visits := d.m.visits.Total() - before; visits > MaxVisits {
				t.Errorf("%s: %+v looks at %d objects, and may at %d", state, q, visits, MaxVisits)
			}
			if body, err := encodedAnswer(answer); err != nil || len(body) > 4*pageBytes {
				t.Errorf("%s: %+v is answered by %d bytes, %v", state, q, len(body), err)
			}
		}
	}
	ask("all live")
	if v := Ask[*ExplainView](d.m, ExplainQuery{Name: "a"}); v.Shared != MaxShares || len(v.Holders) != MaxHolders {
		t.Errorf("%d shares, %d are listed", v.Shared, len(v.Holders))
	}
	d.m.split = 1
	d.do(closeCommand(s))
	ask("half of them ended")
	if v := Ask[*ExplainView](d.m, ExplainQuery{Name: "d"}); v.Held || len(v.Queue) != 1 { // the first that a page looks at have ended
		t.Errorf("held by ended sessions: %t, %d wait", v.Held, len(v.Queue))
	}
}
