package machine

import (
	"errors"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

func createCommand(id wire.ID, ttl int64) *wire.Command {
	return &wire.Command{Op: &wire.Command_CreateSession{CreateSession: &wire.CreateSession{
		Session: &wire.OpenSession{Id: id[:], Ttl: ttl},
	}}}
}

// standalone checks the heap of standalone sessions with a TTL.
func (a *auditor) standalone() {
	n := 0
	for _, s := range a.m.sessions {
		if s.dead() || !s.standalone || s.ttl == 0 {
			continue
		}
		if n++; !a.m.standalone.Contains(s) {
			a.fail("standalone session %s is not due", s.id)
		}
	}
	if n != a.m.standalone.Len() {
		a.fail("%d standalone sessions are due of %d", a.m.standalone.Len(), n)
	}
}

func TestStandalone_Limit(t *testing.T) {
	d := newDriverAt(t, wire.LevelStandalone)
	for i := range uint64(MaxStandalone) {
		d.want(wire.Code_OK, d.do(createCommand(numberedID(i), 10*second)))
	}
	d.want(wire.Code_BUSY, d.do(createCommand(wire.ID{1}, 10*second)))
	d.want(wire.Code_OK, d.do(createCommand(wire.ID{2}, 0))) // no term renews it
	d.want(wire.Code_OK, d.do(openCommand(wire.ID{3}, 10*second, 0)))
	d.want(wire.Code_OK, d.do(closeCommand(numberedID(7))))
	d.want(wire.Code_OK, d.do(createCommand(wire.ID{1}, 10*second)))

	// They expire by as many as one entry may end.
	d.time = 10*second + 1
	ended := 0
	for entries := 1; ended < MaxStandalone+1; entries++ {
		r := d.submit()
		if ended += len(r.Ended); len(r.Ended) > MaxReleased || entries > 10 {
			t.Fatalf("entry %d ended %d sessions", entries, len(r.Ended))
		}
	}
	if err := audit(d.m); err != nil {
		t.Error(err)
	}
}

// A state that no machine can have written is refused.
func TestStandalone_Load(t *testing.T) {
	alone := func(st *wire.SessionState) map[string][]byte {
		st.Standalone, st.Member = true, 1
		return map[string][]byte{"s" + unknown: marshalled(st)}
	}
	for _, row := range []struct {
		name  string
		pairs map[string][]byte
		want  string // "": loaded
	}{
		{"with a TTL", alone(&wire.SessionState{Ttl: second, Renewed: 1}), ""},
		{"without a TTL", alone(&wire.SessionState{Renewed: 1}), ""},
		{"bound", alone(&wire.SessionState{Ttl: second, Incarnation: []byte(soundInc)}), "range"},
		{"of a client", alone(&wire.SessionState{Ttl: second, Client: true}), "range"},
		{"attached", alone(&wire.SessionState{Attached: 1}), "range"},
		{"renewed before the beginning", alone(&wire.SessionState{Ttl: second, Renewed: -1}), "range"},
		{"of no member", map[string][]byte{"s" + unknown: marshalled(&wire.SessionState{Ttl: second, Standalone: true, Member: 99})}, "not exist"},
		{"renewed and not standalone", map[string][]byte{"s" + unknown: marshalled(&wire.SessionState{Member: 1, Renewed: 1})}, "range"},
	} {
		t.Run(row.name, func(t *testing.T) { loadStandalone(t, row.pairs, row.want) })
	}
}

// loadStandalone loads the roomy state with more pairs, at the level of the sessions and below.
func loadStandalone(t *testing.T, pairs map[string][]byte, want string) {
	t.Helper()
	d := roomyDisk()
	for k, v := range pairs {
		d[k] = v
	}
	at := func(level uint32) []byte {
		return marshalled(&wire.MachineState{Version: 1, FeatureLevel: level, Now: 1, Fences: 6, Positions: 5, Changes: 9})
	}
	d["m"] = at(wire.LevelStandalone - 1)
	if m, err := Load(d.pairs()); m != nil || !errors.Is(err, ErrCorrupt) {
		t.Errorf("Load below the level: %v", err)
	}
	d["m"] = at(wire.LevelStandalone)
	checkLoad(t, d, want)
}
