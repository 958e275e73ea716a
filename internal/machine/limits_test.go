package machine

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// After a burst over many names nothing is left of them, in memory or on disk.
func TestIdle_NothingKept(t *testing.T) {
	d := newDriver(t)
	s, other := wire.ID{1}, wire.ID{2}
	d.do(openCommand(s, MaxTTL, 0), openCommand(other, MaxTTL, 0))
	for i := range uint64(2_000) {
		name := fmt.Sprint("name ", i)
		fence := d.want(wire.Code_OK, d.do(lockCommand(name, s, 1))).Fence
		d.want(wire.Code_QUEUED, d.do(lockCommand(name, other, 2)))
		d.want(wire.Code_QUEUED, d.do(lockCommand(name, other, 3)))
		queued := d.seq
		d.want(wire.Code_OK, d.do(withdrawCommand(d.inc, queued)))
		d.want(wire.Code_OK, d.do(unlockCommand(name, s, 1, fence)))
		d.want(wire.Code_OK, d.do(unlockCommand(name, other, 2, fence+1)))
	}
	d.do(closeCommand(s), closeCommand(other))
	d.do() // the floor passes
	if len(d.m.locks.byName)+len(d.m.sessions)+d.m.delays.Len() > 0 {
		t.Errorf("in memory: %d locks, %d sessions, %d delays", len(d.m.locks.byName), len(d.m.sessions), d.m.delays.Len())
	}
	if len(d.disk) != 3 { // m, M and i
		t.Errorf("on disk: %d keys", len(d.disk))
	}
}

// A queue is limited, places that become free can be taken again, and a withdrawal
// from the middle keeps the order of the others.
func TestLimit_Waiters(t *testing.T) {
	d := newDriver(t)
	s := wire.ID{1}
	d.do(openCommand(s, MaxTTL, 0), lockCommand("x", s, 0))
	commands := make([]*wire.Command, MaxWaiters)
	for i := range commands {
		commands[i] = lockCommand("x", s, uint64(i+1))
	}
	first := d.seq
	d.want(wire.Code_QUEUED, d.do(commands...))
	d.want(wire.Code_BUSY, d.do(lockCommand("x", s, math.MaxUint64)))
	for i := range commands {
		if i%2 == 0 { // handle i+1
			d.want(wire.Code_OK, d.do(withdrawCommand(d.inc, first+uint64(i+1))))
		}
	}
	d.want(wire.Code_QUEUED, d.do(lockCommand("x", s, math.MaxUint64)))
	for handle, fence := uint64(0), uint64(1); handle < MaxWaiters; handle, fence = handle+2, fence+1 {
		granted := d.do(unlockCommand("x", s, handle, fence))[0]
		if granted.Ticket.Seq != first+handle+2 && handle+2 <= MaxWaiters {
			t.Fatalf("handle %d: the next was the call %d", handle, granted.Ticket.Seq)
		}
	}
}

// All sessions of an incarnation at once, renewed by one write, ended by one
// entry.
func TestLimit_MemberSessions(t *testing.T) {
	d := newDriver(t)
	id := func(i int) (id wire.ID) {
		binary.BigEndian.PutUint64(id[8:], uint64(i+1))
		return id
	}
	var commands []*wire.Command
	for i := range MaxSessions {
		commands = append(commands, openCommand(id(i), second*int64(1+i%3), 0))
		if len(commands) == 1000 {
			d.want(wire.Code_OK, d.do(commands...))
			commands = commands[:0]
		}
	}
	d.want(wire.Code_BUSY, d.do(openCommand(id(MaxSessions), second, 0)))
	d.do()
	d.time = second / 2
	d.want(wire.Code_OK, d.do(&wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}}))
	if r := d.submit(); len(r.Changes) > 3 {
		t.Errorf("a renewal left %d changes", len(r.Changes))
	}
	if at, ok := d.m.NextDeadline(); !ok || at != second*3/2 {
		t.Errorf("next deadline %d", at)
	}
	d.time = 2 * second
	ended := 0
	for due, _ := d.m.NextDeadline(); due <= d.m.Now() || ended == 0; due, _ = d.m.NextDeadline() {
		n := len(d.submit().Ended)
		if ended += n; n > MaxReleased {
			t.Errorf("%d sessions ended in one entry", n)
		}
	}
	if ended != (MaxSessions+2)/3 {
		t.Errorf("%d sessions ended", ended)
	}
	d.want(wire.Code_OK, d.do(openCommand(id(MaxSessions), second, 0)))
}

