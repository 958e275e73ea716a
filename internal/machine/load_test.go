package machine

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// What no machine can have written is refused, and so is what a later version
// wrote, even where it also holds keys that this one does not know.
func TestLoadRefuses(t *testing.T) {
	inc, session := strings.Repeat("i", 16), strings.Repeat("s", 16)
	value := func(m proto.Message) []byte { return must(proto.Marshal(m)) }
	sound := func() disk {
		return disk{
			"m":       value(&wire.MachineState{Version: 1, Now: 1, Fences: 1, Positions: 1}),
			"i" + inc: value(&wire.IncarnationState{Member: 1, Ttl: second, Floor: 1}),
			"s" + session: value(&wire.SessionState{
				Incarnation: []byte(inc), Member: 1, Ttl: second,
			}),
			"lx":              value(&wire.LockState{Session: []byte(session), Holds: 1, Fence: 1}),
			"ly":              value(&wire.LockState{DelayUntil: 5}),
			"wlx\x00" + be(1): value(&wire.WaiterState{Session: []byte(session), Incarnation: []byte(inc), Seq: 2}),
			"t" + inc + be(2): value(&wire.Reply{Code: wire.Code_QUEUED}),
			"M" + be(1):       value(&wire.MemberState{Incarnation: []byte(inc)}),
		}
	}
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
		{"no version", "m", value(&wire.MachineState{Fences: 1, Positions: 1}), ErrCorrupt},
		{"a later version", "m", value(&wire.MachineState{Version: 2}), ErrNewer},
		{"too many fences", "m", value(&wire.MachineState{Version: 1, Fences: 1 << 48, Positions: 1}), ErrCorrupt},
		{"too high an epoch", "m", value(&wire.MachineState{Version: 1, Epoch: 1 << 16, Fences: 1, Positions: 1}), ErrCorrupt},
		{"time before the beginning", "m", value(&wire.MachineState{Version: 1, Now: -1, Fences: 1, Positions: 1}), ErrCorrupt},
		{"a fence not given out", "m", value(&wire.MachineState{Version: 1, Positions: 1}), ErrCorrupt},
		{"a position not given out", "m", value(&wire.MachineState{Version: 1, Fences: 1}), ErrCorrupt},
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
		{"a session of nobody", "s" + session, value(&wire.SessionState{Ttl: second}), ErrCorrupt},
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
		{"a position given out twice", "wly\x00" + be(1), value(&wire.WaiterState{Session: []byte(session), Incarnation: []byte(inc), Seq: 3}), ErrCorrupt},
		{"a ticket of nobody", "t" + session + be(2), value(&wire.Reply{}), ErrCorrupt},
		{"a ticket too far ahead", "t" + inc + be(MaxInFlight+2), value(&wire.Reply{}), ErrCorrupt},
		{"a short ticket", "t" + inc, value(&wire.Reply{}), ErrCorrupt},
		{"a member without incarnation", "M" + be(2), value(&wire.MemberState{}), ErrCorrupt},
	}
	for _, key := range []string{"m", "i" + inc, "s" + session, "lx", "wlx\x00" + be(1), "t" + inc + be(2), "M" + be(1)} {
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

func be(n uint64) string {
	return string([]byte{byte(n >> 56), byte(n >> 48), byte(n >> 40), byte(n >> 32), byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}
