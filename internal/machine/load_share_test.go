package machine

import (
	"errors"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// sharedDisk is roomyDisk at the level of shares, with two of a lock, of which the first one that began the
// phase has ended, one whose lock-delay runs, and a queue behind them. Fences up to 20 and queue places up
// to 9 were granted.
func sharedDisk() disk {
	d := roomyDisk()
	session := []byte(soundSession)
	d["m"] = marshalled(&wire.MachineState{Version: 1, FeatureLevel: wire.LevelShared, Now: 1, Fences: 20, Positions: 9, Changes: 9})
	d["M"+be(1)] = marshalled(&wire.MemberState{Incarnation: []byte(soundInc), Token: []byte(soundInc), FeatureLevel: wire.LevelShared})
	d["hr\x00"+be(10)] = soundShare(&wire.ShareState{Holds: 1})
	d["hr\x00"+be(11)] = soundShare(&wire.ShareState{Holds: 3, Handle: 7, Lingering: true, Since: 1, Label: "me", Incarnation: []byte(soundInc), Seq: 9})
	d["hr\x00"+be(8)] = marshalled(&wire.ShareState{DelayUntil: 5})
	d["wlr\x00"+be(6)] = marshalled(&wire.WaiterState{Session: session, Incarnation: []byte(soundInc), Seq: 10})
	d["wlr\x00"+be(7)] = marshalled(&wire.WaiterState{Session: session, Incarnation: []byte(soundInc), Seq: 11, Shared: true})
	return d
}

// soundShare encodes a share of the sound state's session, of the phase that fence 9 began.
func soundShare(st *wire.ShareState) []byte {
	st.Session = []byte(soundSession)
	if st.Fence == 0 {
		st.Fence = 9
	}
	return marshalled(st)
}

func TestLoad_RefusesEachViolationOfShares(t *testing.T) {
	below := marshalled(&wire.MachineState{Version: 1, FeatureLevel: wire.LevelShared - 1, Now: 1, Fences: 20, Positions: 9, Changes: 9})
	for _, row := range []stateRow{
		{"shares below their level", "m", below},
		{"a share without a name", "h\x00" + be(12), soundShare(&wire.ShareState{Holds: 1})},
		{"a share under a key without NUL", "hr!" + be(12), soundShare(&wire.ShareState{Holds: 1})},
		{"a share of a dead session", "hr\x00" + be(12), marshalled(&wire.ShareState{Session: []byte(unknown), Holds: 1, Fence: 9})},
		{"a share neither held nor delayed", "hr\x00" + be(12), marshalled(&wire.ShareState{})},
		{"a share held and delayed", "hr\x00" + be(12), soundShare(&wire.ShareState{Holds: 1, DelayUntil: 5})},
		{"a share held no times", "hr\x00" + be(12), soundShare(&wire.ShareState{})},
		{"a share without a fence", "hz\x00" + be(12), marshalled(&wire.ShareState{Session: []byte(soundSession), Holds: 1})},
		{"a share with another fence than that of its phase", "hr\x00" + be(12), soundShare(&wire.ShareState{Holds: 1, Fence: 12})},
		{"a share that is older than its phase", "hz\x00" + be(12), soundShare(&wire.ShareState{Holds: 1, Fence: 13})},
		{"a share with a number never granted", "hr\x00" + be(21), soundShare(&wire.ShareState{Holds: 1})},
		{"a share without a number", "hr\x00" + be(0), soundShare(&wire.ShareState{Holds: 1})},
		{"a share with the number of one of another lock", "hz\x00" + be(10), soundShare(&wire.ShareState{Holds: 1, Fence: 10})},
		{"a share with the fence of a lock", "hz\x00" + be(1), soundShare(&wire.ShareState{Holds: 1, Fence: 1})},
		{"a share with the fence of permits", "hz\x00" + be(3), soundShare(&wire.ShareState{Holds: 1, Fence: 3})},
		{"a phase with the fence of permits", "hz\x00" + be(12), soundShare(&wire.ShareState{Holds: 1, Fence: 3})},
		{"a phase with the number of a share of another", "hz\x00" + be(12), soundShare(&wire.ShareState{Holds: 1, Fence: 10})},
		{"a share with half a ticket", "hr\x00" + be(12), soundShare(&wire.ShareState{Holds: 1, Seq: 5})},
		{"a share with the ticket of another", "hr\x00" + be(12), soundShare(&wire.ShareState{Holds: 1, Incarnation: []byte(soundInc), Seq: 9})},
		{"a delayed share with a hold", "hr\x00" + be(12), marshalled(&wire.ShareState{DelayUntil: 5, Holds: 1})},
		{"a delayed share with a fence", "hr\x00" + be(12), marshalled(&wire.ShareState{DelayUntil: 5, Fence: 9})},
		{"a delayed share with a handle", "hr\x00" + be(12), marshalled(&wire.ShareState{DelayUntil: 5, Handle: 1})},
		{"a delayed share with a label", "hr\x00" + be(12), marshalled(&wire.ShareState{DelayUntil: 5, Label: "x"})},
		{"a delayed share that lingers", "hr\x00" + be(12), marshalled(&wire.ShareState{DelayUntil: 5, Lingering: true})},
		{"a delayed share with a ticket", "hr\x00" + be(12), marshalled(&wire.ShareState{DelayUntil: 5, Incarnation: []byte(soundInc), Seq: 5})},
		{"a share delayed until before the beginning", "hr\x00" + be(12), marshalled(&wire.ShareState{DelayUntil: -1})},
		{"a share since a later time", "hr\x00" + be(12), soundShare(&wire.ShareState{Holds: 1, Since: 2})},
		{"a share of a lock with an owner", "hx\x00" + be(12), soundShare(&wire.ShareState{Holds: 1, Fence: 12})},
		{"a delayed share of a lock with an owner", "hx\x00" + be(12), marshalled(&wire.ShareState{DelayUntil: 5})},
		{"a share of a lock under a lock-delay", "hy\x00" + be(12), soundShare(&wire.ShareState{Holds: 1, Fence: 12})},
		{"a shared waiter for an election", "wex\x00" + be(8), soundWaiter(&wire.WaiterState{Shared: true})},
		{"a shared waiter for permits", "wSx\x00" + be(8), soundWaiter(&wire.WaiterState{Shared: true, Permits: 1})},
		{"a shared waiter for a lock without a name", "wl\x00" + be(8), soundWaiter(&wire.WaiterState{Shared: true})},
		{"an exclusive waiter for a lock that is free", "wlz\x00" + be(8), soundWaiter(&wire.WaiterState{})},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := sharedDisk()
			d[row.key] = row.value
			if m, err := Load(d.pairs()); !errors.Is(err, ErrCorrupt) || m != nil {
				t.Errorf("Load: %v", err)
			}
		})
	}
}

