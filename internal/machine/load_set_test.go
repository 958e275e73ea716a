package machine

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// setDisk is sharedDisk with two sets that are held, of which one joins a phase and begins another, and two that wait.
// The names of the first of those are reserved, and a request waits behind it. Fences up to 40 and queue places up to 30 were granted.
func setDisk() disk {
	d := sharedDisk()
	d["m"] = machineAt(wire.LevelSets)
	d["g"+be(22)] = soundSet(&wire.SetState{Handle: 3, Names: []string{"a"}, Shared: []string{"b", "r"}, Fences: []uint64{22, 9}, Since: 4})
	d["g"+be(25)] = soundSet(&wire.SetState{
		Names: []string{"c", "d"}, Label: "me", Incarnation: []byte(soundInc), Seq: 13, Ends: 9 * second, Requested: second,
	})
	d["hb\x00"+be(23)] = soundShare(&wire.ShareState{Holds: 1, Fence: 22})
	d["v"+be(12)] = soundSetWaiter(14, &wire.SetWaiterState{Names: []string{"a", "e"}, Handle: 4, MaxHold: second, Label: "me", Since: 5})
	d["q"+be(12)] = marshalled(&wire.PassedState{Times: MaxPassed})
	d["v"+be(13)] = soundSetWaiter(15, &wire.SetWaiterState{Names: []string{"c", "f"}, Shared: []string{"b"}})
	d["wle\x00"+be(14)] = marshalled(&wire.WaiterState{Session: []byte(soundSession), Incarnation: []byte(soundInc), Seq: 16})
	return d
}

func machineAt(level uint32) []byte {
	return marshalled(&wire.MachineState{Version: 1, FeatureLevel: level, Now: 5 * second, Fences: 40, Positions: 30, Changes: 9})
}

// soundSet encodes a set that the session of the sound state holds.
func soundSet(st *wire.SetState) []byte {
	st.Session = []byte(soundSession)
	return marshalled(st)
}

// soundSetWaiter encodes a set that waits, requested by the process of the sound state.
func soundSetWaiter(seq uint64, st *wire.SetWaiterState) []byte {
	st.Session, st.Incarnation, st.Seq = []byte(soundSession), []byte(soundInc), seq
	return marshalled(st)
}

func setOf(names ...string) *wire.SetState { return &wire.SetState{Names: names} }

func awaited(names ...string) *wire.SetWaiterState { return &wire.SetWaiterState{Names: names} }

// tooManyNames are different.
func tooManyNames() (names []string) {
	for i := range MaxSet + 1 {
		names = append(names, strings.Repeat("k", 1+i))
	}
	return names
}

func TestLoad_RefusesEachViolationOfSets(t *testing.T) {
	for _, row := range slices.Concat(violationsOfSets, violationsOfWaitingSets) {
		t.Run(row.name, func(t *testing.T) {
			d := setDisk()
			d[row.key] = row.value
			if m, err := Load(d.pairs()); !errors.Is(err, ErrCorrupt) || m != nil {
				t.Errorf("Load: %v", err)
			}
		})
	}
}

