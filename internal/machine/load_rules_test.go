package machine

import (
	"errors"
	"iter"
	"strings"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

const (
	roomyOther = "oooooooooooooooo" // an incarnation of member 2
	unknown    = "nnnnnnnnnnnnnnnn"
)

// roomyDisk is soundDisk with room for more: fences 5 and 6, the queue places 4
// and 5, and the key changes 8 and 9 were granted and are not in use, nothing
// has taken permits of y, and there is a second member. So a row below that
// breaks one rule breaks no other.
func roomyDisk() disk {
	d := soundDisk()
	d["m"] = marshalled(&wire.MachineState{Version: 1, FeatureLevel: 1, Now: 1, Fences: 6, Positions: 5, Changes: 9})
	d["M"+be(2)] = marshalled(&wire.MemberState{Incarnation: []byte(roomyOther), Token: []byte(roomyOther)})
	d["i"+roomyOther] = marshalled(&wire.IncarnationState{Member: 2, Ttl: second})
	inc, session := []byte(soundInc), []byte(soundSession)
	d["lx"] = marshalled(&wire.LockState{Session: session, Holds: 1, Fence: 1, Incarnation: inc, Seq: 8})
	d["ex"] = marshalled(&wire.LockState{Session: session, Holds: 4, Fence: 2, Value: []byte("v"), Incarnation: inc, Seq: 6})
	d["ky"] = marshalled(&wire.KeyState{CreateIndex: 5, ModifyIndex: 5})
	return d
}

// stateRow is one pair to be added to a stored state.
type stateRow struct {
	name, key string
	value     []byte
}

// timedSession encodes a session of the sound state's process.
func timedSession(st *wire.SessionState) []byte {
	st.Incarnation, st.Member = []byte(soundInc), 1
	return marshalled(st)
}

// soundWaiter encodes a waiter of the sound state's session.
func soundWaiter(st *wire.WaiterState) []byte {
	st.Session, st.Seq = []byte(soundSession), 5
	if st.Incarnation == nil {
		st.Incarnation = []byte(soundInc)
	}
	return marshalled(st)
}

// Each violation on its own, in a state that keeps all other rules.
func TestLoad_RefusesEachViolation(t *testing.T) {
	for _, row := range violations {
		t.Run(row.name, func(t *testing.T) {
			d := roomyDisk()
			d[row.key] = row.value
			if m, err := Load(d.pairs()); !errors.Is(err, ErrCorrupt) || m != nil {
				t.Errorf("Load: %v", err)
			}
		})
	}
}

var violations = []stateRow{
	{"the machine under a longer key", "mm", roomyDisk()["m"]},
	{"a member under a longer key", "M" + be(2) + "x", marshalled(&wire.MemberState{Incarnation: []byte(unknown), Token: []byte(unknown)})},
	{"a member without a token", "M" + be(2), marshalled(&wire.MemberState{Incarnation: []byte(roomyOther)})},
	{"a member with a short key of its own", "M" + be(2), marshalled(&wire.MemberState{Incarnation: []byte(roomyOther), Token: []byte(roomyOther), Key: []byte{1}})},
	{"a member under a shorter key", "M2", marshalled(&wire.MemberState{Incarnation: []byte(unknown), Token: []byte(unknown)})},
	{"a crashed process below its level", "M" + be(2), marshalled(&wire.MemberState{Incarnation: []byte(unknown), Token: []byte(unknown), Crashed: true})},

	{"a check refreshed before the beginning", "c" + be(1) + "ok", marshalled(&wire.CheckRecord{Ttl: second, Refreshed: -1})},
	{"a check with too short a TTL", "c" + be(1) + "ok", marshalled(&wire.CheckRecord{Ttl: MinTTL - 1})},
	{"a check with too long a TTL", "c" + be(1) + "ok", marshalled(&wire.CheckRecord{Ttl: MaxTTL + 1})},
	{"a check that is in no state", "c" + be(1) + "ok", marshalled(&wire.CheckRecord{Ttl: second, State: -1})},
	{"a check for a client, below its level", "c" + be(1) + "ok", marshalled(&wire.CheckRecord{Ttl: second, ForClient: true})},
	{"a check with the name of the built-in one", "c" + be(1) + "gossip", marshalled(&wire.CheckRecord{Ttl: second})},

	{"an incarnation of an unknown member", "i" + unknown, marshalled(&wire.IncarnationState{Member: 3, Ttl: second})},
	{"an incarnation with too short a TTL", "i" + unknown, marshalled(&wire.IncarnationState{Member: 2, Ttl: MinTTL - 1})},
	{"an incarnation with too long a TTL", "i" + unknown, marshalled(&wire.IncarnationState{Member: 2, Ttl: MaxTTL + 1})},
	{"an incarnation renewed before the beginning", "i" + unknown, marshalled(&wire.IncarnationState{Member: 2, Ttl: second, Renewed: -1})},
	{"an incarnation barred below its level", "i" + unknown, marshalled(&wire.IncarnationState{Member: 2, Ttl: second, Barred: 1})},
	{"an incarnation barred up to its floor", "i" + unknown, marshalled(&wire.IncarnationState{Member: 2, Ttl: second, Floor: 2, Barred: 2})},
	{"an incarnation under a shorter key", "i" + unknown[1:], marshalled(&wire.IncarnationState{Member: 2, Ttl: second})},

	{"a session under a shorter key", "s" + unknown[1:], timedSession(&wire.SessionState{Ttl: second})},
	{"a session of an unknown member", "s" + unknown, marshalled(&wire.SessionState{Member: 3})},
	{"a session of another member than its process", "s" + unknown, marshalled(&wire.SessionState{Incarnation: []byte(soundInc), Member: 2, Ttl: second})},
	{"a session of an unknown process", "s" + unknown, marshalled(&wire.SessionState{Incarnation: []byte(unknown), Member: 1, Ttl: second})},
	{"an unbound session with a TTL", "s" + unknown, marshalled(&wire.SessionState{Member: 1, Ttl: second})},
	{"a session with too short a TTL", "s" + unknown, timedSession(&wire.SessionState{Ttl: MinTTL - 1})},
	{"a session with too long a TTL", "s" + unknown, timedSession(&wire.SessionState{Ttl: MaxTTL + 1})},
	{"a session with a lock-delay below 0", "s" + unknown, timedSession(&wire.SessionState{Ttl: second, LockDelay: -1})},
	{"a session with too long a lock-delay", "s" + unknown, timedSession(&wire.SessionState{Ttl: second, LockDelay: MaxLockDelay + 1})},
	{"a session with a TTL that was attached", "s" + unknown, timedSession(&wire.SessionState{Ttl: second, Attached: 1})},
	{"a session attached after a fence never granted", "s" + unknown, marshalled(&wire.SessionState{Member: 1, Attached: 7})},
	{"a session on too many checks", "s" + unknown, timedSession(&wire.SessionState{Ttl: second, Checks: make([]string, MaxSessionChecks+1)})},

	{"a lock without a name", "l", marshalled(&wire.LockState{DelayUntil: 5})},
	{"a free lock with a hold", "lz", marshalled(&wire.LockState{DelayUntil: 5, Holds: 1})},
	{"a lock held no times", "lz", marshalled(&wire.LockState{Session: []byte(soundSession), Fence: 5})},
	{"a delayed lock with a fence", "lz", marshalled(&wire.LockState{DelayUntil: 5, Fence: 5})},
	{"a delayed lock with a handle", "lz", marshalled(&wire.LockState{DelayUntil: 5, Handle: 1})},
	{"a delayed lock with a ticket", "lz", marshalled(&wire.LockState{DelayUntil: 5, Incarnation: []byte(soundInc), Seq: 5})},
	{"a delayed election with a value", "ez", marshalled(&wire.LockState{DelayUntil: 5, Value: []byte("v")})},
	{"a lock with half a ticket", "lz", marshalled(&wire.LockState{Session: []byte(soundSession), Holds: 1, Fence: 5, Seq: 5})},
	{"a lock of a dead session", "lz", marshalled(&wire.LockState{Session: []byte(unknown), Holds: 1, Fence: 5})},
	{"a lock without a fence", "lz", marshalled(&wire.LockState{Session: []byte(soundSession), Holds: 1})},
	{"a lock with a fence never granted", "lz", marshalled(&wire.LockState{Session: []byte(soundSession), Holds: 1, Fence: 7})},
	{"a lock with the fence of an election", "lz", marshalled(&wire.LockState{Session: []byte(soundSession), Holds: 1, Fence: 2})},

	{"a lock with the ticket of another", "lz", marshalled(&wire.LockState{Session: []byte(soundSession), Holds: 1, Fence: 5, Incarnation: []byte(soundInc), Seq: 4})},

	{"a semaphore without a limit", "Sz", marshalled(&wire.SemaphoreState{Resized: true})},
	{"a semaphore with too large a limit", "Sz", marshalled(&wire.SemaphoreState{Resized: true, Limit: MaxPermits + 1})},
	{"permits of no semaphore", "pz\x00" + be(5), marshalled(&wire.PermitState{Session: []byte(soundSession), Permits: 1})},
	{"permits of a dead session", "py\x00" + be(5), marshalled(&wire.PermitState{Session: []byte(unknown), Permits: 1})},
	{"permits under a key without NUL", "py!" + be(5), marshalled(&wire.PermitState{Session: []byte(soundSession), Permits: 1})},
	{"permits with half a ticket", "py\x00" + be(5), marshalled(&wire.PermitState{Session: []byte(soundSession), Permits: 1, Seq: 5})},
	{"an acquisition of nothing", "py\x00" + be(5), marshalled(&wire.PermitState{Session: []byte(soundSession)})},
	{"permits neither held nor delayed", "py\x00" + be(5), marshalled(&wire.PermitState{Permits: 1})},
	{"permits held and delayed", "py\x00" + be(5), marshalled(&wire.PermitState{Session: []byte(soundSession), Permits: 1, DelayUntil: 5})},
	{"delayed permits with a ticket", "py\x00" + be(5), marshalled(&wire.PermitState{Permits: 1, DelayUntil: 5, Incarnation: []byte(soundInc), Seq: 5})},
	{"permits without a fence", "py\x00" + be(0), marshalled(&wire.PermitState{Session: []byte(soundSession), Permits: 1})},
	{"permits with a fence never granted", "py\x00" + be(7), marshalled(&wire.PermitState{Session: []byte(soundSession), Permits: 1})},
	{"permits with the fence of a lock", "py\x00" + be(1), marshalled(&wire.PermitState{Session: []byte(soundSession), Permits: 1})},
	{"permits with the fence of an election", "py\x00" + be(2), marshalled(&wire.PermitState{Session: []byte(soundSession), Permits: 1})},
	{"permits with the fence of other permits", "py\x00" + be(3), marshalled(&wire.PermitState{Session: []byte(soundSession), Permits: 1})},

	{"a waiter for nothing", "w\x00" + be(4), soundWaiter(&wire.WaiterState{})},
	{"a waiter under a key without NUL", "wlx!" + be(4), soundWaiter(&wire.WaiterState{})},
	{"a waiter for no lock", "wlz\x00" + be(4), soundWaiter(&wire.WaiterState{})},
	{"a waiter for no election", "wez\x00" + be(4), soundWaiter(&wire.WaiterState{})},
	{"a waiter for no semaphore", "wSz\x00" + be(4), soundWaiter(&wire.WaiterState{Permits: 1})},
	{"a waiter for a key", "wkx\x00" + be(4), soundWaiter(&wire.WaiterState{})},
	{"a waiter of a dead session", "wlx\x00" + be(4), marshalled(&wire.WaiterState{Session: []byte(unknown), Incarnation: []byte(soundInc), Seq: 5})},
	{"a waiter of an unknown process", "wlx\x00" + be(4), soundWaiter(&wire.WaiterState{Incarnation: []byte(unknown)})},
	{"a waiter for no permits", "wSx\x00" + be(4), soundWaiter(&wire.WaiterState{})},
	{"a waiter for more than the limit", "wSx\x00" + be(4), soundWaiter(&wire.WaiterState{Permits: 4})},
	{"a waiter for what is free", "Sx", marshalled(&wire.SemaphoreState{Limit: 5, Resized: true})},
	{"a waiter at a place never granted", "wlx\x00" + be(6), soundWaiter(&wire.WaiterState{})},
	{"a waiter at the place of another", "wly\x00" + be(2), soundWaiter(&wire.WaiterState{})},
	{"a waiter with the ticket of another", "wlx\x00" + be(4), marshalled(&wire.WaiterState{Session: []byte(soundSession), Incarnation: []byte(soundInc), Seq: 4})},

	{"a key whose change was never granted", "kz", marshalled(&wire.KeyState{CreateIndex: 8, ModifyIndex: 10})},
	{"a key that was created after it was changed", "kz", marshalled(&wire.KeyState{CreateIndex: 9, ModifyIndex: 8})},
	{"a key that was never created", "kz", marshalled(&wire.KeyState{ModifyIndex: 8})},
	{"a key of a dead session", "kz", marshalled(&wire.KeyState{CreateIndex: 8, ModifyIndex: 8, LockIndex: 1, Session: []byte(unknown)})},
	{"a key locked without a lock index", "kz", marshalled(&wire.KeyState{CreateIndex: 8, ModifyIndex: 8, Session: []byte(soundSession)})},
	{"a key locked under a delay", "ky", marshalled(&wire.KeyState{CreateIndex: 8, ModifyIndex: 8, LockIndex: 1, Session: []byte(soundSession)})},
	{"a key with half a session", "kz", marshalled(&wire.KeyState{CreateIndex: 8, ModifyIndex: 8, LockIndex: 1, Session: []byte("s")})},
	{"a key with the index of another", "kz", marshalled(&wire.KeyState{CreateIndex: 7, ModifyIndex: 7})},

	{"a key-delay without an end", "dz", marshalled(&wire.KeyDelayState{})},
	{"a key-delay that ended before the beginning", "dz", marshalled(&wire.KeyDelayState{Until: -1})},

	{"a ticket of an unknown incarnation", "t" + unknown + be(5), marshalled(&wire.Reply{})},
	{"a ticket at the floor", "t" + soundInc + be(1), marshalled(&wire.Reply{})},
	{"a ticket too far above the floor", "t" + soundInc + be(1+MaxInFlight+1), marshalled(&wire.Reply{})},
	{"a ticket under a longer key", "t" + soundInc + be(5) + "x", marshalled(&wire.Reply{})},
}

// checkLoad wants a stored state loaded as it is, or refused as corrupt with an error that contains refusal. It reports
// whether it was loaded.
func checkLoad(t *testing.T, d disk, refusal string) (loaded bool) {
	t.Helper()
	m, err := Load(d.pairs())
	if refusal != "" {
		if m != nil || !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), refusal) {
			t.Errorf("Load: %v, want %q", err, refusal)
		}
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := audit(m); err != nil || !d.equal(dump(m)) {
		t.Errorf("another state was loaded than was stored: %v", err)
	}
	return true
}

