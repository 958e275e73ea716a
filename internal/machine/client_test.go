package machine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// atClientLevel drives a machine whose group is at the level of clients.
func atClientLevel(tb testing.TB) *driver {
	d := &driver{tb: tb, m: New(), disk: disk{}, inc: wire.ID{1}}
	register := registerCommand(1, MaxTTL)
	register.GetRegister().FeatureLevel = wire.LevelClient
	d.want(wire.Code_OK, d.do(register, &wire.Command{Op: &wire.Command_RaiseLevel{RaiseLevel: &wire.RaiseLevel{Level: wire.LevelClient}}}))
	return d
}

// ofClient is a submission of one call by the n-th client.
func ofClient(n, seq uint64, c *wire.Command) *wire.Submission {
	key := clientKey(n)
	id := wire.ClientIncarnation(key)
	return &wire.Submission{
		Incarnation: id[:], Member: wire.FingerprintOf(key), Client: true,
		Calls: []*wire.Call{{Seq: seq, Command: must(proto.Marshal(c))}},
	}
}

func registerClientCommand(n uint64, ttl, until int64) *wire.Command {
	return &wire.Command{Op: &wire.Command_RegisterClient{RegisterClient: &wire.RegisterClient{Key: clientKey(n), Ttl: ttl, Until: until}}}
}

// However late duplicates of a registration arrive, it is applied once: after its end, by time
// or by Deregister, it does not return.
func TestClient_RegistrationNeverReturns(t *testing.T) {
	for seed := range uint64(200) {
		rng := newRand(seed + 1)
		d := atClientLevel(t)
		d.m.split = 1 + rng.IntN(3)
		const clients = 8
		var sent [clients]*wire.Command
		var was, ended [clients]bool
		for range 300 {
			n := rng.Uint64N(clients)
			if sent[n] == nil {
				ttl := MinTTL * (1 + rng.Int64N(3))
				sent[n] = registerClientCommand(n, ttl, d.m.Now()+ttl-rng.Int64N(2)*rng.Int64N(ttl))
			}
			d.time += []int64{0, 1, second / 4, second - d.time%second}[rng.IntN(4)]
			d.submit(clientStep(rng, n, sent[n]))
			for i := range sent {
				_, _, registered := d.m.Registration(wire.ClientIncarnation(clientKey(uint64(i))))
				if registered && ended[i] {
					t.Fatalf("seed %d: client %d is registered again", seed+1, i)
				}
				ended[i] = ended[i] || was[i] && !registered
				was[i] = registered
			}
		}
		if err := audit(d.m); err != nil {
			t.Fatal(err)
		}
	}
}

// clientStep is a call of a client, or a duplicate of its registration.
func clientStep(rng *rand.Rand, n uint64, registration *wire.Command) *wire.Submission {
	switch rng.IntN(6) {
	case 0:
		return ofClient(n, 2+rng.Uint64N(1000), deregisterCommand())
	case 1:
		return ofClient(n, 2+rng.Uint64N(1000), openCommand(wire.ID{byte(n), byte(rng.Uint32()), 9}, rng.Int64N(2)*MinTTL, 0))
	}
	return ofClient(n, 1, registration)
}

