package raftlog

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/storage"
)

// A view shows one index while the log goes on, even over an installed
// snapshot that removes the state it shows.
func TestAViewStaysAsItIs(t *testing.T) {
	_, log := openLog(t, storage.Options{})
	if err := log.Bootstrap(members(1, 2)); err != nil {
		t.Fatal(err)
	}
	mustCarryOut(t, log, Append{HardState: hardState(1, 0, 3), Entries: entries(2, 3, 1)},
		Apply{Index: 2, Term: 1, Digest: 22, Changes: []wire.Change{set("a", "1"), set("b", "2")}})
	view, err := log.View()
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	mustCarryOut(t, log, Apply{Index: 3, Term: 1, Changes: []wire.Change{set("a", "3")}, ConfState: members(1)})
	if err := play(log, step{stage: map[string]string{"new": "1"}, ops: []Op{Install{Index: 9, Term: 1, ConfState: members(7)}}}); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	err = view.Each(func(key, value []byte) error {
		got[string(key)] = string(value)
		return nil
	})
	if err != nil || !maps.Equal(got, map[string]string{"a": "1", "b": "2"}) {
		t.Errorf("%v, %v", got, err)
	}
	if view.Applied != (Applied{Index: 2, Term: 1, Digest: 22}) || len(view.ConfState.GetVoters()) != 2 {
		t.Errorf("%+v, %v", view.Applied, view.ConfState)
	}
	if got := state(t, log); !maps.Equal(got, map[string]string{"new": "1"}) {
		t.Errorf("the state is %v", got)
	}
	stop := errors.New("stop")
	if err := view.Each(func([]byte, []byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
}

// No pair of a state that is not valid any more is kept: not the one that a
// snapshot has replaced, not a discarded stage, and after a restart not one
// that was never finished.
func TestUnusedStatesAreRemoved(t *testing.T) {
	disk := vfsMem()
	store, log := openLog(t, storage.Options{FS: disk})
	if err := log.Bootstrap(members(1)); err != nil {
		t.Fatal(err)
	}
	mustCarryOut(t, log, Append{HardState: hardState(1, 0, 2), Entries: entries(2, 2, 1)},
		Apply{Index: 2, Term: 1, Changes: []wire.Change{set("a", "1")}})
	staged := func() (*Stage, uint64) {
		stage, err := log.Stage()
		if err != nil {
			t.Fatal(err)
		}
		if err := stage.Put([]byte("x"), []byte("y")); err != nil {
			t.Fatal(err)
		}
		generation, err := stage.Finish()
		if err != nil {
			t.Fatal(err)
		}
		return stage, generation
	}
	left := func() int {
		db, giveBack, err := log.store.Borrow()
		if err != nil {
			t.Fatal(err)
		}
		defer giveBack()
		unused, err := unusedGenerations(db, 0, log.disk.generation)
		if err != nil {
			t.Fatal(err)
		}
		return len(unused)
	}
	first, _ := staged()
	_, second := staged()
	_, third := staged()
	staged()
	if got := left(); got != 4 {
		t.Fatalf("%d beside the valid one, want 4", got)
	}
	if err := first.Discard(); err != nil {
		t.Fatal(err)
	}
	mustCarryOut(t, log, Discard{Generation: second})
	mustCarryOut(t, log, Install{Index: 9, Term: 1, ConfState: members(1), Generation: third})
	if got := left(); got != 1 {
		t.Errorf("%d beside the valid one, want the unfinished one only", got)
	}
	store.Close()
	_, log = openLog(t, storage.Options{FS: disk})
	if got := left(); got != 0 {
		t.Errorf("%d beside the valid one after a restart", got)
	}
	if got := state(t, log); !maps.Equal(got, map[string]string{"x": "y"}) {
		t.Errorf("state %v", got)
	}
}

// Local records are kept beside the log, durable when SetLocal returns.
func TestLocalRecords(t *testing.T) {
	disk := vfsCrashable()
	_, log := openLog(t, storage.Options{FS: disk})
	for name, value := range map[string]string{"identity": "me", "peer/1": "a", "peer/2": "b", "peerless": "c", "empty": ""} {
		if err := log.SetLocal(name, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.SetLocal("peer/2", nil); err != nil {
		t.Fatal(err)
	}
	store, log := openLog(t, storage.Options{FS: afterPowerCut(disk)})
	for name, want := range map[string]string{"identity": "me", "peer/1": "a", "empty": ""} {
		if got, err := log.Local(name); err != nil || got == nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if got, err := log.Local("peer/2"); got != nil || err != nil {
		t.Errorf("a removed record: %q, %v", got, err)
	}
	log.NoteLocal("peer/3", []byte("d"))
	if err := store.Do(func(*pebble.DB) error { return nil }); err != nil { // behind the note
		t.Fatal(err)
	}
	peers, err := log.Locals("peer/")
	if err != nil || len(peers) != 2 || string(peers["peer/1"]) != "a" || string(peers["peer/3"]) != "d" {
		t.Errorf("%q, %v", peers, err)
	}
	store.Close()
	if _, err := log.Local("identity"); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("after closing: %v", err)
	}
	if err := log.SetLocal("identity", nil); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("after closing: %v", err)
	}
}

// Two groups share a store and see nothing of each other.
func TestGroupsAreApart(t *testing.T) {
	disk := vfsMem()
	store, log := openLog(t, storage.Options{FS: disk})
	other, err := Open(store, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Bootstrap(members(1)); err != nil {
		t.Fatal(err)
	}
	if err := other.Bootstrap(members(2)); err != nil {
		t.Fatal(err)
	}
	mustCarryOut(t, log, Append{HardState: hardState(1, 0, 2), Entries: entries(2, 2, 1)}, Apply{Index: 2, Term: 1, Changes: []wire.Change{set("a", "1")}})
	before, _ := found(log)
	if err := play(other, step{stage: map[string]string{"o": "1"}, ops: []Op{Install{Index: 5, Term: 1, ConfState: members(2)}}}); err != nil {
		t.Fatal(err)
	}
	store.Close()
	store, log = openLog(t, storage.Options{FS: disk})
	if other, err = Open(store, 1); err != nil {
		t.Fatal(err)
	}
	if after, err := found(log); err != nil || after.String() != before.String() {
		t.Errorf("%v, %v, want %v", err, after, before)
	}
	if got, err := found(other); err != nil || !strings.Contains(got.String(), "truncated 5 of 1") || got.state["o"] != "1" {
		t.Errorf("%v, %v", err, got)
	}
}
