package machine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

func runCommand(job, key string, session wire.ID, handle uint64, attempts uint32) *wire.Command {
	return &wire.Command{Op: &wire.Command_RunJob{RunJob: &wire.RunJob{Job: job, Key: key, Session: session[:], Handle: handle, Attempts: attempts}}}
}

func everyCommand(job string, session wire.ID, handle uint64, every int64) *wire.Command {
	return &wire.Command{Op: &wire.Command_RunJob{RunJob: &wire.RunJob{Job: job, Session: session[:], Handle: handle, Every: every}}}
}

func endCommand(job, key string, session wire.ID, handle, fence uint64, result wire.RunResult, detail string) *wire.Command {
	return &wire.Command{Op: &wire.Command_EndRun{EndRun: &wire.EndRun{
		Job: job, Key: key, Session: session[:], Handle: handle, Fence: fence, Result: result, Detail: detail,
	}}}
}

// newJobDriver has two sessions; that of "t" has a lock-delay.
func newJobDriver(t *testing.T) *driver {
	d := newDriverAt(t, wire.LevelJobs)
	d.want(wire.Code_OK, d.do(openCommand(makeID("s"), MaxTTL, 0), openCommand(makeID("t"), MaxTTL, 5*second)))
	return d
}

// restart replaces the machine by one that is loaded from its disk.
func (d *driver) restart() {
	d.tb.Helper()
	m, err := Load(d.disk.pairs())
	if err != nil {
		d.tb.Fatal(err)
	}
	d.m = m
}

// wantDone wants the code JOB_DONE with the result, in the last outcome.
func (d *driver) wantDone(result wire.RunResult, outcomes []fact.Outcome) *wire.Run {
	d.tb.Helper()
	r := d.want(wire.Code_JOB_DONE, outcomes)
	if r.GetRun().GetResult() != result {
		d.tb.Fatalf("%v; want %v", r, result)
	}
	return r.GetRun()
}

// A key runs to its end once. Requests that waited for its run and later ones have the result.
func TestJob_RunsOnce(t *testing.T) {
	d := newJobDriver(t)
	s, u := makeID("s"), makeID("t")
	run := d.want(wire.Code_OK, d.do(runCommand("j", "k", s, 1, 0)))
	if run.GetRun().GetAttempt() != 1 || run.GetFence() == 0 {
		t.Error(run)
	}
	d.want(wire.Code_OK, d.do(runCommand("j", "other", u, 1, 0))) // another key
	if r := d.want(wire.Code_QUEUED, d.do(runCommand("j", "k", u, 2, 0))); r.GetRun().GetResult() != wire.RunResult_RUNNING || r.GetPosition() != 1 {
		t.Error(r)
	}
	d.restart()
	d.time += second
	outcomes := d.do(endCommand("j", "k", s, 1, run.GetFence(), wire.RunResult_DONE, ""))
	if len(outcomes) != 2 || outcomes[0].Reply.GetCode()+outcomes[1].Reply.GetCode() != wire.Code_OK+wire.Code_JOB_DONE {
		t.Errorf("%v", outcomes)
	}
	d.restart()
	if got := d.wantDone(wire.RunResult_DONE, d.do(runCommand("j", "k", u, 3, 0))); got.GetStarted() != second || got.GetFence() != run.GetFence() {
		t.Error(got)
	}
	if r := d.do(endCommand("j", "k", s, 1, run.GetFence(), wire.RunResult_DONE, "")); r[0].Reply.GetCode() != wire.Code_NOT_HELD {
		t.Error(r)
	}
}

