package cluster

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster/roster"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// Only an address in Config.Join may be another name of the process that answers there.
func TestSearch_ConfiguredAddressesMayDiffer(t *testing.T) {
	f := newFounders(t, 1, 1, 2).founders[0]
	f.cfg.Join = []string{"configured"}
	f.candidates = newCandidates(f.addr(), f.cfg.Join)
	for _, addr := range []string{"configured", "heard"} {
		f.candidates.hear(addr, 7)
	}
	var dialed []transport.Target
	f.port.form = func(_ context.Context, to transport.Target, _ *wire.FormRequest) (*wire.FormReply, error) {
		dialed = append(dialed, to)
		return nil, errors.New("no answer in this test")
	}
	addrs, _ := f.candidates.due(time.Time{})
	for _, addr := range addrs {
		f.ask(t.Context(), addr)
	}
	if want := []transport.Target{{Addr: "configured"}, {Addr: "heard", Advertised: true}}; !slices.Equal(dialed, want) {
		t.Errorf("dialed %+v, want %+v", dialed, want)
	}
	dialed = nil
	founder := &wire.Founder{Member: 7, Advertise: "seven"}
	_, _ = f.requestAcceptance(t.Context(), founder, &wire.Proposal{}) // it is not answered
	if want := []transport.Target{{Addr: "seven", Member: 7, Advertised: true}}; !slices.Equal(dialed, want) {
		t.Errorf("dialed %+v for a founder, want %+v", dialed, want)
	}
}

// An address that a member advertises is joined as that member's, also if it is configured.
func TestTargetsToJoin_NameTheirMembers(t *testing.T) {
	withRoster(t, func(r *roster.Roster) {
		m := &Member{roster: r, cfg: Config{Advertise: "us", Join: []string{"us", "seven", "nine", "other name", "a name"}}}
		m.resolves = func(addr string) bool { return addr != "other name" }
		r.Connected(7, "seven", "seven")
		// Without an address.
		r.ProcessAlive("9.1", &wire.GossipMeta{Version: wire.GossipVersion, Cluster: []byte("cluster"), Member: 9, Boot: 1})
		r.Connected(9, "nine", "nine")
		got, names := m.targetsToJoin()
		if want := []transport.Target{
			{Addr: "seven", Member: 7, Advertised: true}, {Addr: "nine", Member: 9, Advertised: true}, {Addr: "other name"},
		}; !slices.Equal(got, want) || !slices.Equal(names, []string{"a name"}) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

// The address in the hello of a member that a dial has reached elsewhere replaces the old one.
func TestRoster_Moved(t *testing.T) {
	withRoster(t, func(r *roster.Roster) {
		r.Connected(7, "seven", "old:1")
		if !r.Moved(7, "seven", "new:1") || r.Moved(7, "seven", "new:1") {
			t.Error("a change of address is not reported once")
		}
		if p := r.Snapshot().At("new:1"); p.GetMember() != 7 || r.Snapshot().At("old:1") != nil {
			t.Errorf("at the new address: %v", p)
		}
	})
}
