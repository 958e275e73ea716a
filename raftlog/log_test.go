package raftlog

import (
	"maps"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/storage"
	"google.golang.org/protobuf/proto"
)

// A log is bootstrapped, appended to, applied, truncated, and read back after
// reopening.
func TestLog_ReopenReadsWhatWasWritten(t *testing.T) {
	options := storage.Options{Dir: t.TempDir()}
	store, log := openLog(t, options)
	bootstrap(t, log, 1, 2, 3)
	mustWrite(t, log, Append{HardState: hardState(2, 1, 1), Entries: entries(2, 9, 2)})
	mustWrite(t, log,
		Append{HardState: hardState(3, 2, 6), Entries: entries(8, 8, 3)},
		Checkpoint{After: 1, Index: 5, Term: 2, Digest: 55, Changes: []wire.Change{set("a", "1"), set("b", "2")}},
		Checkpoint{After: 5, Index: 6, Term: 2, Digest: 66, Changes: []wire.Change{set("a", "3"), {Key: []byte("b")}}, ConfState: voters(1, 2)},
		Truncate{Index: 4})
	check := func(when string, log *Log) {
		first, last := log.first(), log.last()
		if first != 5 || last != 8 {
			t.Errorf("%s: entries %d to %d, want 5 to 8", when, first, last)
		}
		if got := log.Applied(); got != (Applied{Index: 6, Term: 2, Digest: 66}) {
			t.Errorf("%s: applied %+v", when, got)
		}
		hard, conf, _ := log.InitialState()
		if !proto.Equal(hard, hardState(3, 2, 6)) || !proto.Equal(conf, voters(1, 2)) {
			t.Errorf("%s: %v, %v", when, hard, conf)
		}
		if got := readState(t, log); !maps.Equal(got, map[string]string{"a": "3"}) {
			t.Errorf("%s: state %v", when, got)
		}
		got, err := log.Entries(5, 9, 1<<20)
		want := append(entries(5, 7, 2), entry(8, 3, "8 of 3"))
		if err != nil || len(got) != len(want) {
			t.Fatalf("%s: %v, %v", when, got, err)
		}
		for i := range got {
			if !proto.Equal(got[i], want[i]) {
				t.Errorf("%s: entry %v, want %v", when, got[i], want[i])
			}
		}
	}
	check("while open", log)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	_, log = openLog(t, options)
	check("after reopening", log)
}

func TestLog_BootstrapOnce(t *testing.T) {
	_, log := openLog(t, storage.Options{})
	if log.Bootstrapped() {
		t.Error("a new log is bootstrapped")
	}
	// Local records do not make a group.
	if err := log.SetLocal("identity", []byte("1")); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false} {
		if err := log.Bootstrap(voters(1)); (err == nil) != want {
			t.Errorf("Bootstrap, call %d: %v", i+1, err)
		}
		if !log.Bootstrapped() {
			t.Error("not bootstrapped")
		}
	}
}

// The hard state that commits an entry may be written after the entry was
// applied, or never. Raft starts nevertheless.
func TestLog_AppliedEntryIsCommittedAfterReopen(t *testing.T) {
	disk := vfs.NewMem()
	store, log := openLog(t, storage.Options{FS: disk})
	bootstrap(t, log, 1)
	mustWrite(t, log, Append{HardState: hardState(1, 1, 1), Entries: entries(2, 3, 1)}, Checkpoint{After: 1, Index: 3, Term: 1})
	store.Close()
	_, log = openLog(t, storage.Options{FS: disk})
	startRaft(t, log)
	if hard, _, _ := log.InitialState(); hard.GetCommit() != 3 {
		t.Errorf("commit index %d, want 3", hard.GetCommit())
	}
}

// A vote is durable when the write returns, also in a term that was durable
// before. Lost in a power loss and cast a second time, it could elect a second
// leader.
func TestLog_VoteSurvivesPowerLoss(t *testing.T) {
	disk := vfs.NewCrashableMem()
	_, log := openLog(t, storage.Options{FS: disk})
	bootstrap(t, log, 1, 2, 3)
	for _, step := range []struct {
		what       string
		term, vote uint64
	}{
		{"a new term", 2, 0}, {"a vote in that term", 2, 3}, {"a new term with a vote", 3, 1},
	} {
		mustWrite(t, log, Append{HardState: hardState(step.term, step.vote, 0)})
		_, recovered := openLog(t, storage.Options{FS: afterPowerLoss(disk)})
		hard, _, err := recovered.InitialState()
		if err != nil || hard.GetTerm() != step.term || hard.GetVote() != step.vote {
			t.Errorf("%s: recovered hard state %v, %v", step.what, hard, err)
		}
	}
}

// A leader tells of a membership change once it has applied it.
func TestLog_MembershipSurvivesPowerLoss(t *testing.T) {
	disk := vfs.NewCrashableMem()
	_, log := openLog(t, storage.Options{FS: disk})
	bootstrap(t, log, 1, 2)
	mustWrite(t, log, Append{HardState: hardState(1, 0, 2), Entries: entries(2, 2, 1)})
	mustWrite(t, log, Checkpoint{After: 1, Index: 2, Term: 1, ConfState: voters(1)})
	_, recovered := openLog(t, storage.Options{FS: afterPowerLoss(disk)})
	if _, conf, err := recovered.InitialState(); err != nil || len(conf.GetVoters()) != 1 {
		t.Errorf("recovered membership %v, %v", conf, err)
	}
}

// Two groups share a store without affecting each other.
func TestLog_GroupsAreIsolated(t *testing.T) {
	disk := vfs.NewMem()
	store, log := openLog(t, storage.Options{FS: disk})
	other, err := log.OpenGroup(1)
	if err != nil {
		t.Fatal(err)
	}
	bootstrap(t, log, 1)
	bootstrap(t, other, 2)
	mustWrite(t, log, Append{HardState: hardState(1, 0, 2), Entries: entries(2, 2, 1)}, Checkpoint{After: 1, Index: 2, Term: 1, Changes: []wire.Change{set("a", "1")}})
	before := mustReadLog(t, log)
	if err := play(other, step{snapshot: map[string]string{"o": "1"}, ops: []Op{Install{Index: 5, Term: 1, ConfState: voters(2)}}}); err != nil {
		t.Fatal(err)
	}
	store.Close()
	_, log = openLog(t, storage.Options{FS: disk})
	if other, err = log.OpenGroup(1); err != nil {
		t.Fatal(err)
	}
	if after := mustReadLog(t, log); after != before {
		t.Errorf("got\n%s\nwant\n%s", after, before)
	}
	if got, err := readLog(other); err != nil || !strings.Contains(got.String(), "truncated 5 of 1") || got.state["o"] != "1" {
		t.Errorf("other group: %v, %v", got, err)
	}
}

// A new group may begin with a state.
func TestLog_BootstrapWithState(t *testing.T) {
	options := storage.Options{Dir: t.TempDir()}
	store, log := openLog(t, options)
	state := []wire.Change{set("a", "1"), set("b", "")}
	if err := log.BootstrapWith(voters(1), state, 7); err != nil {
		t.Fatal(err)
	}
	if err := log.BootstrapWith(voters(1), state, 7); err == nil {
		t.Error("bootstrapped twice")
	}
	for range 2 {
		got := readState(t, log)
		if want := (Applied{Index: BootstrapIndex, Term: 1, Digest: 7}); log.Applied() != want || !maps.Equal(got, map[string]string{"a": "1", "b": ""}) {
			t.Errorf("%+v with %q", log.Applied(), got)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		store, log = openLog(t, options)
	}
}