// A run that has failed, or was lost with its session, may be repeated as often as the request allows.
func TestJob_Attempts(t *testing.T) {
	d := newJobDriver(t)
	s, u := makeID("s"), makeID("t")
	first := d.want(wire.Code_OK, d.do(runCommand("j", "k", s, 1, 2)))
	d.want(wire.Code_OK, d.do(endCommand("j", "k", s, 1, first.GetFence(), wire.RunResult_FAILED, "no disk")))
	if got := d.wantDone(wire.RunResult_FAILED, d.do(runCommand("j", "k", s, 2, 1))); got.GetDetail() != "no disk" || got.GetAttempt() != 1 {
		t.Error(got)
	}
	second := d.want(wire.Code_OK, d.do(runCommand("j", "k", u, 1, 2)))
	if second.GetFence() <= first.GetFence() || second.GetRun().GetAttempt() != 2 {
		t.Error(second)
	}
	d.want(wire.Code_QUEUED, d.do(runCommand("j", "k", s, 3, 2)))
	d.want(wire.Code_QUEUED, d.do(runCommand("j", "k", s, 4, 3)))
	d.do(closeCommand(u)) // by force: the lock-delay follows
	d.restart()
	d.wantDone(wire.RunResult_LOST, d.do(runCommand("j", "k", s, 5, 1)))
	d.time += 5e9
	outcomes := d.do(openCommand(makeID("v"), MaxTTL, 0))
	var codes []string
	for _, o := range outcomes {
		codes = append(codes, fmt.Sprint(o.Reply.GetCode(), o.Reply.GetRun().GetAttempt()))
	}
	if got := strings.Join(codes, " "); got != "JOB_DONE 2 OK 3 OK 0" {
		t.Error(got)
	}
}

// A request that was granted and is withdrawn counts as no attempt, nor does a run whose process has not begun.
func TestJob_NotStarted(t *testing.T) {
	d := newJobDriver(t)
	s := makeID("s")
	run := d.want(wire.Code_OK, d.do(runCommand("j", "k", s, 1, 1)))
	d.want(wire.Code_QUEUED, d.do(runCommand("j", "k", s, 2, 1)))
	queued := d.seq
	d.want(wire.Code_OK, d.do(endCommand("j", "k", s, 1, run.GetFence(), wire.RunResult_NOT_STARTED, "")))
	d.want(wire.Code_OK, d.do(withdrawCommand(d.inc, queued)))
	if n := len(d.m.jobs.byName); n != 0 || d.m.jobs.bytes != 0 {
		t.Errorf("%d jobs of %d bytes are retained", n, d.m.jobs.bytes)
	}
	d.restart()
	if run := d.want(wire.Code_OK, d.do(runCommand("j", "k", s, 3, 1))); run.GetRun().GetAttempt() != 1 {
		t.Error(run)
	}
}

// A job retains its largest keys; what was forgotten, and what is below it, is refused.
func TestJob_Forgets(t *testing.T) {
	d := newJobDriver(t)
	s := makeID("s")
	once := func(key string) {
		t.Helper()
		run := d.want(wire.Code_OK, d.do(runCommand("j", key, s, 1, 0)))
		d.want(wire.Code_OK, d.do(endCommand("j", key, s, 1, run.GetFence(), wire.RunResult_DONE, "")))
	}
	for i := range 2 * MaxRuns {
		once(fmt.Sprint("k-", i))
	}
	d.restart()
	for _, key := range []string{"k-0", "k-63", "k-5", "k-05", "a"} {
		d.wantDone(wire.RunResult_FORGOTTEN, d.do(runCommand("j", key, s, 1, 0)))
	}
	for _, key := range []string{"k-64", "k-127"} {
		d.wantDone(wire.RunResult_DONE, d.do(runCommand("j", key, s, 1, 0)))
	}
	once("k-128")
	d.wantDone(wire.RunResult_FORGOTTEN, d.do(runCommand("j", "k-64", s, 1, 0)))
	if got := Ask[*JobView](d.m, JobQuery{"j"}); len(got.Runs) != MaxRuns || got.Runs[0].Key != "k-128" {
		t.Errorf("%d runs: %+v", len(got.Runs), got.Runs[0])
	}
}

// While 64 keys run no other one can, and none of them is forgotten.
func TestJob_AllKeysRun(t *testing.T) {
	d := newJobDriver(t)
	s := makeID("s")
	for i := range MaxRuns {
		d.want(wire.Code_OK, d.do(runCommand("j", fmt.Sprint(i), s, 1, 0)))
	}
	d.want(wire.Code_BUSY, d.do(runCommand("j", "64", s, 1, 0)))
	d.want(wire.Code_OK, d.do(runCommand("j2", "64", s, 1, 0)))
}