// A waiter at the head of a queue that waits for delayed shares alone, and one whose shares have ended.
func TestLoad_RefusesFreeLockWithExclusiveHead(t *testing.T) {
	d := sharedDisk()
	delete(d, "hr\x00"+be(10))
	delete(d, "hr\x00"+be(11))
	if m, err := Load(d.pairs()); err != nil || audit(m) != nil {
		t.Errorf("with a delayed share: %v", err)
	}
	delete(d, "hr\x00"+be(8))
	if m, err := Load(d.pairs()); !errors.Is(err, ErrCorrupt) || m != nil {
		t.Errorf("without shares: %v", err)
	}
}

func TestLoad_AcceptsBoundsOfShares(t *testing.T) {
	for _, row := range []stateRow{
		{"as it is", "m", sharedDisk()["m"]},
		{"the last number granted", "hr\x00" + be(20), soundShare(&wire.ShareState{Holds: MaxHolds})},
		{"a phase of one share", "hz\x00" + be(12), soundShare(&wire.ShareState{Holds: 1, Fence: 12})},
		{"a phase that another share began", "hz\x00" + be(12), soundShare(&wire.ShareState{Holds: 1, Fence: 5})},
		{"a phase that a delayed share began", "hr\x00" + be(9), marshalled(&wire.ShareState{DelayUntil: 1})},
		{"a delayed share alone", "hz\x00" + be(12), marshalled(&wire.ShareState{DelayUntil: 5})},
		{"a shared waiter for an exclusive lock", "wlx\x00" + be(8), soundWaiter(&wire.WaiterState{Shared: true, Lingering: true})},
		{"a shared waiter that the next entry grants", "wlz\x00" + be(8), soundWaiter(&wire.WaiterState{Shared: true})},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := sharedDisk()
			d[row.key] = row.value
			checkLoad(t, d, "")
		})
	}
}

// What is damaged at its end, or comes twice, is refused.
func TestLoad_DamagedShares(t *testing.T) {
	for key := range sharedDisk() {
		d := sharedDisk()
		d[key] = append(d[key], 0xff)
		if m, err := Load(d.pairs()); !errors.Is(err, ErrCorrupt) || m != nil {
			t.Errorf("Load with %q damaged: %v", key, err)
		}
		if key[0] != shareKind {
			continue
		}
		twice := func(yield func(k, v []byte) bool) {
			for k, v := range sharedDisk().pairs() {
				if !yield(k, v) || string(k) == key && !yield(k, v) {
					return
				}
			}
		}
		if m, err := Load(twice); !errors.Is(err, ErrCorrupt) || m != nil {
			t.Errorf("Load with %q twice: %v", key, err)
		}
	}
}
