package machine

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// The last fence of an epoch is given out as any other, in each of the ways in
// which one is given out.
func TestFence_LastOfEpoch(t *testing.T) {
	for _, way := range []struct {
		name   string
		before []string // after what is left behind below, as fences 1 to 3
		grant  string
	}{
		{"a free lock", nil, "lock free s/1"},
		{"a free election", nil, "lock free s/1 election"},
		{"a lock granted to the next waiter", []string{"lock x s/1", "lock x s/2 wait"}, "unlock x s/1 fence=4"},
		{"a lock that was left", nil, "lock left n/1"},
		{"an election that was left", nil, "lock left n/1 election value=v"},
		{"free permits", nil, "acquire free s limit=1 permits=1"},
		{"permits granted to the next waiter", []string{"acquire p s limit=1 permits=1", "acquire p s limit=1 permits=1 wait"}, "release p s fence=4"},
		{"permits that were left", nil, "acquire left n limit=1 permits=1"},
	} {
		t.Run(way.name, func(t *testing.T) {
			d := newDriver(t)
			d.line(wire.Code_OK, "open n ttl=none")
			d.line(wire.Code_OK, "lock left n/1")
			d.line(wire.Code_OK, "lock left n/1 election")
			d.line(wire.Code_OK, "acquire left n limit=1 permits=1")
			d.inc, d.seq = wire.ID{2}, 0
			d.line(wire.Code_OK, "register member=1 boot=2 ttl=1h")
			d.line(wire.Code_OK, "attach n")
			d.line(wire.Code_OK, "open s ttl=1h")
			for _, line := range way.before {
				d.do(read(t, "%s", line))
			}
			d.m.fences = maxFences - 1
			outcomes := d.do(read(t, "%s", way.grant))
			for _, o := range outcomes {
				d.want(wire.Code_OK, []fact.Outcome{o})
			}
			// A release is answered with the releaser's fence, after the others.
			if last := outcomes[0].Reply.Fence; last != maxFences || d.m.fences != maxFences {
				t.Errorf("the fence %x was given out, and %x are counted", last, d.m.fences)
			}
			if err := audit(d.m); err != nil {
				t.Error(err)
			}
		})
	}
}

// The epoch is in each fence, and stays there when the machine is loaded from
// what it has written since.
func TestFence_EpochSurvivesLoad(t *testing.T) {
	d := newDriver(t)
	state := d.m.state().(*wire.MachineState)
	state.Epoch = 3
	d.disk[machineKey] = must(proto.Marshal(state))
	for n := range uint64(3) {
		m, err := Load(d.disk.pairs())
		if err != nil {
			t.Fatalf("loaded %d times: %v", n, err)
		}
		d.m = m
		d.line(wire.Code_OK, "open s%d ttl=1h", n)
		if r := d.line(wire.Code_OK, "lock x%d s%d/1", n, n); r.Fence != 3<<48|(n+1) {
			t.Errorf("loaded %d times: fence %x", n+1, r.Fence)
		}
	}
}

// A lock is held no more often than can be counted, whatever limit comes with
// the call.
func TestLimit_Holds(t *testing.T) {
	d := newDriver(t)
	d.line(wire.Code_OK, "open s ttl=1h")
	d.line(wire.Code_OK, "lock x s/1 reentrant")
	d.m.locks.byName["x"].holds = MaxHolds - 1
	if r := d.line(wire.Code_OK, "lock x s/1 reentrant"); r.Holds != MaxHolds {
		t.Errorf("%d holds", r.Holds)
	}
	d.line(wire.Code_LIMIT_REACHED, "lock x s/1 reentrant")
	d.line(wire.Code_LIMIT_REACHED, "lock x s/1 reentrant limit=%d", uint32(1<<32-1))
	if v := lockOf(d.m, "x"); v.Holds != MaxHolds {
		t.Errorf("%d holds", v.Holds)
	}
}

// A candidate's value may be as long as the limit, and its leader's next too.
func TestLimit_CandidateValue(t *testing.T) {
	d := newDriver(t)
	d.line(wire.Code_OK, "open s ttl=1h")
	d.line(wire.Code_TOO_LARGE, "lock e s/1 election value=long:%d", MaxCandidate+1)
	d.line(wire.Code_OK, "lock e s/1 election value=long:%d", MaxCandidate)
	d.line(wire.Code_QUEUED, "lock e s/2 election wait value=long:%d", MaxCandidate)
	d.line(wire.Code_OK, "proclaim e s/1 fence=1 value=long:%d", MaxCandidate-1)
	d.line(wire.Code_OK, "proclaim e s/1 fence=1 value=long:%d", MaxCandidate)
	d.line(wire.Code_TOO_LARGE, "proclaim e s/1 fence=1 value=long:%d", MaxCandidate+1)
	if v := leaderOf(d.m, "e"); len(v.Value) != MaxCandidate {
		t.Errorf("the leader's value has %d bytes", len(v.Value))
	}
}

// A NUL byte separates a name from what follows it on disk, so no name has one,
// wherever in it.
func TestName_NULRefused(t *testing.T) {
	d := newDriver(t)
	s := makeID("s")
	d.do(openCommand(s, MaxTTL, 0))
	for _, name := range []string{"\x00", "\x00a", "a\x00", "a\x00b"} {
		d.want(wire.Code_INVALID, d.do(lockCommand(name, s, 1)))
		d.want(wire.Code_INVALID, d.do(&wire.Command{Op: &wire.Command_Write{Write: &wire.Write{
			Ops: []*wire.KeyOp{{Kind: wire.KeyOp_DELETE_PREFIX, Key: name}},
		}}}))
	}
}

