package core

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/budget"
)

// The bounds of these tests.
const (
	testLogs  = 1 << 20
	testLeast = 16 << 10
	testEntry = 2 << 10
)

func testBudget() *Logs {
	return &Logs{kept: budget.New(testLogs, testLeast), awaited: budget.New(4*testLogs, testLeast)}
}

// sharing has a log that keeps 1 MiB by itself share others' budget.
func sharing(logs *Logs) func(*Config) {
	return func(c *Config) { c.Keep, c.KeepBytes, c.Logs = 10_000, testLogs/2, logs }
}

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
		all[i].grow(2*testLogs/testEntry, testEntry)
	}
	if n := sum(); n != logs.Bytes() || n > testLogs+groups*(testLeast+testEntry) {
		t.Errorf("the logs have %d bytes, and %d are counted", n, logs.Bytes())
	}
	last := all[groups-1]
	for range 20 {
		for _, r := range all[:groups-1] {
			r.pass(1)
		}
		last.grow(20, testEntry)
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
	last.grow(testLogs/testEntry, testEntry)
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
	if r.pass(1); r.log.Bytes() > testLogs/2 {
		t.Errorf("the log has %d bytes after a tick", r.log.Bytes())
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
				if test.up {
					r.mustReceive(message(raftpb.MsgHeartbeatResp, 3, r.term))
				}
				r.write(seq+1, testEntry)
			}
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
			for range 10 {
				r.pass(1, 2, 3)
			}
			if n := r.log.Bytes(); n > testLeast+testEntry {
				t.Errorf("the log has %d bytes after the member has acknowledged all", n)
			}
		})
	}
}

// What logs keep for members with snapshots in flight is bounded for all groups.
func TestCatchUp_SharedBudget(t *testing.T) {
	logs := testBudget()
	r := newRig(t, sharing(logs), func(c *Config) { c.Keep = 2 }).follow()
	index := r.behind()
	most := 0
	for seq := uint64(1); ; seq++ {
		cancelled, truncated := r.write(seq, 10*testEntry)
		if truncated > index {
			if len(cancelled) != 1 {
				t.Errorf("snapshots are cancelled to %d", cancelled)
			}
			break
		}
		if most = logs.awaited.Taken(); most > 3*testLogs {
			t.Fatalf("the log keeps %d bytes", most)
		}
	}
	if most < 3*testLogs/2 {
		t.Errorf("the log keeps %d bytes only", most)
	}
}