// Each run is so long after the start of the one before, also when that ended early, was lost, or is taken over by an
// attached session.
func TestJob_Every(t *testing.T) {
	d := newJobDriver(t)
	s, u := makeID("s"), makeID("t")
	first := d.want(wire.Code_OK, d.do(everyCommand("j", s, 1, 10*second)))
	d.want(wire.Code_QUEUED, d.do(everyCommand("j", u, 1, 10*second)))
	d.time += 4 * second
	d.want(wire.Code_OK, d.do(endCommand("j", "", s, 1, first.GetFence(), wire.RunResult_FAILED, "x")))
	d.restart()
	d.time = 10*second - 1
	if o := d.do(openCommand(makeID("v"), MaxTTL, 0)); len(o) != 1 {
		t.Errorf("granted before the period: %v", o)
	}
	d.time++
	granted := d.do(openCommand(makeID("w"), MaxTTL, 0))
	if len(granted) != 2 || granted[0].Reply.GetCode() != wire.Code_OK || granted[0].Reply.GetRun().GetAttempt() != 2 {
		t.Fatalf("%v", granted)
	}
	if got := Ask[*JobView](d.m, JobQuery{"j"}); got.Periods != 2 || got.Running != 1 || len(got.Runs) != 2 || got.Runs[1].Detail != "x" {
		t.Errorf("%+v", got)
	}
	d.time += 8 * second
	d.do(closeCommand(u)) // by force: a lock-delay of 5 s
	d.want(wire.Code_QUEUED, d.do(everyCommand("j", s, 2, 10*second)))
	if got := Ask[*JobView](d.m, JobQuery{"j"}).Runs[0]; got.Due != 5*second {
		t.Errorf("%+v: want that the next run may start after the lock-delay, in 5 s", got)
	}
	d.time += 5*second - 1
	if o := d.do(openCommand(makeID("x"), MaxTTL, 0)); len(o) != 1 {
		t.Errorf("granted within the lock-delay: %v", o)
	}
	d.time++
	if o := d.do(openCommand(makeID("y"), MaxTTL, 0)); len(o) != 2 || o[0].Reply.GetRun().GetAttempt() != 3 {
		t.Errorf("%v", o)
	}
}

// An attached session does not go on with the run of the process before: that is lost.
func TestJob_Attached(t *testing.T) {
	for _, row := range []struct {
		attempts uint32
		want     wire.Code
	}{{0, wire.Code_OK}, {2, wire.Code_OK}, {1, wire.Code_JOB_DONE}} {
		d := newJobDriver(t)
		s := makeID("none")
		d.want(wire.Code_OK, d.do(openCommand(s, 0, 0)))
		first := d.want(wire.Code_OK, d.do(runCommand("j", "k", s, 1, 0)))
		every := d.want(wire.Code_OK, d.do(everyCommand("e", s, 1, 10*second)))
		d.inc, d.seq = wire.ID{9}, 0
		again := registerCommand(1, MaxTTL)
		token := makeID("token")
		again.GetRegister().Boot, again.GetRegister().FeatureLevel, again.GetRegister().Tokens = 3, wire.LevelJobs, [][]byte{token[:]}
		d.want(wire.Code_OK, d.do(again))
		d.want(wire.Code_OK, d.do(&wire.Command{Op: &wire.Command_AttachSession{AttachSession: &wire.AttachSession{Id: s[:]}}}))
		d.restart()
		r := d.want(row.want, d.do(runCommand("j", "k", s, 1, row.attempts)))
		if row.want == wire.Code_OK && (r.GetFence() <= first.GetFence() || r.GetRun().GetAttempt() != 2) {
			t.Error(r)
		}
		d.want(wire.Code_QUEUED, d.do(everyCommand("e", s, 1, 10*second)))
		if got := Ask[*JobView](d.m, JobQuery{"e"}); got.Runs[0].Result != wire.RunResult_LOST || got.Runs[0].Fence != every.GetFence() {
			t.Errorf("%+v", got)
		}
		d.restart()
	}
}

