package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

var (
	endingID = wire.ID{10} // the session that ends
	otherID  = wire.ID{11} // one that waits for all that it has
)

// endings are the ways in which a session can end.
var endings = []struct {
	name string
	end  func(d *driver)
}{
	{"closed", func(d *driver) { d.do(closeCommand(endingID)) }},
	{"closed gracefully", func(d *driver) {
		d.do(&wire.Command{Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{Id: endingID[:], Graceful: true}}})
	}},
	{"expired", func(d *driver) { d.at(10 * second) }},
	{"check failed", func(d *driver) { d.do(setCheckCommand(wire.CheckState_CRITICAL)) }},
	{"process replaced", func(d *driver) {
		d.inc, d.seq = wire.ID{2}, 0
		next := registerCommand(1, MaxTTL) // with the token of the first
		next.GetRegister().Boot = 2
		d.want(wire.Code_OK, d.do(next))
	}},
}

// A session that ends in many entries leaves what one that ends in one entry does,
// and nothing counts as held by it at any time after its end. The machine is loaded
// from its disk after each entry.
func TestEnding_Split(t *testing.T) {
	for _, ending := range endings {
		for _, behavior := range []wire.Behavior{wire.Behavior_RELEASE, wire.Behavior_DELETE} {
			for _, delay := range []int64{0, 15 * second} {
				t.Run(fmt.Sprintf("%s/%v/%d", ending.name, behavior, delay/second), func(t *testing.T) {
					want, _ := endInEntries(t, 1000, behavior, delay, ending.end)
					for _, split := range []int{1, 2, 5} {
						got, entries := endInEntries(t, split, behavior, delay, ending.end)
						if got != want {
							t.Errorf("with %d things per entry:\n%s\nwant\n%s", split, got, want)
						}
						if entries < 20/split {
							t.Errorf("with %d things per entry it took %d entries", split, entries)
						}
					}
				})
			}
		}
	}
}

// endInEntries ends the session and returns the state when all of it is released,
// and when its lock-delay has ended.
func endInEntries(t *testing.T, split int, behavior wire.Behavior, delay int64, end func(*driver)) (state string, entries int) {
	d := newDriver(t)
	d.m.split = split
	other := fillEnding(d, behavior, delay)
	end(d)
	var out strings.Builder
	for _, then := range []int64{0, 60 * second} {
		d.at(max(d.time, then))
		for due, ok := d.m.NextDeadline(); ok && due <= d.m.Now(); due, ok = d.m.NextDeadline() {
			endingIsInvisible(t, d)
			loaded, err := Load(d.disk.pairs())
			if err != nil {
				t.Fatal(err)
			}
			if err := audit(loaded); err != nil {
				t.Fatal(err)
			}
			loaded.split = split
			d.m = loaded
			d.at(d.time)
			if entries++; entries > 1000 {
				t.Fatal("the rest is never released")
			}
		}
		endingIsInvisible(t, d)
		out.WriteString(withoutIndexes(d.m))
		// The other session is kept alive by its own process.
		d.submit(other)
	}
	return out.String(), entries
}

// Of sessions that expire together an entry ends as many as it may release. The others
// live on until the next entry: a renewal keeps them.
func TestEnding_ExpiredInPortions(t *testing.T) {
	d := newDriver(t)
	d.m.split = 3
	d.sessions(8, 10*second)
	expire := func(s ...*wire.Submission) (ended []wire.ID) {
		for _, e := range d.submit(s...).Ended {
			ended = append(ended, e.Session)
		}
		return ended
	}
	all := allSessions(d.m)
	d.time = 10 * second
	if got, want := expire(), []wire.ID{all[0].ID, all[1].ID, all[2].ID}; !slices.Equal(got, want) {
		t.Fatalf("the first entry ended %v, want %v", got, want)
	}
	for i, v := range all {
		if _, refusal := d.m.live(v.ID[:]); (refusal == nil) != (i >= 3) {
			t.Errorf("session %d after the first entry: %v", i, refusal)
		}
	}
	if due, ok := d.m.NextDeadline(); !ok || due > d.m.Now() {
		t.Error("the next portion is not due")
	}
	d.do(&wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}}) // ends a portion first
	for range 5 {
		if ended := expire(); len(ended) > 0 {
			t.Fatalf("%v ended after they were renewed", ended)
		}
	}
	if left := len(allSessions(d.m)); left == 0 || left >= 5 {
		t.Errorf("%d sessions are left of 8", left)
	}
}

