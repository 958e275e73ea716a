package machine

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// What no machine can have written is refused, and so is what a later version
// wrote, even where it also holds keys that this one does not know.
func TestLoad_Refuses(t *testing.T) {
	if _, err := Load(soundDisk().pairs()); err != nil {
		t.Fatal("the sound state is refused:", err)
	}
	if m, err := Load(disk{}.pairs()); err != nil || m.Now() != 0 {
		t.Fatal("nothing at all is not the first state:", err)
	}
	tests := unsound
	for _, key := range []string{"m", "i" + soundInc, "s" + soundSession, "lx", "wlx\x00" + be(1), "t" + soundInc + be(2), "M" + be(1),
		"c" + be(1) + "ok", "ex", "Sx", "px\x00" + be(3), "kx", "dy"} {
		tests = append(tests, unsoundRow{"garbage under " + key[:1], key, []byte{0xff}, ErrCorrupt})
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := soundDisk()
			delete(d, test.key)
			if test.with != nil {
				d[test.key] = test.with
			}
			m, err := Load(d.pairs())
			if !errors.Is(err, test.want) || m != nil {
				t.Errorf("Load: %v, want %v", err, test.want)
			}
		})
	}
	newer := soundDisk()
	newer["m"] = marshalled(&wire.MachineState{Version: 7})
	newer["k/of/a/later/version"] = []byte{0xff}
	if _, err := Load(newer.pairs()); !errors.Is(err, ErrNewer) {
		t.Errorf("Load of a later version: %v", err)
	}
}

