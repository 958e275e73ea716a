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
	const inc, session = soundInc, soundSession
	sound, value := soundDisk, marshalled
	if _, err := Load(sound().pairs()); err != nil {
		t.Fatal("the sound state is refused:", err)
	}
	if m, err := Load(disk{}.pairs()); err != nil || m.Now() != 0 {
		t.Fatal("nothing at all is not the first state:", err)
	}
	garbage := []byte{0xff}
	tests := []struct {
		name string
		key  string
		with []byte // nil: the key is missing
		want error
	}{
		{"no record of the machine", "m", nil, ErrCorrupt},
		{"no version", "m", value(&wire.MachineState{Fences: 4, Positions: 3, Changes: 7}), ErrCorrupt},
		{"a later version", "m", value(&wire.MachineState{Version: 2}), ErrNewer},
		{"too many fences", "m", value(&wire.MachineState{Version: 1, Fences: 1 << 48, Positions: 3, Changes: 7}), ErrCorrupt},
		{"too high an epoch", "m", value(&wire.MachineState{Version: 1, Epoch: 1 << 16, Fences: 4, Positions: 3, Changes: 7}), ErrCorrupt},
		{"time before the beginning", "m", value(&wire.MachineState{Version: 1, Now: -1, Fences: 4, Positions: 3, Changes: 7}), ErrCorrupt},
		{"a fence not given out", "m", value(&wire.MachineState{Version: 1, Positions: 3, Changes: 7}), ErrCorrupt},
		{"a position not given out", "m", value(&wire.MachineState{Version: 1, Fences: 4, Changes: 7}), ErrCorrupt},
		{"the machine under a longer key", "mm", value(&wire.MachineState{Version: 1}), ErrCorrupt},
		{"an empty key", "", garbage, ErrCorrupt},
		{"an unknown kind", "zz", garbage, ErrCorrupt},
		{"no incarnation", "i" + inc, nil, ErrCorrupt},
		{"an incarnation without TTL", "i" + inc, value(&wire.IncarnationState{Member: 1, Floor: 1}), ErrCorrupt},
		{"an incarnation of another member", "i" + inc, value(&wire.IncarnationState{Member: 2, Ttl: second, Floor: 1}), ErrCorrupt},
		{"a ticket at the floor", "i" + inc, value(&wire.IncarnationState{Member: 1, Ttl: second, Floor: 2}), ErrCorrupt},
		{"a short incarnation", "i", value(&wire.IncarnationState{Member: 1, Ttl: second}), ErrCorrupt},
		{"no session", "s" + session, nil, ErrCorrupt},
		{"a session with a TTL that is none", "s" + session, value(&wire.SessionState{Incarnation: []byte(inc), Member: 1, Ttl: -1}), ErrCorrupt},
		{"a session without a member", "s" + session, value(&wire.SessionState{Ttl: second}), ErrCorrupt},
		{"a short session", "s1", value(&wire.SessionState{Ttl: second}), ErrCorrupt},
		{"no lock to wait for", "lx", nil, ErrCorrupt},
		{"an idle lock", "ly", value(&wire.LockState{}), ErrCorrupt},
		{"a lock held and delayed", "lx", value(&wire.LockState{Session: []byte(session), Holds: 1, Fence: 1, DelayUntil: 1}), ErrCorrupt},
		{"a lock of a dead session", "lx", value(&wire.LockState{Session: []byte(inc), Holds: 1, Fence: 1}), ErrCorrupt},
		{"a fence given out twice", "lz", value(&wire.LockState{Session: []byte(session), Holds: 1, Fence: 1}), ErrCorrupt},
		{"a lock with half a ticket", "lx", value(&wire.LockState{Session: []byte(session), Holds: 1, Fence: 1, Seq: 4}), ErrCorrupt},
		{"a waiter without position", "wlx", value(&wire.WaiterState{}), ErrCorrupt},
		{"a ticket queued twice", "wlx\x00" + be(0), value(&wire.WaiterState{Session: []byte(session), Incarnation: []byte(inc), Seq: 2}), ErrCorrupt},
		{"a waiter of a dead session", "wlx\x00" + be(1), value(&wire.WaiterState{Incarnation: []byte(inc), Seq: 2}), ErrCorrupt},
		{"a position given out twice", "wly\x00" + be(1), value(&wire.WaiterState{Session: []byte(session), Incarnation: []byte(inc), Seq: 5}), ErrCorrupt},
		{"a ticket of an unknown incarnation", "t" + session + be(2), value(&wire.Reply{}), ErrCorrupt},
		{"a ticket too far ahead", "t" + inc + be(MaxInFlight+2), value(&wire.Reply{}), ErrCorrupt},
		{"a short ticket", "t" + inc, value(&wire.Reply{}), ErrCorrupt},
		{"a change not given out", "m", value(&wire.MachineState{Version: 1, Fences: 4, Positions: 3}), ErrCorrupt},
		{"an unknown behavior", "s" + session, value(&wire.SessionState{Incarnation: []byte(inc), Member: 1, Ttl: second, Behavior: 2}), ErrCorrupt},
		{"a check of an unknown member", "c" + be(2) + "ok", value(&wire.CheckRecord{}), ErrCorrupt},
		{"a check without name", "c" + be(1), value(&wire.CheckRecord{}), ErrCorrupt},
		{"a check with an unknown state", "c" + be(1) + "ok", value(&wire.CheckRecord{State: 3}), ErrCorrupt},
		{"a check with a TTL that is none", "c" + be(1) + "ok", value(&wire.CheckRecord{Ttl: 1}), ErrCorrupt},
		{"an idle election", "ey", value(&wire.LockState{}), ErrCorrupt},
		{"a leadership of a dead session", "ex", value(&wire.LockState{Session: []byte(inc), Holds: 1, Fence: 2}), ErrCorrupt},
		{"an election with the fence of a lock", "ex", value(&wire.LockState{Session: []byte(session), Holds: 1, Fence: 1}), ErrCorrupt},
		{"no semaphore to wait for", "Sx", nil, ErrCorrupt},
		{"a semaphore without limit", "Sx", value(&wire.SemaphoreState{}), ErrCorrupt},
		{"too large a limit", "Sx", value(&wire.SemaphoreState{Limit: MaxPermits + 1}), ErrCorrupt},
		{"an acquisition of nothing", "px\x00" + be(3), value(&wire.PermitState{Session: []byte(session)}), ErrCorrupt},
		{"an acquisition of a dead session", "px\x00" + be(3), value(&wire.PermitState{Session: []byte(inc), Permits: 1}), ErrCorrupt},
		{"an acquisition that is delayed", "px\x00" + be(3), value(&wire.PermitState{Session: []byte(session), Permits: 1, DelayUntil: 5}), ErrCorrupt},
		{"a delayed permit without a delay", "px\x00" + be(4), value(&wire.PermitState{Permits: 1}), ErrCorrupt},
		{"permits of no semaphore", "pz\x00" + be(4), value(&wire.PermitState{Permits: 1, DelayUntil: 5}), ErrCorrupt},
		{"permits with half a ticket", "px\x00" + be(4), value(&wire.PermitState{Permits: 1, DelayUntil: 5, Seq: 1}), ErrCorrupt},
		{"permits without fence", "px", value(&wire.PermitState{Permits: 1, DelayUntil: 5}), ErrCorrupt},
		{"a fence of permits not given out", "px\x00" + be(5), value(&wire.PermitState{Permits: 1, DelayUntil: 5}), ErrCorrupt},
		{"a key locked by a dead session", "kx", value(&wire.KeyState{CreateIndex: 1, ModifyIndex: 1, LockIndex: 1, Session: []byte(inc)}), ErrCorrupt},
		{"a key with a short session", "kx", value(&wire.KeyState{CreateIndex: 1, ModifyIndex: 1, LockIndex: 1, Session: []byte("s")}), ErrCorrupt},
		{"a key that was created after it was changed", "kx", value(&wire.KeyState{CreateIndex: 3, ModifyIndex: 2}), ErrCorrupt},
		{"a lock that was left and has a ticket", "lx", value(&wire.LockState{Session: []byte(session), Holds: 1, Fence: 1, Unclaimed: true, Seq: 5, Incarnation: []byte(inc)}), ErrCorrupt},
		{"a delayed lock that was left", "ly", value(&wire.LockState{DelayUntil: 5, Unclaimed: true}), ErrCorrupt},
		{"a lock with a value", "lx", value(&wire.LockState{Session: []byte(session), Holds: 1, Fence: 1, Value: []byte("v")}), ErrCorrupt},
		{"an idle semaphore", "Sz", value(&wire.SemaphoreState{Limit: 1}), ErrCorrupt},
		{"more permits than the limit", "px\x00" + be(3), value(&wire.PermitState{Session: []byte(session), Permits: 3}), ErrCorrupt},
		{"a waiter for what is free", "wSx\x00" + be(3), value(&wire.WaiterState{Session: []byte(session), Incarnation: []byte(inc), Seq: 4}), ErrCorrupt},
		{"a waiter for more than the limit", "wSx\x00" + be(3), value(&wire.WaiterState{Session: []byte(session), Incarnation: []byte(inc), Seq: 4, Permits: 4}), ErrCorrupt},
		{"permits with the fence of a lock", "px\x00" + be(1), value(&wire.PermitState{Permits: 1, DelayUntil: 5}), ErrCorrupt},
		{"a key that was never created", "kx", value(&wire.KeyState{ModifyIndex: 1}), ErrCorrupt},
		{"an index given out twice", "kz", value(&wire.KeyState{CreateIndex: 7, ModifyIndex: 7}), ErrCorrupt},
		{"a locked key without lock index", "kx", value(&wire.KeyState{CreateIndex: 6, ModifyIndex: 7, Session: []byte(session)}), ErrCorrupt},
		{"a locked key under a delay", "dx", value(&wire.KeyDelayState{Until: 5}), ErrCorrupt},
		{"a key-delay without end", "dx", value(&wire.KeyDelayState{}), ErrCorrupt},
		{"a member without incarnation", "M" + be(2), value(&wire.MemberState{}), ErrCorrupt},
	}
	for _, key := range []string{"m", "i" + inc, "s" + session, "lx", "wlx\x00" + be(1), "t" + inc + be(2), "M" + be(1),
		"c" + be(1) + "ok", "ex", "Sx", "px\x00" + be(3), "kx", "dy"} {
		tests = append(tests, struct {
			name string
			key  string
			with []byte
			want error
		}{"garbage under " + key[:1], key, garbage, ErrCorrupt})
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := sound()
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
	newer := sound()
	newer["m"] = value(&wire.MachineState{Version: 7})
	newer["k/of/a/later/version"] = garbage
	if _, err := Load(newer.pairs()); !errors.Is(err, ErrNewer) {
		t.Errorf("Load of a later version: %v", err)
	}
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
		"m":                value(&wire.MachineState{Version: 1, Now: 1, Fences: 4, Positions: 3, Changes: 7}),
		"M" + be(1):        value(&wire.MemberState{Incarnation: inc}),
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
