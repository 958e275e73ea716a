package machine

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// What a reply says of a run remains when the next run of the key begins, also in the outcome that is kept for retries.
func TestJob_OutcomeKeepsItsRun(t *testing.T) {
	d := newJobDriver(t)
	s, u := makeID("s"), makeID("t")
	call := func(seq uint64, c *wire.Command) *wire.Reply { // acknowledges nothing
		t.Helper()
		one := []*wire.Call{{Seq: d.seq + seq, Command: must(proto.Marshal(c))}}
		outcomes := d.submit(&wire.Submission{Incarnation: d.inc[:], Floor: d.seq, Member: 1, Calls: one}).Outcomes
		return outcomes[len(outcomes)-1].Reply
	}
	first := runCommand("j", "k", s, 1, 0)
	reply := call(1, first)
	was := proto.CloneOf(reply)
	call(2, runCommand("j", "k", u, 1, 0))
	call(3, endCommand("j", "k", s, 1, was.GetFence(), wire.RunResult_FAILED, ""))
	if got := call(1, first); !proto.Equal(got, was) || !proto.Equal(reply, was) || wire.ID(was.GetRun().GetSession()) != s {
		t.Errorf("the first run's outcome is %v now, kept as %v; want %v", reply, got, was)
	}
	d.restart()
	if got := call(1, first); !proto.Equal(got, was) {
		t.Errorf("the loaded machine has %v, want %v", got, was)
	}
}

// A request by an attached session that ends the former run, and has no attempts left, is refused with that run, not with
// the one of the next waiter, which begins in the same entry.
func TestJob_AttachedRefusedWithTheLostRun(t *testing.T) {
	d := newJobDriver(t)
	n, u := makeID("n"), makeID("t")
	d.want(wire.Code_OK, d.do(openCommand(n, 0, 0)))
	first := d.want(wire.Code_OK, d.do(runCommand("j", "k", n, 1, 1)))
	register := registerCommand(2, MaxTTL)
	register.GetRegister().FeatureLevel = wire.LevelJobs
	old := d.inc
	d.inc, d.seq = wire.ID{9}, 0
	d.want(wire.Code_OK, d.do(register))
	d.want(wire.Code_OK, d.do(openCommand(makeID("v"), MaxTTL, 0)))
	d.want(wire.Code_QUEUED, d.do(runCommand("j", "k", makeID("v"), 1, 0)))
	last := d.seq
	d.inc, d.seq = old, 100
	d.do(&wire.Command{Op: &wire.Command_Deregister{Deregister: &wire.Deregister{}}})
	d.inc, d.seq = wire.ID{9}, last
	d.want(wire.Code_OK, d.do(&wire.Command{Op: &wire.Command_AttachSession{AttachSession: &wire.AttachSession{Id: n[:]}}}))
	run := d.wantDone(wire.RunResult_LOST, d.do(runCommand("j", "k", n, 2, 1)))
	if run.GetFence() != first.GetFence() || wire.ID(run.GetSession()) != n {
		t.Error(run)
	}
	if v := Ask[*JobView](d.m, JobQuery{"j"}); v.Runs[0].Session != makeID("v") || v.Runs[0].Result != wire.RunResult_RUNNING {
		t.Errorf("%+v, not of %v", v, u)
	}
}

// A run ends with its session, however much later the entries come that release what the session had.
func TestJob_LostWithItsSession(t *testing.T) {
	d := newJobDriver(t)
	s := makeID("s")
	d.m.split = 1
	d.want(wire.Code_OK, d.do(lockCommand("x", s, 1)))
	d.want(wire.Code_OK, d.do(runCommand("j", "k", s, 1, 1)))
	d.time = 3 * second
	d.do(closeCommand(s))
	ended := func(after int64) {
		t.Helper()
		d.time = 3*second + after
		d.submit()
		if v := Ask[*JobView](d.m, JobQuery{"j"}); v.Runs[0].Result != wire.RunResult_LOST || v.Runs[0].Ended != after {
			t.Errorf("%v after the end: %+v", after, v.Runs[0])
		}
	}
	if v := Ask[*JobView](d.m, JobQuery{"j"}); v.Running != 0 || v.Runs[0].Result != wire.RunResult_LOST {
		t.Errorf("not released yet: %+v", v)
	}
	ended(second)
	ended(2 * second)
	ended(3 * second)
}
