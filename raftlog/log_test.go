package raftlog

import (
	"fmt"
	"io"
	stdlog "log"
	"maps"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/storage"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

func openLog(t *testing.T, options storage.Options) (*storage.Store, *Log) {
	t.Helper()
	store, err := storage.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	log, err := Open(store, 0)
	if err != nil {
		t.Fatal(err)
	}
	return store, log
}

// carryOut writes the operations as the loop and the storage goroutine would.
func carryOut(log *Log, ops ...Op) error {
	result := make(chan error, 1)
	log.Submit(ops, func(err error) { result <- err })
	select {
	case err := <-result:
		if err != nil {
			return err
		}
	case <-log.store.Failed():
		return log.store.Err()
	}
	for _, op := range ops {
		log.Wrote(op)
	}
	return nil
}

func mustCarryOut(t *testing.T, log *Log, ops ...Op) {
	t.Helper()
	if err := carryOut(log, ops...); err != nil {
		t.Fatal(err)
	}
}

func hardState(term, vote, commit uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: new(term), Vote: new(vote), Commit: new(commit)}
}

var discard = stdlog.New(io.Discard, "", 0)

func members(ids ...uint64) *raftpb.ConfState { return &raftpb.ConfState{Voters: ids} }

func entry(index, term uint64, data string) *raftpb.Entry {
	return &raftpb.Entry{Index: new(index), Term: new(term), Type: new(raftpb.EntryNormal), Data: []byte(data)}
}

// entries makes entries of one term.
func entries(first, last, term uint64) []*raftpb.Entry {
	var all []*raftpb.Entry
	for i := first; i <= last; i++ {
		all = append(all, entry(i, term, fmt.Sprintf("%d of %d", i, term)))
	}
	return all
}

func set(key, value string) wire.Change {
	return wire.Change{Key: []byte(key), Value: []byte(value)}
}

func state(t *testing.T, log *Log) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := log.State(func(key, value []byte) error {
		got[string(key)] = string(value)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// A log is bootstrapped, written to, applied, truncated, and found again as it
// was.
func TestALogIsFoundAgainAsItWas(t *testing.T) {
	options := storage.Options{Dir: t.TempDir()}
	store, log := openLog(t, options)
	if err := log.Bootstrap(members(1, 2, 3)); err != nil {
		t.Fatal(err)
	}
	mustCarryOut(t, log, Append{HardState: hardState(2, 1, 1), Entries: entries(2, 9, 2)})
	mustCarryOut(t, log,
		Append{HardState: hardState(3, 2, 6), Entries: entries(8, 8, 3)},
		Apply{Index: 5, Term: 2, Digest: 55, Changes: []wire.Change{set("a", "1"), set("b", "2")}},
		Apply{Index: 6, Term: 2, Digest: 66, Changes: []wire.Change{set("a", "3"), {Key: []byte("b")}}, ConfState: members(1, 2)},
		Truncate{Index: 4})
	check := func(when string, log *Log) {
		first, last := log.first(), log.last()
		if first != 5 || last != 8 {
			t.Errorf("%s: log from %d to %d, want 5 to 8", when, first, last)
		}
		if got := log.Applied(); got != (Applied{Index: 6, Term: 2, Digest: 66}) {
			t.Errorf("%s: applied %+v", when, got)
		}
		hard, conf, _ := log.InitialState()
		if !proto.Equal(hard, hardState(3, 2, 6)) || !proto.Equal(conf, members(1, 2)) {
			t.Errorf("%s: %v, %v", when, hard, conf)
		}
		if got := state(t, log); !maps.Equal(got, map[string]string{"a": "3"}) {
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

// A snapshot is staged beside a state that goes on, and installed.
func TestASnapshotReplacesLogAndState(t *testing.T) {
	options := storage.Options{Dir: t.TempDir()}
	store, log := openLog(t, options)
	if err := log.Bootstrap(members(1)); err != nil {
		t.Fatal(err)
	}
	mustCarryOut(t, log, Append{HardState: hardState(5, 0, 3), Entries: entries(2, 20, 5)},
		Apply{Index: 3, Term: 5, Changes: []wire.Change{set("old", "1")}})
	abandoned, err := log.Stage()
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
		if err := abandoned.Put(fmt.Appendf(nil, "x%d", i), value); err != nil {
			t.Fatal(err)
		}
	}
	if got := state(t, log); !maps.Equal(got, map[string]string{"old": "1"}) {
		t.Fatalf("state while staging: %v", got)
	}
	generation, err := stage.Finish()
	if err != nil {
		t.Fatal(err)
	}
	// The snapshot ends before the log did, and in an older term.
	mustCarryOut(t, log, Install{Index: 10, Term: 4, Digest: 7, ConfState: members(1, 2), Generation: generation})
	check := func(when string, log *Log) {
		if first, last := log.first(), log.last(); first != 11 || last != 10 {
			t.Errorf("%s: log from %d to %d, want 11 to 10", when, first, last)
		}
		if got := state(t, log); len(got) != 1000 || got["old"] != "" {
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
	mustCarryOut(t, log, Append{Entries: entries(11, 12, 5)})
}