// Below the level of clients the mark of a submission and the new operations mean nothing,
// whatever their bytes: a machine yields what it yields for the bytes that a build without
// them would keep.
func TestClient_NothingBelowLevel(t *testing.T) {
	lock := must(proto.Marshal(lockCommand("a", wire.ID{9}, 1)))
	other := must(proto.Marshal(lockCommand("b", wire.ID{9}, 2)))
	client := must(proto.Marshal(registerClientCommand(1, second, second)))
	renew := must(proto.Marshal(&wire.Command{Op: &wire.Command_RenewClients{RenewClients: &wire.RenewClients{Incarnations: [][]byte{{1}}}}}))
	malformed := []byte{23<<3&0x7f | 0x80 | 2, 1, 1, 0xff} // of the operation only
	for _, row := range []struct{ sent, kept []byte }{
		{client, nil},
		{renew, nil},
		{malformed, nil},
		{append(append(append([]byte{}, lock...), client...), other...), append(append([]byte{}, lock...), other...)},
		{append(append([]byte{}, lock...), malformed...), lock},
		{append(append([]byte{}, renew...), lock...), lock},
		{append(append([]byte{}, client...), 0xff), []byte{0xff}},
	} {
		with, without := newDriver(t), newDriver(t)
		for _, d := range []*driver{with, without} {
			d.want(wire.Code_OK, d.do(openCommand(wire.ID{9}, MaxTTL, 0)))
		}
		sent := with.submit(&wire.Submission{Incarnation: with.inc[:], Member: 1, Client: true, Calls: []*wire.Call{{Seq: 5, Command: row.sent}}})
		kept := without.submit(&wire.Submission{Incarnation: with.inc[:], Member: 1, Calls: []*wire.Call{{Seq: 5, Command: row.kept}}})
		if err := differ(sent, kept); err != nil || !with.disk.equal(without.disk) || len(sent.Outcomes) != 1 {
			t.Errorf("%x: %v\nstates equal: %t", row.sent, err, with.disk.equal(without.disk))
		}
	}
}

// The state of clients is loaded where there can be one, and nothing else.
func TestLoad_Clients(t *testing.T) {
	inc := func(st *wire.IncarnationState) []byte { st.Client = true; return marshalled(st) }
	session := func(st *wire.SessionState) []byte { st.Client = true; return marshalled(st) }
	of := []byte(unknown)
	const other = "uuuuuuuuuuuuuuuu"
	known := map[string][]byte{"i" + unknown: inc(&wire.IncarnationState{Member: 7, Ttl: second, Until: 1})}
	for _, row := range []struct {
		name  string
		pairs map[string][]byte
		want  string // "": loaded
	}{
		{"a client", known, ""},
		{"of a member's ID", map[string][]byte{"i" + unknown: inc(&wire.IncarnationState{Member: 1, Ttl: second, Until: 1})}, ""},
		{"with the latest time", map[string][]byte{"i" + unknown: inc(&wire.IncarnationState{Member: 7, Ttl: second, Until: second})}, ""},
		{"with a time beyond its TTL", map[string][]byte{"i" + unknown: inc(&wire.IncarnationState{Member: 7, Ttl: second, Until: second + 1})}, "range"},
		{"with a time beyond a minute", map[string][]byte{"i" + unknown: inc(&wire.IncarnationState{Member: 7, Ttl: MaxTTL, Until: MaxRegistering + 1})}, "range"},
		{"without a time", map[string][]byte{"i" + unknown: inc(&wire.IncarnationState{Member: 7, Ttl: second})}, "range"},
		{"a member with a time", map[string][]byte{"i" + unknown: marshalled(&wire.IncarnationState{Member: 2, Ttl: second, Until: 1})}, "range"},
		{"barred below level 6", map[string][]byte{"i" + unknown: inc(&wire.IncarnationState{Member: 7, Ttl: second, Until: 1, Barred: 5})}, "range"},
		{"two of one ID", map[string][]byte{"i" + unknown: known["i"+unknown], "i" + other: known["i"+unknown]}, "duplicate"},
		{"a session of it", map[string][]byte{"i" + unknown: known["i"+unknown], "s" + other: session(&wire.SessionState{Incarnation: of, Member: 7, Ttl: second})}, ""},
		{"a session of it as a member's", map[string][]byte{"i" + unknown: known["i"+unknown], "s" + other: marshalled(&wire.SessionState{Incarnation: of, Member: 7, Ttl: second})}, "not exist"},
		{"a session of another client", map[string][]byte{"i" + unknown: known["i"+unknown], "s" + other: session(&wire.SessionState{Incarnation: of, Member: 8, Ttl: second})}, "not exist"},
		{"a client's session of a member", map[string][]byte{"s" + other: session(&wire.SessionState{Incarnation: []byte(soundInc), Member: 1, Ttl: second})}, "not exist"},
		{"an unbound session", map[string][]byte{"s" + other: session(&wire.SessionState{Member: 7})}, ""},
		{"an unbound session with a TTL", map[string][]byte{"s" + other: session(&wire.SessionState{Member: 7, Ttl: second})}, "not exist"},
		{"a session with checks", map[string][]byte{"s" + other: session(&wire.SessionState{Member: 7, Checks: []string{"ok"}})}, "range"},
		{"an ended session", map[string][]byte{"s" + other: session(&wire.SessionState{Member: 7, Ttl: second, Ended: 1, EndedAt: 1}),
			"m": marshalled(&wire.MachineState{Version: 1, FeatureLevel: 4, Now: 1, Fences: 6, Positions: 5, Changes: 9, Ended: 1})}, ""},
		{"a tombstone", map[string][]byte{"x" + unknown: marshalled(&wire.EndedClientState{Until: 1 + MaxRegistering})}, ""},
		{"a tombstone for too long", map[string][]byte{"x" + unknown: marshalled(&wire.EndedClientState{Until: 2 + MaxRegistering})}, "range"},
		{"a tombstone without a time", map[string][]byte{"x" + unknown: marshalled(&wire.EndedClientState{})}, "range"},
		{"a tombstone under a shorter key", map[string][]byte{"x" + unknown[1:]: marshalled(&wire.EndedClientState{Until: 1})}, "length"},
		{"a malformed tombstone", map[string][]byte{"x" + unknown: {0xff}}, "x"},
		{"a tombstone of a member's process", map[string][]byte{"x" + soundInc: marshalled(&wire.EndedClientState{Until: 1})}, ""},
		{"a tombstone of a registered client", map[string][]byte{"i" + unknown: known["i"+unknown], "x" + unknown: marshalled(&wire.EndedClientState{Until: 1})}, "duplicate"},
	} {
		t.Run(row.name, func(t *testing.T) { loadClients(t, row.pairs, row.want) })
	}
}