// What is just within the rules is loaded, and as it was.
func TestLoad_AcceptsBounds(t *testing.T) {
	for _, row := range bounds {
		t.Run(row.name, func(t *testing.T) {
			d := roomyDisk()
			d[row.key] = row.value
			checkLoad(t, d, "")
		})
	}
}

var bounds = []stateRow{
	{"as it is", "m", roomyDisk()["m"]},
	{"the last fence", "m", marshalled(&wire.MachineState{Version: 1, FeatureLevel: 1, Fences: maxFences, Positions: 5, Changes: 9})},
	{"the last epoch", "m", marshalled(&wire.MachineState{Version: 1, FeatureLevel: 1, Epoch: maxEpoch, Fences: 6, Positions: 5, Changes: 9})},
	{"a check with a name of one byte", "c" + be(1) + "x", marshalled(&wire.CheckRecord{Ttl: MinTTL})},
	{"a check with the longest TTL", "c" + be(1) + "x", marshalled(&wire.CheckRecord{Ttl: MaxTTL, State: wire.CheckState_CRITICAL})},
	{"an incarnation with the shortest TTL", "i" + unknown, marshalled(&wire.IncarnationState{Member: 2, Ttl: MinTTL})},
	{"an incarnation with the longest TTL", "i" + unknown, marshalled(&wire.IncarnationState{Member: 2, Ttl: MaxTTL})},
	{"a session with the shortest TTL", "s" + unknown, marshalled(&wire.SessionState{Incarnation: []byte(soundInc), Member: 1, Ttl: MinTTL})},
	{"a session with the longest TTL", "s" + unknown, marshalled(&wire.SessionState{Incarnation: []byte(soundInc), Member: 1, Ttl: MaxTTL})},
	{"a session attached after the last fence", "s" + unknown, marshalled(&wire.SessionState{Member: 1, Attached: 6})},
	{"an unbound session", "s" + unknown, marshalled(&wire.SessionState{Member: 1, LockDelay: MaxLockDelay, Checks: make([]string, MaxSessionChecks)})},
	{"the last fence granted, of a lock", "lz", marshalled(&wire.LockState{Session: []byte(soundSession), Holds: MaxHolds, Fence: 6, Incarnation: []byte(soundInc), Seq: 5})},
	{"a lock whose delay ends at once", "lz", marshalled(&wire.LockState{DelayUntil: 1})},
	{"the last fence granted, of permits", "py\x00" + be(6), marshalled(&wire.PermitState{Session: []byte(soundSession), Permits: 1})},
	{"more permits than a limit that was made smaller", "py\x00" + be(6), marshalled(&wire.PermitState{Session: []byte(soundSession), Permits: 4})},
	{"a large limit", "Sz", marshalled(&wire.SemaphoreState{Limit: MaxPermits, Resized: true})},
	{"a small limit", "Sz", marshalled(&wire.SemaphoreState{Limit: 1, Resized: true})},
	{"the last place granted", "wlx\x00" + be(5), marshalled(&wire.WaiterState{Session: []byte(soundSession), Incarnation: []byte(roomyOther), Seq: 2})},
	{"a waiter for as much as the limit", "wSx\x00" + be(5), marshalled(&wire.WaiterState{Session: []byte(soundSession), Incarnation: []byte(soundInc), Seq: 5, Permits: 3})},
	{"a key whose lock-delay ends at once", "dz", marshalled(&wire.KeyDelayState{Until: 1})},
	{"the last change", "kz", marshalled(&wire.KeyState{CreateIndex: 9, ModifyIndex: 9, LockIndex: 1, Session: []byte(soundSession)})},
	{"the ticket next to the floor", "t" + roomyOther + be(1), marshalled(&wire.Reply{})},
	{"the ticket farthest from the floor", "t" + soundInc + be(1+MaxInFlight), marshalled(&wire.Reply{})},
}