var violationsOfSets = []stateRow{
	{"sets below their level", "m", machineAt(wire.LevelSets - 1)},
	{"a set under a longer key", "g" + be(30) + "x", soundSet(setOf("k"))},
	{"a set under a shorter key", "g1", soundSet(setOf("k"))},
	{"a set without names", "g" + be(30), soundSet(setOf())},
	{"a set of too many names", "g" + be(30), soundSet(setOf(tooManyNames()...))},
	{"a set with an empty name", "g" + be(30), soundSet(setOf("k", ""))},
	{"a set with NUL in a name", "g" + be(30), soundSet(setOf("k\x00"))},
	{"a set with too long a name", "g" + be(30), soundSet(setOf(strings.Repeat("k", MaxName+1)))},
	{"a set with a name twice", "g" + be(30), soundSet(setOf("k", "k"))},
	{"a set with a name in both modes", "g" + be(30), soundSet(&wire.SetState{Names: []string{"k"}, Shared: []string{"k"}, Fences: []uint64{30}})},
	{"a set of a dead session", "g" + be(30), marshalled(&wire.SetState{Session: []byte(unknown), Names: []string{"k"}})},
	{"a set without a session", "g" + be(30), marshalled(setOf("k"))},
	{"a set without a fence", "g" + be(0), soundSet(setOf("k"))},
	{"a set with a fence never granted", "g" + be(41), soundSet(setOf("k"))},
	{"a set with the fence of a lock", "g" + be(1), soundSet(setOf("k"))},
	{"a set with the fence of permits", "g" + be(3), soundSet(setOf("k"))},
	{"a set with the number of a share", "g" + be(11), soundSet(setOf("k"))},
	{"a set with the number of a share of another set", "g" + be(21), soundSet(setOf("k"))},
	{"a set with a share that has the fence of another set", "g" + be(26), soundSet(&wire.SetState{Shared: []string{"k"}, Fences: []uint64{26}})},
	{"a set with a share that has the number of another", "g" + be(24), soundSet(&wire.SetState{Shared: []string{"k"}, Fences: []uint64{24}})},
	{"a set with a share without a number", "g" + be(1), soundSet(&wire.SetState{Shared: []string{"k"}, Fences: []uint64{1}})},
	{"a set without the fence of a phase", "g" + be(30), soundSet(&wire.SetState{Shared: []string{"k"}})},
	{"a set with too many phases", "g" + be(30), soundSet(&wire.SetState{Names: []string{"k"}, Fences: []uint64{30}})},
	{"a set with a phase that never began", "g" + be(30), soundSet(&wire.SetState{Shared: []string{"k"}, Fences: []uint64{0}})},
	{"a set with a later phase", "g" + be(30), soundSet(&wire.SetState{Shared: []string{"k"}, Fences: []uint64{31}})},
	{"a set with a phase of its own number", "g" + be(30), soundSet(&wire.SetState{Shared: []string{"k"}, Fences: []uint64{29}})},
	{"a set with another phase than that of the lock", "g" + be(30), soundSet(&wire.SetState{Shared: []string{"r"}, Fences: []uint64{12}})},
	{"a set with a phase that has the fence of a lock", "g" + be(30), soundSet(&wire.SetState{Shared: []string{"k"}, Fences: []uint64{1}})},
	{"a set with a phase that has the fence of permits", "g" + be(30), soundSet(&wire.SetState{Shared: []string{"k"}, Fences: []uint64{3}})},
	{"a set with a lock that has an owner", "g" + be(30), soundSet(setOf("x"))},
	{"a set with a share of such a lock", "g" + be(30), soundSet(&wire.SetState{Shared: []string{"x"}, Fences: []uint64{30}})},
	{"a set with a lock in its lock-delay", "g" + be(30), soundSet(setOf("y"))},
	{"a set with a share of such a lock, too", "g" + be(30), soundSet(&wire.SetState{Shared: []string{"y"}, Fences: []uint64{30}})},
	{"a set with a lock that is held shared", "g" + be(30), soundSet(setOf("r"))},
	{"a set with a lock of another set", "g" + be(30), soundSet(setOf("a"))},
	{"a set with a lock that another one has a share of", "g" + be(30), soundSet(setOf("b"))},
	{"a set with a share of a lock of another set", "g" + be(30), soundSet(&wire.SetState{Shared: []string{"a"}, Fences: []uint64{30}})},
	{"a set with half a ticket", "g" + be(30), soundSet(&wire.SetState{Names: []string{"k"}, Seq: 20})},
	{"a set with the ticket of another", "g" + be(30), soundSet(&wire.SetState{Names: []string{"k"}, Incarnation: []byte(soundInc), Seq: 13})},
	{"a set since a later time", "g" + be(30), soundSet(&wire.SetState{Names: []string{"k"}, Since: 6 * second})},
	{"a set with too long a label", "g" + be(30), soundSet(&wire.SetState{Names: []string{"k"}, Label: strings.Repeat("x", MaxLabel+1)})},
	{"a set that ends too late", "g" + be(30), soundSet(&wire.SetState{Names: []string{"k"}, Ends: 6*second + MaxMaxHold})},
	{"a set that was requested in the future", "g" + be(30), soundSet(&wire.SetState{Names: []string{"k"}, Ends: 9 * second, Requested: 6 * second})},
	{"a lock that a set has as well", "la", marshalled(&wire.LockState{Session: []byte(soundSession), Holds: 1, Fence: 30})},
	{"a lock-delay of a lock that a set has", "la", marshalled(&wire.LockState{DelayUntil: 9 * second})},
	{"a share of a lock that a set has", "ha\x00" + be(30), soundShare(&wire.ShareState{Holds: 1, Fence: 30})},
	{"a share with the number of one of a set", "hk\x00" + be(21), soundShare(&wire.ShareState{Holds: 1, Fence: 21})},
	{"a share with the fence of a set as its number", "hk\x00" + be(22), soundShare(&wire.ShareState{Holds: 1, Fence: 22})},
	{"a share with another phase than that of a set", "hb\x00" + be(24), soundShare(&wire.ShareState{Holds: 1, Fence: 24})},
}

