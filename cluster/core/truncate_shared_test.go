package core

import (
	"fmt"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// The bounds of these tests.
const (
	testLogs  = 1 << 20
	testLeast = 16 << 10
	testEntry = 2 << 10
)

func testBudget() *Logs {
	return NewLogs(testLogs, 4*testLogs, testLeast)
}

// sharing has a log that keeps 1 MiB by itself share others' budget.
func sharing(logs *Logs) func(*Config) {
	return func(c *Config) { c.Keep, c.KeepBytes, c.Budgets.Logs = 10_000, testLogs/2, logs }
}

// age passes so much time that what is applied has been for an election timeout.
func (r *rig) age() { r.pass(2 * electionTicks) }

// However many groups write, what their logs keep is bounded for all of them. One that writes when others have filled that gets its
// part, for which those that have the most are truncated although nothing is written to them any more. A group that has ended takes no part.
func TestTruncate_SharedBudget(t *testing.T) {
	const groups = 20
	logs := testBudget()
	all := make([]*rig, groups)
	sum := func() (bytes int) {
		for _, r := range all {
			if r != nil {
				bytes += int(r.log.Bytes())
			}
		}
		return bytes
	}
	for i := range all {
		all[i] = newRig(t, sharing(logs)).follow()
		for range 20 {
			all[i].grow(testLogs/testEntry/10, testEntry)
			all[i].age()
		}
	}
	for range 3 {
		for _, r := range all {
			r.age()
		}
	}
	if n := sum(); n != logs.Bytes() || n > testLogs+groups*(testLeast+testEntry) {
		t.Errorf("the logs have %d bytes, and %d are counted", n, logs.Bytes())
	}
	last := all[groups-1]
	for range 20 {
		for _, r := range all[:groups-1] {
			r.age()
		}
		last.grow(20, testEntry)
		last.age()
	}
	const part = testLogs / (groups + 1)
	if n := last.log.Bytes(); n < part/3 || n > 3*part {
		t.Errorf("the log that is written to has %d bytes, and a part is %d", n, part)
	}
	if n := all[0].log.Bytes(); n > 3*part {
		t.Errorf("the first log has %d bytes, and a part is %d", n, part)
	}
	for i, r := range all {
		if all[i] = nil; i < groups-1 {
			r.Abandon(errUnanswered)
		}
	}
	if n := int(last.log.Bytes()); n != logs.Bytes() {
		t.Errorf("%d bytes are counted of one log with %d", logs.Bytes(), n)
	}
	for range 20 {
		last.grow(testLogs/testEntry/20, testEntry)
		last.age()
	}
	if n := last.log.Bytes(); n < testLogs/4 || n > testLogs/2+testEntry {
		t.Errorf("a log alone has %d bytes", n)
	}
}

// A log counts from the start of its group, and one that shares nothing has its own bound.
func TestTruncate_BudgetFromStart(t *testing.T) {
	logs := testBudget()
	r := newRig(t, func(c *Config) { c.KeepBytes = testLogs / 2 }).follow()
	r.grow(testLogs/testEntry*9/10, testEntry)
	if n := r.log.Bytes(); n < testLogs*8/10 || logs.Bytes() != 0 {
		t.Fatalf("the log has %d bytes, and %d are counted", n, logs.Bytes())
	}
	r.start(sharing(logs))
	if n := int(r.log.Bytes()); n != logs.Bytes() {
		t.Errorf("%d bytes are counted of %d", logs.Bytes(), n)
	}
	if r.age(); r.log.Bytes() > testLogs/2 {
		t.Errorf("the log has %d bytes after two election timeouts", r.log.Bytes())
	}
}

// A quiet member wakes for its log, and only then.
func TestTruncate_QuietLogSharesBudget(t *testing.T) {
	logs := testBudget()
	r := newRigIn(t, &raftpb.ConfState{Voters: []uint64{1}}, sharing(logs), func(c *Config) { c.Quiet = true })
	r.CampaignFirst(true)
	r.pass(5)
	for seq := range uint64(testLogs / 4 / testEntry) {
		s := command(seq + 1)
		s.Member, s.Calls[0].Command = 1, make([]byte, testEntry)
		r.mustSubmit(s)
		r.effects()
	}
	rest := func() {
		t.Helper()
		for range 20 * electionTicks {
			if r.Quiet() {
				return
			}
			r.pass(1)
		}
		t.Fatal("the member is not quiet")
	}
	rest()
	bytes := r.log.Bytes()
	if r.pass(1); !r.Quiet() || bytes < testLogs/5 || r.log.Bytes() != bytes {
		t.Fatalf("the log has %d bytes, and had %d; quiet %t", r.log.Bytes(), bytes, r.Quiet())
	}
	logs.kept.Take(testLogs)
	r.pass(10)
	rest()
	if n := r.log.Bytes(); n > testLeast {
		t.Errorf("the log has %d bytes beside others that have all", n)
	}
}

// What a member that is up has not acknowledged is kept for it, within the larger budget, and not for one that is down.
func TestTruncate_SharedBudgetKeepsUnacknowledged(t *testing.T) {
	for _, test := range []struct {
		name    string
		up      bool
		awaited int // by other groups
		kept    bool
	}{
		{"up", true, 0, true},
		{"down", false, 0, false},
		{"up, beside others", true, 4 * testLogs, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			logs := testBudget()
			r := newRig(t, sharing(logs)).follow()
			r.lead()
			r.mustReceive(message(raftpb.MsgAppResp, 3, r.term, following(r.last, 0)))
			r.effects()
			r.pass(2*electionTicks, 2) // 3 has not been active in the last election timeout
			acknowledged := r.last
			logs.kept.Take(testLogs)
			logs.awaited.Take(test.awaited)
			for seq := range uint64(testLogs / 4 / testEntry) {
				r.write(seq+1, testEntry)
			}
			heard := []uint64{2}
			if test.up {
				heard = append(heard, 3)
			}
			r.pass(3*electionTicks, heard...) // raft forgets who is active in each (MsgCheckQuorum)
			if first, _ := r.log.FirstIndex(); (first <= acknowledged+1) != test.kept {
				t.Errorf("the log begins at %d, and the member has acknowledged %d", first, acknowledged)
			}
			if n := r.log.Bytes(); !test.kept && n > testLeast+2*testEntry {
				t.Errorf("the log has %d bytes", n)
			}
			if !test.kept {
				return
			}
			r.mustReceive(message(raftpb.MsgAppResp, 3, r.term, following(r.last, 0)))
			r.pass(10, 2, 3)
			if n := r.log.Bytes(); n > testLeast+testEntry {
				t.Errorf("the log has %d bytes after the member has acknowledged all", n)
			}
		})
	}
}

