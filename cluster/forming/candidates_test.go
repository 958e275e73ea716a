package forming

import (
	"fmt"
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// askAll asks every address that is due: all answer, each as the member that it has in
// members.
func (c *candidates) askAll(now time.Time, members map[string]uint64) {
	for addrs, _ := c.due(now); len(addrs) > 0; addrs, _ = c.due(now) {
		for _, addr := range addrs {
			c.answered(addr, &wire.GossipMeta{Member: members[addr], Boot: 1, Advertise: addr}, now)
		}
	}
}

// Addresses that one process suggests, and all of which it answers, do not keep others out.
func TestCandidates_ManyAddressesOfOneProcess(t *testing.T) {
	const stranger = 66
	c := newCandidates("self", []string{"configured"})
	now := time.Now()
	members := map[string]uint64{"configured": 7}
	suggest := func(n int) {
		for i := range n {
			addr := fmt.Sprint("stranger-", i)
			members[addr] = stranger
			c.hear(addr, stranger)
		}
	}
	suggest(2 * maxHeard)
	c.askAll(now, members)
	if n := len(c.places); n != maxHeard+1 {
		t.Fatalf("%d addresses are kept, want %d and the configured one", n, maxHeard)
	}
	founders := 0
	for i := range uint64(60) {
		addr := fmt.Sprint("founder-", i)
		members[addr] = 100 + i
		c.hear(addr, 7+i%2) // two founders know the others
	}
	suggest(3 * maxHeard)
	c.askAll(now.Add(time.Minute), members)
	for _, found := range c.processes() {
		if found.GetMember() >= 100 {
			founders++
		}
	}
	if founders != 60 || c.process(7) == nil || len(c.places) != maxHeard+1 {
		t.Errorf("%d of 60 founders, and the configured one %v, are found among %d addresses", founders, c.process(7), len(c.places))
	}
}

// At the limit, an address that does not answer goes before one of a process with many, and
// no equal share is taken from.
func TestCandidates_WhichAddressIsDropped(t *testing.T) {
	c := newCandidates("self", nil)
	now := time.Now()
	for i := range maxHeard {
		c.hear(fmt.Sprint("address-", i), uint64(100+i/2)) // two of each source
	}
	for addrs, _ := c.due(now); len(addrs) > 0; addrs, _ = c.due(now) {
		for _, addr := range addrs {
			c.abandoned(addr)
			c.places[addr].next = now.Add(time.Hour)
		}
	}
	c.hear("of one that has an equal share", 100)
	c.places["address-5"].failures = 1
	c.hear("first", 1)
	c.hear("second", 1) // every other has two
	for addr, want := range map[string]bool{"address-5": false, "first": true, "second": false, "of one that has an equal share": false} {
		if got := c.places[addr] != nil; got != want {
			t.Errorf("%s is kept: %v, want %v", addr, got, want)
		}
	}
}