var violationsOfWaitingSets = []stateRow{
	{"a waiting set under a longer key", "v" + be(20) + "x", soundSetWaiter(20, awaited("a"))},
	{"a waiting set under a shorter key", "v2", soundSetWaiter(20, awaited("a"))},
	{"a waiting set without names", "v" + be(20), soundSetWaiter(20, awaited())},
	{"a waiting set of too many names", "v" + be(20), soundSetWaiter(20, awaited(tooManyNames()...))},
	{"a waiting set with a name twice", "v" + be(20), soundSetWaiter(20, awaited("a", "a"))},
	{"a waiting set without a position", "v" + be(0), soundSetWaiter(20, awaited("a"))},
	{"a waiting set with a position never drawn", "v" + be(31), soundSetWaiter(20, awaited("a"))},
	{"a waiting set with the position of a waiter", "v" + be(14), soundSetWaiter(20, awaited("a"))},
	{"a waiter with the position of a waiting set", "wla\x00" + be(13), soundWaiter(&wire.WaiterState{})},
	{"a waiting set of a dead session", "v" + be(20), marshalled(&wire.SetWaiterState{Session: []byte(unknown), Incarnation: []byte(soundInc), Seq: 20, Names: []string{"a"}})},
	{"a waiting set without a ticket", "v" + be(20), marshalled(&wire.SetWaiterState{Session: []byte(soundSession), Names: []string{"a"}})},
	{"a waiting set of an ended process", "v" + be(20), marshalled(&wire.SetWaiterState{Session: []byte(soundSession), Incarnation: []byte(unknown), Seq: 20, Names: []string{"a"}})},
	{"a waiting set with the ticket of another", "v" + be(20), soundSetWaiter(14, awaited("a"))},
	{"a waiting set since a later time", "v" + be(20), soundSetWaiter(20, &wire.SetWaiterState{Names: []string{"a"}, Since: 6 * second})},
	{"a waiting set with too long a label", "v" + be(20), soundSetWaiter(20, &wire.SetWaiterState{Names: []string{"a"}, Label: strings.Repeat("x", MaxLabel+1)})},
	{"a waiting set for too short a time", "v" + be(20), soundSetWaiter(20, &wire.SetWaiterState{Names: []string{"a"}, MaxHold: MinMaxHold - 1})},
	{"a waiting set for too long a time", "v" + be(20), soundSetWaiter(20, &wire.SetWaiterState{Names: []string{"a"}, MaxHold: MaxMaxHold + 1})},
	{"a waiting set that refuses deadlocks below that level", "v" + be(20), soundSetWaiter(20, &wire.SetWaiterState{Names: []string{"a"}, RefuseDeadlock: true})},
	{"a waiting set whose names are free", "v" + be(20), soundSetWaiter(20, awaited("k"))},
	{"a waiting set for a share that is free", "v" + be(20), soundSetWaiter(20, &wire.SetWaiterState{Shared: []string{"b", "k"}})},
	{"a waiting set before a reservation that is younger", "v" + be(11), soundSetWaiter(20, awaited("e"))},
	{"an exclusive waiter before such a one", "wle\x00" + be(11), soundWaiter(&wire.WaiterState{})},
	{"an exclusive waiter for what only sets without a reservation await", "wlf\x00" + be(15), soundWaiter(&wire.WaiterState{})},

	{"a reservation of no set", "q" + be(20), marshalled(&wire.PassedState{Times: 1})},
	{"a set that was passed over no times", "q" + be(13), marshalled(&wire.PassedState{})},
	{"a set that was passed over too often", "q" + be(13), marshalled(&wire.PassedState{Times: MaxPassed + 1})},
	{"a reservation under a longer key", "q" + be(13) + "x", marshalled(&wire.PassedState{Times: 1})},
}

