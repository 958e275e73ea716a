package raftlog

import (
	"fmt"
	"maps"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/storage"
	"go.etcd.io/raft/v3/raftpb"
)

// A snapshot is staged while the old state stays readable, then installed.
func TestInstall_ReplacesLogAndState(t *testing.T) {
	options := storage.Options{Dir: t.TempDir()}
	store, log := openLog(t, options)
	bootstrap(t, log, 1)
	mustWrite(t, log, Append{HardState: hardState(5, 0, 3), Entries: entries(2, 20, 5)},
		Checkpoint{After: 1, Index: 3, Term: 5, Changes: []wire.Change{set("old", "1")}})
	unfinished, err := log.Stage()
	if err != nil {
		t.Fatal(err)
	}
	stage, err := log.Stage()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		value := make([]byte, 4096)
		if err := stage.Put(fmt.Appendf(nil, "k%d", i), value); err != nil {
			t.Fatal(err)
		}
		if err := unfinished.Put(fmt.Appendf(nil, "x%d", i), value); err != nil {
			t.Fatal(err)
		}
	}
	if got := readState(t, log); !maps.Equal(got, map[string]string{"old": "1"}) {
		t.Fatalf("state while staging: %v", got)
	}
	generation, err := stage.Finish()
	if err != nil {
		t.Fatal(err)
	}
	// The snapshot ends before the log did, and in an older term.
	mustWrite(t, log, Install{Index: 10, Term: 4, Digest: 7, ConfState: voters(1, 2), Generation: generation})
	check := func(when string, log *Log) {
		if first, last := log.first(), log.last(); first != 11 || last != 10 {
			t.Errorf("%s: entries %d to %d, want 11 to 10", when, first, last)
		}
		if got := readState(t, log); len(got) != 1000 || got["old"] != "" {
			t.Errorf("%s: state has %d keys", when, len(got))
		}
		snapshot, _ := log.Snapshot()
		if m := snapshot.GetMetadata(); m.GetIndex() != 10 || m.GetTerm() != 4 || len(m.GetConfState().GetVoters()) != 2 {
			t.Errorf("%s: metadata %v", when, m)
		}
	}
	check("while open", log)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	_, log = openLog(t, options)
	check("after reopening", log)
	mustWrite(t, log, Append{Entries: entries(11, 12, 5)})
}

// An installation is durable without another synced operation.
func TestInstall_SurvivesPowerLoss(t *testing.T) {
	disk := vfs.NewCrashableMem()
	_, log := openLog(t, storage.Options{FS: disk})
	bootstrap(t, log, 1)
	_, generation := stage(t, log)
	mustWrite(t, log, Install{Index: 10, Term: 1, ConfState: &raftpb.ConfState{}, Generation: generation})
	_, log = openLog(t, storage.Options{FS: afterPowerLoss(disk)})
	if got := log.Applied().Index; got != 10 {
		t.Errorf("applied index %d after the power loss, want 10", got)
	}
}

// The database contains no state but the installed one: not the one replaced by
// a snapshot, no discarded stage and, after reopening, no unfinished stage.
func TestInstall_UnusedGenerationsRemoved(t *testing.T) {
	disk := vfs.NewMem()
	store, log := openLog(t, storage.Options{FS: disk})
	bootstrap(t, log, 1)
	mustWrite(t, log, Append{HardState: hardState(1, 0, 2), Entries: entries(2, 2, 1)},
		Checkpoint{After: 1, Index: 2, Term: 1, Changes: []wire.Change{set("a", "1")}})
	first, _ := stage(t, log, set("x", "y"))
	_, second := stage(t, log, set("x", "y"))
	_, third := stage(t, log, set("x", "y"))
	stage(t, log, set("x", "y"))
	if got := unused(t, log); len(got) != 4 {
		t.Fatalf("unused generations %v, want 4", got)
	}
	if err := first.Discard(); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, log, Discard{Generation: second})
	mustWrite(t, log, Install{Index: 9, Term: 1, ConfState: voters(1), Generation: third})
	if got := unused(t, log); len(got) != 1 {
		t.Errorf("unused generations %v, want the unfinished one", got)
	}
	store.Close()
	_, log = openLog(t, storage.Options{FS: disk})
	if got := unused(t, log); len(got) != 0 {
		t.Errorf("unused generations %v after reopening", got)
	}
	if got := readState(t, log); !maps.Equal(got, map[string]string{"x": "y"}) {
		t.Errorf("state %v", got)
	}
}