// wantEntriesAfter has member 3 answer that its log ends at has, which needs entries and no snapshot.
func (r *rig) wantEntriesAfter(has uint64, when string) {
	r.t.Helper()
	m := message(raftpb.MsgAppResp, 3, r.term, following(r.last-1, 0))
	m.Reject, m.RejectHint, m.LogTerm = new(true), new(has), new(uint64(5))
	r.mustReceive(m)
	if out := r.effects(); len(out.Snapshots) > 0 {
		first, _ := r.log.FirstIndex()
		r.t.Errorf("%s: a snapshot is sent to a member that has the log up to %d: the log begins at %d of %d", when, has, first, r.last)
	}
}

// A new leader does not know what the others have. Beside groups that have all, no log is truncated so far that a member that was connected all the
// time needs a snapshot: neither the new leader's, nor before its election.
func TestTruncate_SharedBudgetOfNewLeader(t *testing.T) {
	for _, elapsed := range []int{1, electionTicks / 2, electionTicks, 3 * electionTicks} {
		logs := testBudget()
		r := newRig(t, sharing(logs)).follow()
		logs.kept.Take(testLogs)
		for range 20 {
			r.grow(2, testLeast*3/4)
			r.pass(electionTicks / 5)
		}
		r.grow(3, testLeast*3/4)
		has := r.last - 3
		r.lead()
		r.pass(elapsed, 2, 3) // 3 answers heartbeats; its answer to the first append waits for its disk
		r.wantEntriesAfter(has, fmt.Sprintf("after %d ticks", elapsed))
	}
}