func TestLoad_AcceptsBoundsOfSets(t *testing.T) {
	for _, row := range []stateRow{
		{"as it is", "m", machineAt(wire.LevelSets)},
		{"the last fence granted", "g" + be(40), soundSet(&wire.SetState{Names: []string{"k"}, Shared: []string{"l"}, Fences: []uint64{40}})},
		{"a set whose phase another one began that has ended", "g" + be(30), soundSet(&wire.SetState{Shared: []string{"k"}, Fences: []uint64{28}})},
		{"two phases that an ended set began", "g" + be(30), soundSet(&wire.SetState{Shared: []string{"k", "l"}, Fences: []uint64{27, 27}})},
		{"a set beside delayed shares alone", "hk\x00" + be(30), marshalled(&wire.ShareState{DelayUntil: 9 * second})},
		{"a set that joins a phase of a set", "g" + be(30), soundSet(&wire.SetState{Shared: []string{"b"}, Fences: []uint64{22}})},
		{"a set that has ended by its time and is to be released", "g" + be(30), soundSet(&wire.SetState{Names: []string{"k"}, Ends: 2 * second, Requested: second})},
		{"a waiter for a lock of a set", "wla\x00" + be(20), soundWaiter(&wire.WaiterState{Shared: true})},
		{"a waiter for a share of what is reserved", "wle\x00" + be(20), soundWaiter(&wire.WaiterState{Shared: true})},
		{"a waiter for a share that the next entry grants, and sets behind it", "wlf\x00" + be(10), soundWaiter(&wire.WaiterState{Shared: true})},
		{"a waiting set in the last position", "v" + be(30), soundSetWaiter(20, &wire.SetWaiterState{Shared: []string{"e", "k"}, MaxHold: MaxMaxHold})},
		{"a set that was passed over", "q" + be(13), marshalled(&wire.PassedState{Times: 1})},
		{"two reservations", "q" + be(13), marshalled(&wire.PassedState{Times: MaxPassed})},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := setDisk()
			d[row.key] = row.value
			checkLoad(t, d, "")
		})
	}
}

// What is damaged at its end, or comes twice, is refused.
func TestLoad_DamagedSets(t *testing.T) {
	for key := range setDisk() {
		if !strings.ContainsRune("gvq", rune(key[0])) {
			continue
		}
		d := setDisk()
		d[key] = append(d[key], 0xff)
		if m, err := Load(d.pairs()); !errors.Is(err, ErrCorrupt) || m != nil {
			t.Errorf("Load with %q damaged: %v", key, err)
		}
		twice := func(yield func(k, v []byte) bool) {
			for k, v := range setDisk().pairs() {
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