// Of processes whose registrations expire together, and of checks whose TTLs do, an entry
// ends as many as have no more sessions than it may end, and at least one.
func TestEnding_ProcessesAndChecksInPortions(t *testing.T) {
	for _, c := range []struct {
		what  string
		at    int64
		open  func(p *driver, id wire.ID)
		split int
		want  []int
	}{
		{"processes", MaxTTL, openUnbound, 11, []int{4, 4, 2}},
		{"processes", MaxTTL, openUnbound, 1, []int{2, 2, 2, 2, 2}},
		{"checks", 60 * second, openChecked, 6, []int{4, 4, 2}},
		{"checks", 60 * second, openChecked, 1, []int{2, 2, 2, 2, 2}},
	} {
		t.Run(fmt.Sprint(c.what, "/", c.split), func(t *testing.T) {
			d := newDriver(t)
			for member := range uint64(5) {
				d.as(10+member, func(p *driver) {
					for i := range 2 {
						c.open(p, wire.ID{byte(member), byte(i), 1})
					}
				})
			}
			d.m.split, d.time = c.split, c.at
			var ended []int
			for due, ok := d.m.NextDeadline(); ok && due <= d.time; due, ok = d.m.NextDeadline() {
				if n := len(d.submit().Ended); n > 0 {
					ended = append(ended, n)
				}
			}
			if !slices.Equal(ended, c.want) {
				t.Errorf("the entries ended %v sessions, want %v", ended, c.want)
			}
		})
	}
}

// The outcomes of a process that expires are dropped with it, so they count too.
func TestEnding_OutcomesInPortions(t *testing.T) {
	d := newDriver(t)
	d.do(deregisterCommand())
	for member := range uint64(3) {
		d.as(10+member, func(p *driver) {
			renew := &wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}}
			p.do(renew, renew, renew)
		})
	}
	d.m.split, d.time = 7, MaxTTL
	for left := 2; left >= 0; left-- {
		d.submit()
		if n := len(d.m.registry.byID); n != left {
			t.Errorf("%d processes are left, want %d", n, left)
		}
	}
}

func openUnbound(p *driver, id wire.ID) { p.do(openCommand(id, 0, 0)) }

func openChecked(p *driver, id wire.ID) {
	check := setCheckCommand(wire.CheckState_PASSING)
	check.GetSetCheck().Ttl = 60 * second
	open := openCommand(id, MaxTTL, 0)
	open.GetOpenSession().Checks = []string{"disk"}
	p.do(check, open)
}

// at applies an empty batch.
func (d *driver) at(time int64) {
	d.tb.Helper()
	d.time = time
	d.submit()
}

// fillEnding gives the session holds, permits, keys, an election and queue places,
// and lets the other one wait for them. It returns a renewal of the other's process.
func fillEnding(d *driver, behavior wire.Behavior, delay int64) *wire.Submission {
	d.do(setCheckCommand(wire.CheckState_PASSING))
	d.do(&wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{
		Id: endingID[:], Ttl: 10 * second, LockDelay: delay, Behavior: behavior, Checks: []string{"disk"},
	}}})
	inc := wire.ID{3}
	other := &driver{tb: d.tb, m: d.m, disk: d.disk, inc: inc, index: d.index}
	other.do(registerCommand(2, MaxTTL))
	other.do(openCommand(otherID, MaxTTL, 0), lockCommand("mine", otherID, 1))
	d.index = other.index
	for i := range uint64(6) {
		name := fmt.Sprint("n", i)
		d.do(lockCommand(name, endingID, 1), electionCommand(name, endingID), acquireCommand(name, endingID), keyCommand(name, endingID))
	}
	d.do(lockCommand("mine", endingID, 2), lockCommand("mine", endingID, 3))
	other.index = d.index
	for i := range uint64(4) {
		name := fmt.Sprint("n", i)
		other.do(lockCommand(name, otherID, 1), electionCommand(name, otherID), acquireCommand(name, otherID))
	}
	d.index = other.index
	renew := must(proto.Marshal(&wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}}))
	return &wire.Submission{Incarnation: inc[:], Member: 2, Floor: other.seq, Calls: []*wire.Call{{Seq: other.seq + 1, Command: renew}}}
}

func setCheckCommand(state wire.CheckState) *wire.Command {
	return &wire.Command{Op: &wire.Command_SetCheck{SetCheck: &wire.SetCheck{Name: "disk", Register: true, State: state}}}
}

func electionCommand(name string, session wire.ID) *wire.Command {
	return &wire.Command{Op: &wire.Command_Lock{Lock: &wire.Lock{Name: name, Session: session[:], Handle: 9, Wait: true, Election: true, Value: []byte("v")}}}
}