// A submission without a valid incarnation has no ticket to answer and changes
// nothing.
func TestSubmission_MalformedIncarnation(t *testing.T) {
	d := newDriver(t)
	before := views(d.m)
	for _, id := range [][]byte{nil, d.inc[:15], append(d.inc[:16:16], 0)} {
		s := &wire.Submission{Incarnation: id, Floor: 7}
		for i, line := range []string{"renew", "register member=2 boot=1", "open s", "remove-member voters=1,2"} {
			s.Calls = append(s.Calls, &wire.Call{Seq: uint64(8 + i), Command: must(proto.Marshal(read(t, "%s", line)))})
		}
		if r := d.submit(s); len(r.Outcomes)+len(r.Ended) > 0 || len(r.Changes) != 1 {
			t.Errorf("an incarnation of %d bytes: %v", len(id), r)
		}
	}
	if after := views(d.m); after != before {
		t.Errorf("%s\nbecame\n%s", before, after)
	}
}

// The keys that a query began with do not change while the machine goes on.
func TestViews_Immutable(t *testing.T) {
	d := newDriver(t)
	d.line(wire.Code_OK, "write put a 1 ; put b 1")
	finish := KeysQuery{}.Begin(d.m)
	d.line(wire.Code_OK, "write put a 2 ; delete b ; put c 2")
	var read string
	for _, e := range finish().([]*fact.Entry) {
		read += e.Key + string(e.Value)
	}
	if read != "a1b1" {
		t.Errorf("read %q after a write", read)
	}

	var was [][]uint64
	for member := uint64(9); member > 1; member-- { // each goes to the front
		d.inc, d.seq = wire.ID{byte(member)}, 0
		d.line(wire.Code_OK, "register member=%d boot=1", member)
		d.line(wire.Code_OK, "remove-member voters=1,2,3,4,5,6,7,8,9")
		was = append(was, d.m.Removed())
	}
	for i, left := range was {
		if want := []uint64{2, 3, 4, 5, 6, 7, 8, 9}[7-i:]; !slices.Equal(left, want) {
			t.Errorf("after %d had left: %v", i+1, left)
		}
	}
}

// A session that has ended is not visible.
func TestSession_EndedNotVisible(t *testing.T) {
	d := newDriver(t)
	d.line(wire.Code_OK, "open s ttl=1h")
	if sessionOf(d.m, makeID("s")) == nil {
		t.Error("a live session is not shown")
	}
	d.line(wire.Code_OK, "close s")
	for _, id := range []wire.ID{makeID("s"), makeID("never"), {}} {
		if v := sessionOf(d.m, id); v != nil {
			t.Errorf("%s is shown: %v", id, v)
		}
	}
}

// A member with as many sessions as there may be opens and takes no other, and
// still attaches its own: it has no more of them by that.
func TestLimit_SessionsAttach(t *testing.T) {
	d := newDriver(t)
	d.line(wire.Code_OK, "open own ttl=none")
	d.inc, d.seq = wire.ID{2}, 0
	d.line(wire.Code_OK, "register member=2 boot=1 ttl=1h")
	d.line(wire.Code_OK, "open other ttl=none")
	d.line(wire.Code_OK, "deregister")
	d.inc, d.seq = wire.ID{3}, 0
	d.line(wire.Code_OK, "register member=1 boot=2 ttl=1h")

	sessions := &d.m.members[1].sessions.Len
	*sessions += MaxSessions - 1 // as if it had so many more
	d.line(wire.Code_BUSY, "open new ttl=none")
	d.line(wire.Code_BUSY, "attach other")
	d.line(wire.Code_OK, "attach own")
	*sessions--
	d.line(wire.Code_OK, "attach other")
	d.line(wire.Code_BUSY, "open new ttl=none")
	*sessions -= MaxSessions - 2
	if err := audit(d.m); err != nil {
		t.Error(err)
	}
}

// The ID of an incarnation that has ended may be used by another member at once, with
// tickets of the same numbers. Each durable key is written once in an entry.
func TestTickets_IDUsedAgain(t *testing.T) {
	d := newDriver(t)
	s := wire.ID{9}
	d.do(openCommand(s, MaxTTL, 0))
	d.do(lockCommand("x", s, 1)) // its outcome is stored
	stored := d.seq
	call := func(seq uint64, c *wire.Command) []*wire.Call {
		return []*wire.Call{{Seq: seq, Command: must(proto.Marshal(c))}}
	}
	r := d.submit(
		&wire.Submission{Incarnation: d.inc[:], Member: 1, Floor: stored - 1, Calls: call(stored+1, &wire.Command{Op: &wire.Command_Deregister{Deregister: &wire.Deregister{}}})},
		&wire.Submission{Incarnation: d.inc[:], Member: 2, Floor: stored - 1, Calls: call(stored, registerCommand(2, MaxTTL))},
		&wire.Submission{Incarnation: d.inc[:], Member: 2, Floor: stored - 1, Calls: call(stored+1, openCommand(wire.ID{8}, MaxTTL, 0))},
	)
	for i, o := range r.Outcomes {
		if o.Reply.Code != wire.Code_OK {
			t.Errorf("outcome %d: %v", i, o.Reply)
		}
	}
	if !d.disk.equal(dump(d.m)) {
		t.Error("the changes do not add up to the state")
	}
}