// A value that is damaged only at its end has been read for the most part when
// that shows.
func TestLoad_TrailingGarbage(t *testing.T) {
	for key := range roomyDisk() {
		d := roomyDisk()
		d[key] = append(d[key], 0xff)
		if m, err := Load(d.pairs()); !errors.Is(err, ErrCorrupt) || m != nil {
			t.Errorf("Load with %q damaged: %v", key, err)
		}
	}
}

// A state without the record of the machine itself is refused whatever else it
// has, also where that depends on nothing of it.
func TestLoad_MachineRecordMissing(t *testing.T) {
	for _, d := range []disk{
		{"dy": marshalled(&wire.KeyDelayState{Until: 5})},
		{"dy": marshalled(&wire.KeyDelayState{Until: 5}), "Sy": marshalled(&wire.SemaphoreState{Limit: 3, Resized: true})},
	} {
		if m, err := Load(d.pairs()); !errors.Is(err, ErrCorrupt) || m != nil {
			t.Errorf("Load of %d pairs: %v", len(d), err)
		}
	}
}

// What comes twice would be counted twice, or have two of what there is one.
// Storage yields no key twice; of the machine's record, checks and tickets Load
// does not look.
func TestLoad_DuplicateKeys(t *testing.T) {
	for twice := range roomyDisk() {
		if strings.ContainsRune("mct", rune(twice[0])) {
			continue
		}
		var pairs iter.Seq2[[]byte, []byte] = func(yield func(k, v []byte) bool) {
			for k, v := range roomyDisk().pairs() {
				if !yield(k, v) || string(k) == twice && !yield(k, v) {
					return
				}
			}
		}
		if m, err := Load(pairs); !errors.Is(err, ErrCorrupt) || m != nil {
			t.Errorf("Load with %q twice: %v", twice, err)
		}
	}
}