// A state of a higher feature level than the build supports is refused as a later build's,
// also where it holds pairs that this one does not know. A build that supports it loads it.
func TestLoad_LevelBeyondBuild(t *testing.T) {
	d := soundDisk()
	d["m"] = marshalled(&wire.MachineState{Version: 1, FeatureLevel: 2, Fences: 4, Positions: 3, Changes: 7})
	m, err := LoadAt(d.pairs(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if agreed, supported := m.Level(); agreed != 2 || supported != 2 {
		t.Errorf("at level %d of %d", agreed, supported)
	}
	for range 2 {
		if m, err := LoadAt(d.pairs(), 1); !errors.Is(err, ErrNewer) || m != nil {
			t.Errorf("loaded by an older build: %v", err)
		}
		d["k/of/that/level"] = []byte{0xff}
	}
}

// unsoundRow replaces one pair of soundDisk.
type unsoundRow struct {
	name string
	key  string
	with []byte // nil: the key is missing
	want error
}

var unsound = []unsoundRow{
	{"no record of the machine", "m", nil, ErrCorrupt},
	{"no version", "m", marshalled(&wire.MachineState{Fences: 4, Positions: 3, Changes: 7}), ErrCorrupt},
	{"a later version", "m", marshalled(&wire.MachineState{Version: 2}), ErrNewer},
	{"too many fences", "m", marshalled(&wire.MachineState{Version: 1, FeatureLevel: 1, Fences: 1 << 48, Positions: 3, Changes: 7}), ErrCorrupt},
	{"too high an epoch", "m", marshalled(&wire.MachineState{Version: 1, FeatureLevel: 1, Epoch: 1 << 16, Fences: 4, Positions: 3, Changes: 7}), ErrCorrupt},
	{"time before the beginning", "m", marshalled(&wire.MachineState{Version: 1, FeatureLevel: 1, Now: -1, Fences: 4, Positions: 3, Changes: 7}), ErrCorrupt},
	{"a fence not granted", "m", marshalled(&wire.MachineState{Version: 1, FeatureLevel: 1, Positions: 3, Changes: 7}), ErrCorrupt},
	{"a position not granted", "m", marshalled(&wire.MachineState{Version: 1, FeatureLevel: 1, Fences: 4, Changes: 7}), ErrCorrupt},
	{"the machine under a longer key", "mm", marshalled(&wire.MachineState{Version: 1}), ErrCorrupt},
	{"an empty key", "", []byte{0xff}, ErrCorrupt},
	{"an unknown kind", "zz", []byte{0xff}, ErrCorrupt},
	{"no incarnation", "i" + soundInc, nil, ErrCorrupt},
	{"an incarnation without TTL", "i" + soundInc, marshalled(&wire.IncarnationState{Member: 1, Floor: 1}), ErrCorrupt},
	{"an incarnation of another member", "i" + soundInc, marshalled(&wire.IncarnationState{Member: 2, Ttl: second, Floor: 1}), ErrCorrupt},
	{"a ticket at the floor", "i" + soundInc, marshalled(&wire.IncarnationState{Member: 1, Ttl: second, Floor: 2}), ErrCorrupt},
	{"a short incarnation", "i", marshalled(&wire.IncarnationState{Member: 1, Ttl: second}), ErrCorrupt},
	{"no session", "s" + soundSession, nil, ErrCorrupt},
	{"a session with a TTL that is none", "s" + soundSession, marshalled(&wire.SessionState{Incarnation: []byte(soundInc), Member: 1, Ttl: -1}), ErrCorrupt},
	{"a session without a member", "s" + soundSession, marshalled(&wire.SessionState{Ttl: second}), ErrCorrupt},
	{"a short session", "s1", marshalled(&wire.SessionState{Ttl: second}), ErrCorrupt},
	{"no lock to wait for", "lx", nil, ErrCorrupt},
	{"an idle lock", "ly", marshalled(&wire.LockState{}), ErrCorrupt},
	{"a lock held and delayed", "lx", marshalled(&wire.LockState{Session: []byte(soundSession), Holds: 1, Fence: 1, DelayUntil: 1}), ErrCorrupt},
	{"a lock of a dead session", "lx", marshalled(&wire.LockState{Session: []byte(soundInc), Holds: 1, Fence: 1}), ErrCorrupt},
	{"a fence granted twice", "lz", marshalled(&wire.LockState{Session: []byte(soundSession), Holds: 1, Fence: 1}), ErrCorrupt},
	{"a lock with half a ticket", "lx", marshalled(&wire.LockState{Session: []byte(soundSession), Holds: 1, Fence: 1, Seq: 4}), ErrCorrupt},
	{"a waiter without position", "wlx", marshalled(&wire.WaiterState{}), ErrCorrupt},
	{"a ticket queued twice", "wlx\x00" + be(0), marshalled(&wire.WaiterState{Session: []byte(soundSession), Incarnation: []byte(soundInc), Seq: 2}), ErrCorrupt},
	{"a waiter of a dead session", "wlx\x00" + be(1), marshalled(&wire.WaiterState{Incarnation: []byte(soundInc), Seq: 2}), ErrCorrupt},
	{"a position granted twice", "wly\x00" + be(1), marshalled(&wire.WaiterState{Session: []byte(soundSession), Incarnation: []byte(soundInc), Seq: 5}), ErrCorrupt},
	{"a ticket of an unknown incarnation", "t" + soundSession + be(2), marshalled(&wire.Reply{}), ErrCorrupt},
	{"a ticket too far ahead", "t" + soundInc + be(MaxInFlight+2), marshalled(&wire.Reply{}), ErrCorrupt},
	{"a short ticket", "t" + soundInc, marshalled(&wire.Reply{}), ErrCorrupt},
	{"a change not granted", "m", marshalled(&wire.MachineState{Version: 1, FeatureLevel: 1, Fences: 4, Positions: 3}), ErrCorrupt},
	{"an unknown behavior", "s" + soundSession, marshalled(&wire.SessionState{Incarnation: []byte(soundInc), Member: 1, Ttl: second, Behavior: 2}), ErrCorrupt},
	{"a check of an unknown member", "c" + be(2) + "ok", marshalled(&wire.CheckRecord{}), ErrCorrupt},
	{"a check without name", "c" + be(1), marshalled(&wire.CheckRecord{}), ErrCorrupt},
	{"a check with an unknown state", "c" + be(1) + "ok", marshalled(&wire.CheckRecord{State: 3}), ErrCorrupt},
	{"a check with a TTL that is none", "c" + be(1) + "ok", marshalled(&wire.CheckRecord{Ttl: 1}), ErrCorrupt},
	{"an idle election", "ey", marshalled(&wire.LockState{}), ErrCorrupt},
	{"a leadership of a dead session", "ex", marshalled(&wire.LockState{Session: []byte(soundInc), Holds: 1, Fence: 2}), ErrCorrupt},
	{"an election with the fence of a lock", "ex", marshalled(&wire.LockState{Session: []byte(soundSession), Holds: 1, Fence: 1}), ErrCorrupt},
	{"no semaphore to wait for", "Sx", nil, ErrCorrupt},
	{"a semaphore without limit", "Sx", marshalled(&wire.SemaphoreState{}), ErrCorrupt},
	{"too large a limit", "Sx", marshalled(&wire.SemaphoreState{Limit: MaxPermits + 1}), ErrCorrupt},
	{"an acquisition of nothing", "px\x00" + be(3), marshalled(&wire.PermitState{Session: []byte(soundSession)}), ErrCorrupt},
	{"an acquisition of a dead session", "px\x00" + be(3), marshalled(&wire.PermitState{Session: []byte(soundInc), Permits: 1}), ErrCorrupt},
	{"an acquisition that is delayed", "px\x00" + be(3), marshalled(&wire.PermitState{Session: []byte(soundSession), Permits: 1, DelayUntil: 5}), ErrCorrupt},
	{"a delayed permit without a delay", "px\x00" + be(4), marshalled(&wire.PermitState{Permits: 1}), ErrCorrupt},
	{"permits of no semaphore", "pz\x00" + be(4), marshalled(&wire.PermitState{Permits: 1, DelayUntil: 5}), ErrCorrupt},
	{"permits with half a ticket", "px\x00" + be(4), marshalled(&wire.PermitState{Permits: 1, DelayUntil: 5, Seq: 1}), ErrCorrupt},
	{"permits without fence", "px", marshalled(&wire.PermitState{Permits: 1, DelayUntil: 5}), ErrCorrupt},
	{"a fence of permits not granted", "px\x00" + be(5), marshalled(&wire.PermitState{Permits: 1, DelayUntil: 5}), ErrCorrupt},
	{"a key locked by a dead session", "kx", marshalled(&wire.KeyState{CreateIndex: 1, ModifyIndex: 1, LockIndex: 1, Session: []byte(soundInc)}), ErrCorrupt},
	{"a key with a short session", "kx", marshalled(&wire.KeyState{CreateIndex: 1, ModifyIndex: 1, LockIndex: 1, Session: []byte("s")}), ErrCorrupt},
	{"a key that was created after it was changed", "kx", marshalled(&wire.KeyState{CreateIndex: 3, ModifyIndex: 2}), ErrCorrupt},
	{"a lock with a value", "lx", marshalled(&wire.LockState{Session: []byte(soundSession), Holds: 1, Fence: 1, Value: []byte("v")}), ErrCorrupt},
	{"an idle semaphore", "Sz", marshalled(&wire.SemaphoreState{Limit: 1}), ErrCorrupt},
	{"a waiter for what is free", "wSx\x00" + be(3), marshalled(&wire.WaiterState{Session: []byte(soundSession), Incarnation: []byte(soundInc), Seq: 4}), ErrCorrupt},
	{"a waiter for more than the limit", "wSx\x00" + be(3), marshalled(&wire.WaiterState{Session: []byte(soundSession), Incarnation: []byte(soundInc), Seq: 4, Permits: 4}), ErrCorrupt},
	{"permits with the fence of a lock", "px\x00" + be(1), marshalled(&wire.PermitState{Permits: 1, DelayUntil: 5}), ErrCorrupt},
	{"a key that was never created", "kx", marshalled(&wire.KeyState{ModifyIndex: 1}), ErrCorrupt},
	{"an index granted twice", "kz", marshalled(&wire.KeyState{CreateIndex: 7, ModifyIndex: 7}), ErrCorrupt},
	{"a locked key without lock index", "kx", marshalled(&wire.KeyState{CreateIndex: 6, ModifyIndex: 7, Session: []byte(soundSession)}), ErrCorrupt},
	{"a locked key under a delay", "dx", marshalled(&wire.KeyDelayState{Until: 5}), ErrCorrupt},
	{"a key-delay without end", "dx", marshalled(&wire.KeyDelayState{}), ErrCorrupt},
	{"a member without incarnation", "M" + be(2), marshalled(&wire.MemberState{Token: []byte(soundInc)}), ErrCorrupt},
}

const (
	soundInc     = "iiiiiiiiiiiiiiii"
	soundSession = "ssssssssssssssss"
)

func marshalled(m proto.Message) []byte { return must(proto.Marshal(m)) }

// soundDisk is a state with something of each kind. Its fences are 1 to 4, its
// queue places 1 to 3.
func soundDisk() disk {
	value := marshalled
	inc, session := []byte(soundInc), []byte(soundSession)
	return disk{
		"m":                value(&wire.MachineState{Version: 1, FeatureLevel: 1, Now: 1, Fences: 4, Positions: 3, Changes: 7}),
		"M" + be(1):        value(&wire.MemberState{Incarnation: inc, Token: inc}),
		"i" + soundInc:     value(&wire.IncarnationState{Member: 1, Ttl: second, Floor: 1}),
		"c" + be(1) + "ok": value(&wire.CheckRecord{Ttl: second}),
		"s" + soundSession: value(&wire.SessionState{Incarnation: inc, Member: 1, Ttl: second, Checks: []string{"ok"}}),

		"lx":                   value(&wire.LockState{Session: session, Holds: 1, Fence: 1}),
		"ly":                   value(&wire.LockState{DelayUntil: 5}),
		"wlx\x00" + be(1):      value(&wire.WaiterState{Session: session, Incarnation: inc, Seq: 2}),
		"t" + soundInc + be(2): value(&wire.Reply{Code: wire.Code_QUEUED}),

		"ex":              value(&wire.LockState{Session: session, Holds: 1, Fence: 2, Value: []byte("v")}),
		"wex\x00" + be(2): value(&wire.WaiterState{Session: session, Incarnation: inc, Seq: 3, Value: []byte("w")}),

		"Sx":              value(&wire.SemaphoreState{Limit: 3}),
		"Sy":              value(&wire.SemaphoreState{Limit: 3, Resized: true}),
		"px\x00" + be(3):  value(&wire.PermitState{Session: session, Permits: 2}),
		"px\x00" + be(4):  value(&wire.PermitState{Permits: 1, DelayUntil: 5}),
		"wSx\x00" + be(3): value(&wire.WaiterState{Session: session, Incarnation: inc, Seq: 4, Permits: 2}),

		"kx": value(&wire.KeyState{Value: []byte("v"), CreateIndex: 6, ModifyIndex: 7, LockIndex: 1, Session: session}),
		"dy": value(&wire.KeyDelayState{Until: 5}),
	}
}

func be(n uint64) string {
	return string([]byte{byte(n >> 56), byte(n >> 48), byte(n >> 40), byte(n >> 32), byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}
