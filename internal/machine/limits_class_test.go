package machine

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// Two classes of users share no limit from level 6 on: standalone sessions, which clients of
// Consul's API create and forget, leave a program's own alone, and the other way round.
func TestLimit_StandaloneApart(t *testing.T) {
	for _, row := range []struct{ full, other string }{{"create", "open"}, {"open", "create"}} {
		for _, level := range []uint32{wire.LevelBounds - 1, wire.LevelBounds} {
			d := newDriverAt(t, level)
			for i := 0; i < MaxSessions; i += 1000 {
				lines := make([]*wire.Command, 1000)
				for j := range lines {
					lines[j] = read(t, "%s s%d ttl=none", row.full, i+j)
				}
				d.want(wire.Code_OK, d.do(lines...))
			}
			d.line(wire.Code_BUSY, "%s more ttl=none", row.full)
			want := wire.Code_OK
			if level < wire.LevelBounds {
				want = wire.Code_BUSY
			}
			d.line(want, "%s other ttl=none", row.other)
			d.do()
			if err := audit(d.m); err != nil {
				t.Fatal(err)
			}
			d.m = must(Load(d.disk.pairs()))
			d.line(wire.Code_BUSY, "%s more ttl=none", row.full)
			d.line(wire.Code_OK, "close s7")
			d.line(wire.Code_OK, "%s more ttl=none", row.full)
		}
	}
}

// A group that was at its limit below the level is read, and only new sessions of the class
// that is full are refused.
func TestLimit_StandaloneOfEarlierBuild(t *testing.T) {
	d := newDriverAt(t, wire.LevelBounds-1)
	for i := 0; i < MaxSessions; i += 1000 {
		lines := make([]*wire.Command, 1000)
		for j := range lines {
			lines[j] = read(t, "create s%d ttl=none", i+j)
		}
		d.want(wire.Code_OK, d.do(lines...))
	}
	state := d.m.state().(*wire.MachineState)
	state.FeatureLevel = wire.LevelBounds
	d.disk[machineKey] = must(proto.Marshal(state))
	d.m = must(Load(d.disk.pairs()))
	d.line(wire.Code_OK, "open own")
	d.line(wire.Code_BUSY, "create more ttl=none")
}

// Checks for clients of a member's program leave those of the program alone.
func TestLimit_ChecksForClientsApart(t *testing.T) {
	d := newDriverAt(t, wire.LevelBounds)
	for i := range MaxChecks {
		d.line(wire.Code_OK, "check c%d register for-client", i)
	}
	d.line(wire.Code_BUSY, "check more register for-client")
	for i := range MaxChecks {
		d.line(wire.Code_OK, "check p%d register", i)
	}
	d.line(wire.Code_BUSY, "check more register")
	d.line(wire.Code_OK, "check c1 register") // it remains a client's
	d.line(wire.Code_BUSY, "check more register")
	d.do()
	d.m = must(Load(d.disk.pairs()))
	d.line(wire.Code_BUSY, "check more register for-client")
	d.line(wire.Code_OK, "drop c1")
	d.line(wire.Code_BUSY, "check more register")
	d.line(wire.Code_OK, "check more register for-client")
	if err := audit(d.m); err != nil {
		t.Error(err)
	}

	d = newDriverAt(t, wire.LevelBounds-1)
	for i := range MaxChecks {
		d.line(wire.Code_OK, "check c%d register for-client", i)
	}
	d.line(wire.Code_BUSY, "check more register")
}

// What clients can fill for the whole group leaves a part to members.
func TestLimit_ReservedForMembers(t *testing.T) {
	type row struct {
		fill func(m *Machine, n int) // as if the group had so many
		all  int
		more int
		line string
	}
	for name, row := range map[string]row{
		"sessions": {func(m *Machine, n int) {
			for i := len(m.sessions); i < n; i++ {
				m.sessions[wire.ID{1, byte(i), byte(i >> 8), byte(i >> 16), byte(i >> 24)}] = nil
			}
		}, MaxAllSessions, ReservedSessions, "open %s ttl=1h"},
		"candidates":    {func(m *Machine, n int) { m.candidates = n }, MaxCandidates, ReservedCandidates, "lock %s s/1 election value=a"},
		"resized":       {func(m *Machine, n int) { m.resized = n }, MaxResized, ReservedResized, "resize %s limit=1"},
		"bytes of keys": {func(m *Machine, n int) { m.keys.bytes = n }, MaxKeyBytes, ReservedKeyBytes, "write put %s v"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, level := range []uint32{wire.LevelBounds - 1, wire.LevelBounds} {
				d := newDriverAt(t, level)
				d.line(wire.Code_OK, "open s ttl=1h")
				d.submit(ofClient(1, 1, registerClientCommand(1, 600*second, second)))
				row.fill(d.m, row.all)
				for i, refused := range []bool{level < wire.LevelBounds, true} {
					line := fmt.Sprintf(row.line, fmt.Sprint("x", i))
					r := d.submit(ofClient(1, uint64(2+i), read(t, "%s", line))).Outcomes[0].Reply
					if r.Code != wire.Code_BUSY && r.Code != wire.Code_TOO_LARGE {
						t.Errorf("level %d: a client: %v", level, r)
					}
					r = d.do(read(t, "%s", line))[0].Reply
					if got := r.Code != wire.Code_OK; got != refused {
						t.Errorf("level %d: a member: %v, want refused %t", level, r, refused)
					}
					row.fill(d.m, row.all+row.more)
				}
			}
		})
	}
}
