package raftlog

import (
	"testing"

	"github.com/conclave-go/conclave/storage"
	"go.etcd.io/raft/v3/raftpb"
)

// A log of entries 2 to 9 of term 2, truncated at 4, applied and committed to
// 6, with a vote for 1 in term 3, refuses what raft would never hand in. It
// takes nothing more afterwards, and on disk it is as it was.
func TestWhatDoesNotFitIsRefused(t *testing.T) {
	for name, ops := range map[string][]Op{
		"a gap":                         {Append{Entries: entries(11, 12, 3)}},
		"a gap among the entries":       {Append{Entries: append(entries(10, 10, 3), entries(12, 12, 3)...)}},
		"an entry that is truncated":    {Append{Entries: entries(4, 9, 3)}},
		"an entry that is applied":      {Append{Entries: entries(6, 9, 3)}},
		"an older term behind a newer":  {Append{Entries: entries(10, 10, 1)}},
		"an entry of a term to come":    {Append{Entries: entries(10, 10, 4)}},
		"a second vote in a term":       {Append{HardState: hardState(3, 2, 6)}},
		"a vote taken back":             {Append{HardState: hardState(3, 0, 6)}},
		"a term that sinks":             {Append{HardState: hardState(2, 0, 6)}},
		"a commit behind the end":       {Append{HardState: hardState(3, 1, 10)}},
		"an application behind the end": {Apply{Index: 10, Term: 2}},
		"an application of the past":    {Apply{Index: 6, Term: 2}},
		"an application of another log": {Apply{Index: 7, Term: 3}},
		"a truncation of the unapplied": {Truncate{Index: 7}},
		"a snapshot of the past":        {Install{Index: 6, Term: 2, ConfState: members(1), Generation: 1}},
		"a snapshot never staged":       {Install{Index: 20, Term: 3, ConfState: members(1), Generation: 9}},
		"the valid state as a snapshot": {Install{Index: 20, Term: 3, ConfState: members(1)}},
		"the valid state discarded":     {Discard{Generation: 0}},
		"one that fits, one that does not": {
			Append{Entries: entries(10, 10, 3)}, Truncate{Index: 9},
		},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfsMem()
			store, log := openLog(t, storage.Options{FS: disk})
			if err := log.Bootstrap(members(1, 2, 3)); err != nil {
				t.Fatal(err)
			}
			mustCarryOut(t, log, Append{HardState: hardState(2, 0, 6), Entries: entries(2, 9, 2)},
				Apply{Index: 6, Term: 2}, Truncate{Index: 4}, Append{HardState: hardState(3, 1, 6)})
			before, err := found(log)
			if err != nil {
				t.Fatal(err)
			}
			refusal := carryOut(log, ops...)
			if refusal == nil {
				t.Error("accepted")
			}
			if err := carryOut(log, Append{Entries: entries(10, 10, 3)}); err == nil {
				t.Error("goes on after the refusal")
			}
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			_, log = openLog(t, storage.Options{FS: disk})
			if after, err := found(log); err != nil || after.String() != before.String() {
				t.Errorf("%v\nfound %v\nwant %v", err, after, before)
			}
		})
	}
}

func TestAGroupIsBootstrappedOnce(t *testing.T) {
	_, log := openLog(t, storage.Options{})
	if log.Bootstrapped() {
		t.Error("a new log says that it is bootstrapped")
	}
	// What a member keeps for itself is no group.
	if err := log.SetLocal("identity", []byte("1")); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false} {
		if err := log.Bootstrap(members(1)); (err == nil) != want {
			t.Errorf("bootstrap %d: %v", i, err)
		}
		if !log.Bootstrapped() {
			t.Error("not bootstrapped")
		}
	}
}

// The hard state that commits an entry may be written after the entry is
// applied, or never. Raft starts all the same.
func TestWhatIsAppliedIsCommitted(t *testing.T) {
	disk := vfsMem()
	store, log := openLog(t, storage.Options{FS: disk})
	if err := log.Bootstrap(members(1)); err != nil {
		t.Fatal(err)
	}
	mustCarryOut(t, log, Append{HardState: hardState(1, 1, 1), Entries: entries(2, 3, 1)}, Apply{Index: 3, Term: 1})
	store.Close()
	_, log = openLog(t, storage.Options{FS: disk})
	startRaft(t, log)
	if hard, _, _ := log.InitialState(); hard.GetCommit() != 3 {
		t.Errorf("committed to %d, want 3", hard.GetCommit())
	}
}

// An installed snapshot is durable though nothing else asks for a sync.
func TestAnInstalledSnapshotIsDurable(t *testing.T) {
	disk := vfsCrashable()
	_, log := openLog(t, storage.Options{FS: disk})
	if err := log.Bootstrap(members(1)); err != nil {
		t.Fatal(err)
	}
	stage, err := log.Stage()
	if err != nil {
		t.Fatal(err)
	}
	generation, err := stage.Finish()
	if err != nil {
		t.Fatal(err)
	}
	mustCarryOut(t, log, Install{Index: 10, Term: 1, ConfState: &raftpb.ConfState{}, Generation: generation})
	_, log = openLog(t, storage.Options{FS: afterPowerCut(disk)})
	if got := log.Applied().Index; got != 10 {
		t.Errorf("applied %d after the power cut, want 10", got)
	}
}
