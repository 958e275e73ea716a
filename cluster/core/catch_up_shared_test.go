package core

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

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

// The log waits for a member that has installed a snapshot as long as it would without what other groups have.
func TestCatchUp_GoesOnBesideOthers(t *testing.T) {
	const most = 64 * testLogs
	for _, test := range []struct {
		name   string
		logs   *Logs
		others int
	}{
		{"no budget", nil, 0},
		{"a budget that others do not use", NewLogs(most, 4*most, testLeast), 0},
		{"a budget that others have", NewLogs(most, 4*most, testLeast), most},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, sharing(test.logs), func(c *Config) { c.Keep = 2 }).follow()
			index := r.behind()
			r.SnapshotSent(3, true)
			r.mustReceive(message(raftpb.MsgAppResp, 3, r.term, following(index, 0)))
			r.effects()
			if test.logs != nil {
				test.logs.kept.Take(test.others)
			}
			for seq := range uint64(4 * testLogs / testEntry) {
				r.mustReceive(message(raftpb.MsgHeartbeatResp, 3, r.term))
				if seq%20 == 0 {
					r.pass(1, 2, 3)
				}
				if _, truncated := r.write(seq+1, testEntry); truncated > index {
					t.Fatalf("the log is truncated to %d with %d bytes, and the member has a snapshot of %d", truncated, r.log.Bytes(), index)
				}
			}
		})
	}
}

// A member whose snapshot waits for its turn needs nothing of the log before that (SnapshotWaits, and the decisions 45 and 65), so a log keeps
// nothing for it beside groups that have all. So it is while the snapshot fails again and again.
func TestCatchUp_WaitingKeepsNothingBesideOthers(t *testing.T) {
	for name, fails := range map[string]bool{"waits": false, "fails": true} {
		t.Run(name, func(t *testing.T) {
			logs := testBudget()
			r := newRig(t, sharing(logs), func(c *Config) { c.Keep = 2 }).follow()
			r.behind()
			r.truncation.keep = 10_000
			if !fails {
				r.SnapshotWaits(3)
			}
			logs.kept.Take(testLogs)
			for seq := range uint64(testLogs / 2 / testEntry) {
				if fails && seq%5 == 0 {
					r.SnapshotSent(3, false)
					r.Checkpoint() // the next one is of a later state
				}
				if seq%5 == 0 {
					r.pass(1, 2, 3)
				}
				r.write(seq+1, testEntry)
			}
			r.pass(3*electionTicks, 2, 3)
			if n := r.log.Bytes(); n > 2*testLeast {
				t.Errorf("the log has %d bytes beside others that have all; %d are allowed", n, testLeast)
			}
		})
	}
}

// What groups keep whose snapshots wait for their turn, which they need not, is not there for the group whose snapshot is sent.
func TestCatchUp_WaitingCancelNoOther(t *testing.T) {
	const groups = 8
	logs := testBudget()
	all := make([]*rig, groups)
	for i := range all {
		all[i] = newRig(t, sharing(logs), func(c *Config) { c.Keep = 2 }).follow()
		all[i].behind()
		all[i].truncation.keep = 10_000
		if i > 0 {
			all[i].SnapshotWaits(3)
		}
	}
	for round := range 700 {
		for i, r := range all {
			if round%5 == 0 {
				r.pass(1, 2, 3)
			}
			cancelled, _ := r.write(uint64(round+1), testEntry)
			if i > 0 || len(cancelled) == 0 {
				continue
			}
			others := logs.kept.Taken() - int(r.log.Bytes())
			if r.log.Bytes() < testLogs {
				t.Errorf("the snapshot is cancelled with %d bytes in the log; groups that wait for nothing have %d, and are to have %d together", r.log.Bytes(), others, testLogs)
			}
			return
		}
	}
}