func TestLimit_Incarnations(t *testing.T) {
	d := newDriver(t)
	register := func(i int) fact.Outcome {
		id := wire.ID{0xff, byte(i >> 8), byte(i)}
		c := registerCommand(uint64(i), MinTTL)
		return d.submit(&wire.Submission{Member: uint64(i), Incarnation: id[:], Calls: []*wire.Call{{Seq: 1, Command: must(proto.Marshal(c))}}}).Outcomes[0]
	}
	for i := 2; i <= MaxIncarnations; i++ {
		if code := register(i).Reply.Code; code != wire.Code_OK {
			t.Fatalf("registration %d: %v", i, code)
		}
	}
	if code := register(MaxIncarnations + 1).Reply.Code; code != wire.Code_BUSY {
		t.Fatalf("registration beyond the limit: %v", code)
	}
	d.time = MinTTL
	if code := register(MaxIncarnations + 1).Reply.Code; code != wire.Code_OK {
		t.Fatalf("registration after the silent ones were forgotten: %v", code)
	}
}

// With the last fence of an epoch given out, the lock is refused, and those who
// wait are refused rather than left waiting.
func TestFence_Exhausted(t *testing.T) {
	d := newDriver(t)
	s := wire.ID{1}
	d.do(openCommand(s, MaxTTL, 0))
	state := d.m.state().(*wire.MachineState)
	state.Epoch, state.Fences = maxEpoch, maxFences-1
	d.disk[machineKey] = must(proto.Marshal(state))
	d.m = must(Load(d.disk.pairs()))

	last := d.want(wire.Code_OK, d.do(lockCommand("x", s, 1))).Fence
	if last != math.MaxUint64 {
		t.Errorf("the last fence is %x", last)
	}
	d.want(wire.Code_QUEUED, d.do(lockCommand("x", s, 2)))
	d.want(wire.Code_QUEUED, d.do(lockCommand("x", s, 3)))
	d.want(wire.Code_TOO_LARGE, d.do(lockCommand("y", s, 1)))
	for _, o := range d.do(unlockCommand("x", s, 1, last))[:2] {
		d.want(wire.Code_TOO_LARGE, []fact.Outcome{o})
	}
	if lockOf(d.m, "x") != nil {
		t.Error("the lock is still there")
	}
}

// A window takes any order and any jump of the floor, up to the last number.
func TestWindow(t *testing.T) {
	const last = uint64(math.MaxUint64)
	w := window{floor: last - 40}
	for _, seq := range []uint64{last, last - 39, last - 7, last - 20} {
		r := &wire.Reply{Index: seq}
		w.put(seq, r, must(proto.Marshal(r)))
	}
	for seq := last - 39; seq != 0; seq++ {
		want := seq == last || seq == last-39 || seq == last-7 || seq == last-20
		if a := w.at(seq); (a != nil) != want || a != nil && a.reply().Index != seq {
			t.Errorf("%d: %v", last-seq, a)
		}
	}
	var dropped []uint64
	for _, floor := range []uint64{last - 39, last - 20, last} {
		w.raise(floor, func(seq uint64, _ int32) { dropped = append(dropped, last-seq) })
		dropped = append(dropped, 1000)
	}
	if got := fmt.Sprint(dropped); got != "[39 1000 20 1000 7 0 1000]" {
		t.Error(got)
	}
}