// While members differ about the state, no snapshot is sent, and a voter that returns decides by its log: others take nothing of it.
func TestTruncate_DisputedBesideOthers(t *testing.T) {
	logs := testBudget()
	r := newRig(t, sharing(logs)).follow()
	r.claim(r.applied, 7, 3)
	logs.kept.Take(8 * testLogs)
	logs.awaited.Take(8 * testLogs)
	truncated := r.grow(20, testEntry)
	r.age()
	if first, _ := r.log.FirstIndex(); len(truncated) > 0 || first > 2 {
		t.Errorf("the log begins at %d while voters differ", first)
	}
}

// A log has a bound of its own in entries as well: twice Keep. One that has more than its part of the budget must not have more than one alone.
func TestTruncate_SharedBudgetKeepsBoundOfEntries(t *testing.T) {
	const keep = 50
	for _, test := range []struct {
		name string
		logs *Logs
		has  int // by others
	}{
		{"no budget", nil, 0},
		{"a budget that others do not use", testBudget(), 0},
		{"a budget that others have", testBudget(), testLogs},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, sharing(test.logs), func(c *Config) { c.Keep = keep }).follow()
			r.lead()
			r.mustReceive(message(raftpb.MsgAppResp, 3, r.term, following(r.last, 0)))
			r.effects()
			if test.logs != nil {
				test.logs.kept.Take(test.has)
			}
			for seq := range uint64(250) { // fewer than are sent ahead. 3 answers heartbeats, and has acknowledged nothing of this
				if seq%20 == 0 {
					r.pass(1, 2, 3)
				}
				r.write(seq+1, 100)
			}
			r.pass(3*electionTicks, 2, 3)
			first, _ := r.log.FirstIndex()
			if n := r.last - first + 1; n > 2*keep+5 {
				t.Errorf("the log has %d entries in %d bytes; its own bound is %d entries", n, r.log.Bytes(), 2*keep)
			}
		})
	}
}

// A member that has just started does not know what was applied in the last election timeout: its checkpoint may be of its last moment.
func TestTruncate_SharedBudgetOfRestartedMember(t *testing.T) {
	for _, others := range []int{0, testLogs} {
		logs := testBudget()
		r := newRig(t, sharing(nil)).follow()
		r.grow(20, testLeast*3/4)
		r.pass(3 * electionTicks)
		r.grow(3, testLeast*3/4) // in the last moment
		has := r.last - 3
		r.Checkpoint()
		r.effects()
		r.open()
		logs.kept.Take(others)
		r.start(sharing(logs))
		r.pass(5) // no member is heard of
		r.lead()
		r.pass(1, 2, 3)
		r.wantEntriesAfter(has, fmt.Sprintf("others have %d", others))
	}
}

// A connection that is replaced at once: the member is up, and lags by more than an election timeout.
func TestTruncate_SharedBudgetWithReplacedConnection(t *testing.T) {
	logs := testBudget()
	r := newRig(t, sharing(logs)).follow()
	r.lead()
	r.mustReceive(message(raftpb.MsgAppResp, 3, r.term, following(r.last, 0)))
	r.effects()
	acknowledged := r.last
	logs.kept.Take(testLogs)
	for seq := range uint64(testLogs / 4 / testEntry) {
		r.write(seq+1, testEntry)
	}
	r.pass(3*electionTicks, 2, 3)
	if first, _ := r.log.FirstIndex(); first > acknowledged+1 {
		t.Fatal("truncated before")
	}
	r.PeerDisconnected(3)
	r.Reconnected(3)
	r.pass(1, 2, 3)
	if first, _ := r.log.FirstIndex(); first > acknowledged+1 {
		t.Errorf("the log begins at %d, and the member has acknowledged %d; it was without a connection for less than a tick", first, acknowledged)
	}
}