// loadClients loads the roomy state with more pairs, at the level of clients and below it.
func loadClients(t *testing.T, pairs map[string][]byte, want string) {
	d := roomyDisk()
	d["m"] = marshalled(&wire.MachineState{Version: 1, FeatureLevel: 4, Now: 1, Fences: 6, Positions: 5, Changes: 9})
	for k, v := range pairs {
		d[k] = v
	}
	if !checkLoad(t, d, want) {
		return
	}
	st := new(wire.MachineState)
	if err := proto.Unmarshal(d["m"], st); err != nil {
		t.Fatal(err)
	}
	st.FeatureLevel--
	d["m"] = marshalled(st)
	if m, err := Load(d.pairs()); m != nil || !errors.Is(err, ErrCorrupt) {
		t.Errorf("Load below the level: %v", err)
	}
}

// clientLogs are seeds of clients for FuzzApply.
func clientLogs(tb testing.TB) (logs [][]byte) {
	tb.Helper()
	for _, last := range fuzzCommands {
		var log []byte
		add := func(s *wire.Submission) {
			data := must(proto.Marshal(&wire.Batch{Version: wire.BatchVersion, Submissions: []*wire.Submission{s}}))
			log = append(append(log, byte(len(data))), data...)
		}
		for i, line := range []string{fmt.Sprintf("register member=1 boot=1 level=%d", wire.FeatureLevel), fmt.Sprintf("raise level=%d", wire.FeatureLevel)} {
			add(&wire.Submission{Member: 1, Incarnation: id(1), Calls: []*wire.Call{{Seq: uint64(i + 1), Command: must(parseCommand(strings.Fields(line)))}}})
		}
		add(ofClient(1, 1, registerClientCommand(1, 10*second, second)))
		for i, line := range []string{"open s ttl=none delay=5s delete", last} {
			c := new(wire.Command)
			if err := proto.Unmarshal(must(parseCommand(strings.Fields(line))), c); err != nil {
				tb.Fatal(err)
			}
			add(ofClient(1, uint64(i+2), c))
		}
		logs = append(logs, log)
	}
	return logs
}
