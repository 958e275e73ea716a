package raftlog

import (
	"errors"
	"maps"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/storage"
)

// A view shows one index while the log advances, even past an installation that
// removes the state it shows.
func TestView_UnaffectedByLaterWrites(t *testing.T) {
	_, log := openLog(t, storage.Options{})
	bootstrap(t, log, 1, 2)
	mustWrite(t, log, Append{HardState: hardState(1, 0, 3), Entries: entries(2, 3, 1)},
		Checkpoint{After: 1, Index: 2, Term: 1, Digest: 22, Changes: []wire.Change{set("a", "1"), set("b", "2")}})
	view, err := log.View()
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	mustWrite(t, log, Checkpoint{After: 2, Index: 3, Term: 1, Changes: []wire.Change{set("a", "3")}, ConfState: voters(1)})
	if err := play(log, step{snapshot: map[string]string{"new": "1"}, ops: []Op{Install{Index: 9, Term: 1, ConfState: voters(7)}}}); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	err = view.Each(func(key, value []byte) error {
		got[string(key)] = string(value)
		return nil
	})
	if err != nil || !maps.Equal(got, map[string]string{"a": "1", "b": "2"}) {
		t.Errorf("view: %v, %v", got, err)
	}
	if view.Applied != (Applied{Index: 2, Term: 1, Digest: 22}) || len(view.ConfState.GetVoters()) != 2 {
		t.Errorf("view at %+v, %v", view.Applied, view.ConfState)
	}
	if got := readState(t, log); !maps.Equal(got, map[string]string{"new": "1"}) {
		t.Errorf("state %v", got)
	}
	stop := errors.New("stop")
	if err := view.Each(func([]byte, []byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("Each = %v, want the error of its function", err)
	}
}