// An entry answers a portion of the requests that waited for a run.
func TestJob_ManyWait(t *testing.T) {
	d := newJobDriver(t)
	s := makeID("s")
	run := d.want(wire.Code_OK, d.do(runCommand("j", "k", s, 1, 0)))
	const n = 2*MaxGrants + 10
	d.many(n, func(i int) *wire.Command { return runCommand("j", "k", s, uint64(2+i), 0) })
	answered := 0
	for entries := 0; answered < n; entries++ {
		var o []fact.Outcome
		if entries == 0 {
			o = d.do(endCommand("j", "k", s, 1, run.GetFence(), wire.RunResult_DONE, ""))
		} else {
			o = d.do()
		}
		if len(o) > MaxGrants+2 || entries > 5 {
			t.Fatalf("%d outcomes in entry %d", len(o), entries)
		}
		for _, o := range o {
			if o.Reply.GetCode() == wire.Code_JOB_DONE {
				answered++
			}
		}
		d.restart()
		if _, due := d.m.NextDeadline(); !due && answered < n {
			t.Fatal("nothing is due")
		}
	}
	if len(d.m.jobs.locks.byName) != 0 {
		t.Error("the lock is left")
	}
}

// Refused requests and results change nothing.
func TestJob_Refused(t *testing.T) {
	d := newJobDriver(t)
	s := makeID("s")
	long := strings.Repeat("x", MaxName+1)
	for _, row := range []struct {
		c    *wire.Command
		want wire.Code
	}{
		{runCommand("", "k", s, 1, 0), wire.Code_INVALID}, {runCommand("j", "", s, 1, 0), wire.Code_INVALID}, {runCommand("j\x00", "k", s, 1, 0), wire.Code_INVALID},
		{runCommand("j", "k\x00", s, 1, 0), wire.Code_INVALID}, {runCommand(long, "k", s, 1, 0), wire.Code_TOO_LARGE}, {runCommand("j", long, s, 1, 0), wire.Code_TOO_LARGE},
		{everyCommand("j", s, 1, MinEvery-1), wire.Code_INVALID}, {everyCommand("j", s, 1, MaxEvery+1), wire.Code_INVALID}, {everyCommand("j", s, 1, -1), wire.Code_INVALID},
		{runCommand("j", "k", makeID("none"), 1, 0), wire.Code_SESSION_EXPIRED},
		{endCommand("j", "k", s, 1, 1, wire.RunResult_DONE, ""), wire.Code_NOT_HELD}, {endCommand("j", "k", s, 1, 1, wire.RunResult_LOST, ""), wire.Code_INVALID},
		{endCommand("j", "k", s, 1, 1, wire.RunResult_DONE, strings.Repeat("x", wire.MaxRunDetail+1)), wire.Code_TOO_LARGE},
	} {
		d.want(row.want, d.do(row.c))
	}
	if len(d.m.jobs.byName)+len(d.m.jobs.locks.byName) != 0 {
		t.Error("something is retained")
	}
}

// The order of keys: numbers by value, and leading zeros last.
func TestNaturally(t *testing.T) {
	ascending := []string{"", "0", "00", "1", "01", "9", "10", "a", "a0", "a1", "a01", "a1b", "a01c", "a2", "a10", "b", "x-9-z", "x-10-a"}
	for i, a := range ascending {
		for j, b := range ascending {
			got, want := naturally(a, b), max(-1, min(1, i-j))
			if zeros := strings.ReplaceAll(a, "0", "") == strings.ReplaceAll(b, "0", "") && a != b; !zeros && got != want || got != -naturally(b, a) {
				t.Errorf("%q, %q: %d", a, b, got)
			}
		}
	}
}

