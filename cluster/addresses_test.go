package cluster

import (
	"slices"
	"testing"

	"github.com/conclave-go/conclave/cluster/roster"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// An address that a member advertises is joined as that member's, also if it is configured.
func TestTargetsToJoin_NameTheirMembers(t *testing.T) {
	withRoster(t, func(r *roster.Roster) {
		m := &rejoining{roster: r, advertise: "us", addresses: []string{"us", "seven", "nine", "other name", "a name"}}
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