func acquireCommand(name string, session wire.ID) *wire.Command {
	return &wire.Command{Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Name: name, Session: session[:], Limit: 3, Permits: 2, Wait: true}}}
}

func keyCommand(key string, session wire.ID) *wire.Command {
	return &wire.Command{Op: &wire.Command_Write{Write: &wire.Write{Ops: []*wire.KeyOp{
		{Kind: wire.KeyOp_ACQUIRE, Key: key, Session: session[:], Value: []byte("v")},
	}}}}
}

// endingIsInvisible fails the test if anything counts as held by the ended session.
func endingIsInvisible(t *testing.T, d *driver) {
	t.Helper()
	if s := sessionOf(d.m, endingID); s != nil {
		t.Fatalf("the ended session is shown: %+v", s)
	}
	for _, v := range allSessions(d.m) {
		if v.ID == endingID {
			t.Fatal("the ended session is listed")
		}
	}
	locks := append(allLocks(d.m, ""), Ask[[]LockView](d.m, LocksQuery{Space: wire.Space_ELECTION})...)
	if slices.ContainsFunc(locks, func(v LockView) bool { return v.Session == endingID }) {
		t.Fatal("a lock is held by the ended session")
	}
	for i := range 6 {
		name := fmt.Sprint("n", i)
		if l := leaderOf(d.m, name); l != nil && l.Session == endingID {
			t.Fatalf("election %s is led by the ended session", name)
		}
		if v := semaphoreOf(d.m, name); v != nil && slices.ContainsFunc(v.Holders, func(p PermitView) bool { return p.Session == endingID }) {
			t.Fatalf("semaphore %s is held by the ended session", name)
		}
		if e := keyOf(d.m, name); e != nil && e.Session == endingID || Ask[bool](d.m, SequencerQuery{name, 1, endingID}) {
			t.Fatalf("key %s is locked by the ended session", name)
		}
	}
	for _, e := range keysOf(d.m, "") {
		if e.Session == endingID {
			t.Fatalf("key %s is listed as locked by the ended session", e.Key)
		}
	}
	if _, refusal := d.m.live(endingID[:]); refusal.GetCode() != wire.Code_SESSION_EXPIRED {
		t.Fatal("the ended session can be used")
	}
}

// withoutIndexes prints the state without what depends on the number of entries.
func withoutIndexes(m *Machine) string {
	var w strings.Builder
	for _, v := range append(allLocks(m, ""), Ask[[]LockView](m, LocksQuery{Space: wire.Space_ELECTION})...) {
		printLock(&w, v)
	}
	for i := range 6 {
		name := fmt.Sprint("n", i)
		if v := semaphoreOf(m, name); v != nil {
			printSemaphore(&w, name, *v)
		}
		fmt.Fprintln(&w, printLeader(leaderOf(m, name)))
	}
	for _, e := range keysOf(m, "") {
		fmt.Fprintln(&w, e.Key, string(e.Value), e.Session, e.LockIndex)
	}
	for _, v := range allSessions(m) {
		fmt.Fprintln(&w, v.ID)
	}
	fmt.Fprintln(&w, m.delays.First() != nil, m.ending.Len)
	return w.String()
}

// Until its turn an ended session keeps a lock that it shares, and a name that is reserved for a set of it, from others, who are
// not told a holder.
func TestEnding_SharesAndReservationsBeforeTheirTurn(t *testing.T) {
	d := newDriverAt(t, wire.LevelSets)
	d.m.split = 2
	d.line(wire.Code_OK, "open s ttl=1h")
	d.line(wire.Code_OK, "open r ttl=1h")
	d.line(wire.Code_OK, "lock y r/1")
	for i := range 4 {
		d.line(wire.Code_QUEUED, "lock y s/%d wait", i)
	}
	d.line(wire.Code_OK, "lock z s/5 shared")
	d.line(wire.Code_QUEUED, "lockset s/6 x y wait")
	for range MaxPassed {
		fence := d.line(wire.Code_OK, "lock x r/1").Fence
		d.line(wire.Code_OK, "unlock x r/1 fence=%d", fence)
	}
	d.line(wire.Code_OK, "close s")
	for _, name := range []string{"x", "z"} {
		if r := d.line(wire.Code_LOCKED, "lock %s r/1", name); r.Holder != nil {
			t.Errorf("%s is held by %v", name, r.Holder)
		}
	}
	for d.m.ending.Len > 0 {
		d.do()
	}
	for _, name := range []string{"x", "z"} {
		d.line(wire.Code_OK, "lock %s r/1", name)
	}
}