// A listing of many jobs is read in pages, each of which looks at little.
func TestJobsQuery_VisitsBounded(t *testing.T) {
	d := newJobDriver(t)
	s := makeID("s")
	name := func(i int) string { return fmt.Sprint(strings.Repeat("j", 500), i) }
	d.many(200*MaxRuns, func(i int) *wire.Command { return runCommand(name(i/MaxRuns), fmt.Sprint(i%MaxRuns), s, 1, 0) })
	d.many(2000, func(i int) *wire.Command { return everyCommand(fmt.Sprint("e", i), s, 1, second) })
	listed, after := 0, ""
	for range 100 {
		before := d.m.visits.Total()
		views := Ask[[]JobView](d.m, JobsQuery{After: after})
		if visits := d.m.visits.Total() - before; visits > MaxVisits {
			t.Fatalf("%d visits", visits)
		}
		if len(views) == 0 {
			break
		}
		listed, after = listed+len(views), views[len(views)-1].Name
	}
	if listed != 2200 {
		t.Errorf("%d jobs are listed", listed)
	}
}

// A process that missed why its request was dismissed finds out by its ticket.
func TestJob_Recheck(t *testing.T) {
	d := newJobDriver(t)
	s := makeID("s")
	run := d.want(wire.Code_OK, d.do(runCommand("j", "k", s, 1, 0)))
	d.want(wire.Code_QUEUED, d.do(runCommand("j", "k", s, 2, 0)))
	queued := wire.Ticket{Incarnation: d.inc, Seq: d.seq}
	recheck := func() *wire.Reply { return d.m.Recheck(queued, s, "", "j\x00k") }
	if r := recheck(); r != nil {
		t.Error(r)
	}
	d.do(endCommand("j", "k", s, 1, run.GetFence(), wire.RunResult_DONE, ""))
	d.restart()
	if r := recheck(); r.GetCode() != wire.Code_JOB_DONE || r.GetRun().GetResult() != wire.RunResult_DONE {
		t.Error(r)
	}
	d.do(closeCommand(s))
	if r := recheck(); r.GetCode() != wire.Code_SESSION_EXPIRED {
		t.Error(r)
	}
}

// What jobs retain is bounded for all, and members have a part beyond what clients can use.
func TestJob_BytesBounded(t *testing.T) {
	d := newJobDriver(t)
	d.registerClients(1, 2, MaxClientTTL, second)
	d.submit(ofClient(1, 2, openCommand(wire.ID{77}, 0, 0)))
	d.m.jobs.bytes += MaxJobBytes - 2000 // as if others had that much
	if r := d.submit(ofClient(1, 3, everyCommand("j", wire.ID{77}, 1, second))); r.Outcomes[0].Reply.GetCode() != wire.Code_BUSY {
		t.Errorf("%v", r.Outcomes)
	}
	if r := d.submit(ofClient(1, 4, runCommand("j", "k", wire.ID{77}, 1, 0))); r.Outcomes[0].Reply.GetCode() != wire.Code_OK {
		t.Errorf("%v", r.Outcomes)
	}
	d.want(wire.Code_OK, d.do(everyCommand("j", makeID("s"), 1, second)))
	d.m.jobs.bytes += ReservedJobBytes
	d.want(wire.Code_BUSY, d.do(runCommand("j", "l", makeID("s"), 1, 0)))
	d.want(wire.Code_QUEUED, d.do(runCommand("j", "k", makeID("s"), 1, 0)))
}

// A key that may run again is forgotten once its time has passed, and then it may not.
func TestJob_Keep(t *testing.T) {
	d := newJobDriver(t)
	s := makeID("s")
	keep := func(key string) *wire.Command {
		c := runCommand("j", key, s, 1, 0)
		c.GetRunJob().Keep = 10 * second
		return c
	}
	for range 2 {
		run := d.want(wire.Code_OK, d.do(keep("5")))
		d.want(wire.Code_OK, d.do(endCommand("j", "5", s, 1, run.GetFence(), wire.RunResult_FAILED, "")))
		d.time += 10*second - 1
	}
	d.time++
	for range 2 {
		d.wantDone(wire.RunResult_FORGOTTEN, d.do(keep("5")))
		d.restart()
	}
	d.wantDone(wire.RunResult_FORGOTTEN, d.do(keep("4")))
	d.want(wire.Code_OK, d.do(keep("6")))
}
