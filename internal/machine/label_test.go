package machine

import (
	"errors"
	"strings"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// Labels and times are loaded where there can be some.
func TestLoad_Labels(t *testing.T) {
	session, inc := []byte(soundSession), []byte(soundInc)
	held := func(label string, since int64) []byte {
		return marshalled(&wire.LockState{Session: session, Holds: 1, Fence: 1, Label: label, Since: since})
	}
	waiting := func(label string, since int64, permits uint32) []byte {
		return marshalled(&wire.WaiterState{Session: session, Incarnation: inc, Seq: 5, Label: label, Since: since, Permits: permits})
	}
	const ofLock, ofSemaphore = "wlx\x00", "wSx\x00"
	next := be(4)
	for _, row := range []struct {
		name, key string
		value     []byte
		level     uint32
		sound     bool
	}{
		{"of an owner", "lx", held("run 1", 1), 3, true},
		{"of an owner below the level", "lx", held("run 1", 0), 2, false},
		{"a time below the level", "lx", held("", 1), 2, false},
		{"the longest", "lx", held(strings.Repeat("n", MaxLabel), 1), 3, true},
		{"too long", "lx", held(strings.Repeat("n", MaxLabel+1), 1), 3, false},
		{"with NUL", "lx", held("a\x00b", 1), 3, false},
		{"of no owner", "ly", marshalled(&wire.LockState{DelayUntil: 5, Label: "run 1"}), 3, false},
		{"a time of no owner", "ly", marshalled(&wire.LockState{DelayUntil: 5, Since: 1}), 3, false},
		{"a time to come", "lx", held("", 2), 3, false},
		{"a time before the beginning", "lx", held("", -1), 3, false},
		{"of a waiter", ofLock + next, waiting("run 1", 1, 0), 3, true},
		{"of a waiter below the level", ofLock + next, waiting("run 1", 0, 0), 2, false},
		{"of a waiter for permits", ofSemaphore + next, waiting("run 1", 0, 3), 3, false},
		{"a waiter for permits", ofSemaphore + next, waiting("", 0, 3), 3, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := soundDisk()
			d["m"] = marshalled(&wire.MachineState{Version: 1, FeatureLevel: row.level, Now: 1, Fences: 4, Positions: 4, Changes: 7})
			d[row.key] = row.value
			m, err := Load(d.pairs())
			switch {
			case row.sound && err != nil, !row.sound && !errors.Is(err, ErrCorrupt):
				t.Errorf("Load: %v; sound: %t", err, row.sound)
			case row.sound:
				if err := audit(m); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Labels of owners and waiters count in the size of the state.
func TestSize_Labels(t *testing.T) {
	d := newDriverAt(t, wire.LevelLabel)
	d.line(wire.Code_OK, "open s ttl=1h")
	d.line(wire.Code_OK, "lock x s/1")
	before := d.m.Size()
	d.line(wire.Code_QUEUED, "lock x s/2 wait label=run_22")
	d.line(wire.Code_QUEUED, "lock x s/3 wait label=run_333")
	if got, want := d.m.Size()-before, uint64(len("run 22")+len("run 333")); got != want {
		t.Errorf("two waiters with labels take %d bytes, want %d", got, want)
	}
	d.line(wire.Code_OK, "unlock x s/1 fence=1")
	d.line(wire.Code_OK, "unlock x s/2 fence=2")
	if got, want := d.m.Size()-before, uint64(len("run 333")); got != want {
		t.Errorf("one owner with a label takes %d bytes, want %d", got, want)
	}
	d.line(wire.Code_OK, "unlock x s/3 fence=3")
	if d.m.labels != 0 {
		t.Errorf("%d bytes of labels are left", d.m.labels)
	}
}
