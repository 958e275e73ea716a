package grouptest

import "testing"

// Members that have all taken each other's addresses find each other, without Join.
func TestMembers_AddressesSwapped(t *testing.T) {
	t.Parallel()
	g := Start(t, 3)
	g.WantWorking()
	g.KillAll()
	a, b, c := &g.Configs[0], &g.Configs[1], &g.Configs[2]
	a.Bind, b.Bind, c.Bind = b.Bind, c.Bind, a.Bind
	for _, i := range g.All() {
		g.Configs[i].Join = nil
	}
	g.Start(g.All()...)
	g.Leader()
	g.WantWorking()
}
