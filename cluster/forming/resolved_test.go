package forming

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// resolve runs one lookup of a name, which has so many addresses from the first on.
func (c *candidates) resolve(name string, first, n int, now time.Time) {
	var targets []transport.Target
	for i := range n {
		targets = append(targets, transport.Target{Addr: fmt.Sprint("address-", first+i), Host: name})
	}
	c.places[name].asking = true
	c.asking++
	c.resolved(name, targets, nil, now)
}

func newNames(self string, names ...string) *candidates {
	c := newCandidates(self, names)
	c.setNames(func(string) bool { return true })
	return c
}

// An address that a name has no longer is dropped if it does not answer, and kept as long as
// it does. A failed lookup changes nothing; a name without addresses has none any more.
func TestCandidates_AddressesOfName(t *testing.T) {
	c := newNames("address-3", "svc")
	now := time.Now()
	alive := "svc/address-0"
	pass := func(failures int) {
		for range failures {
			now = now.Add(time.Minute)
			keys, _ := c.due(now)
			for _, key := range keys {
				switch _, name := c.target(key); {
				case name:
					c.abandoned(key)
				case key == alive:
					c.answered(key, &wire.GossipMeta{Member: 7, Boot: 1}, now)
				default:
					c.failed(key, errors.New("no answer"), now)
				}
			}
		}
	}
	want := func(keys ...string) {
		t.Helper()
		if len(c.places) != len(keys)+1 {
			t.Errorf("%d places, want %v and the name", len(c.places), keys)
		}
		for _, key := range keys {
			if c.places[key] == nil {
				t.Errorf("%s is dropped", key)
			}
		}
	}
	c.resolve("svc", 0, 4, now)
	c.hear("address-1", 9)
	want("svc/address-0", "svc/address-1", "svc/address-2") // not its own
	pass(maxFailures)
	want("svc/address-0", "svc/address-1", "svc/address-2")
	c.resolve("svc", 2, 1, now)
	pass(1)
	want("svc/address-0", "svc/address-2")
	lookup := func(err error) {
		c.places["svc"].asking = true
		c.asking++
		c.resolved("svc", nil, err, now)
	}
	lookup(errors.New("the name service is down"))
	pass(maxFailures)
	want("svc/address-0", "svc/address-2")
	lookup(&net.DNSError{IsNotFound: true})
	pass(maxFailures)
	want("svc/address-0")
}

// The addresses of all names together are bounded, and those that a name has no longer give
// room to others.
func TestCandidates_ManyResolvedAddresses(t *testing.T) {
	c := newNames("self", "a", "b")
	now := time.Now()
	c.resolve("a", 0, 200, now)
	c.resolve("b", 0, 200, now)
	if n := len(c.places) - 2; n != MaxResolved {
		t.Errorf("%d addresses, want %d", n, MaxResolved)
	}
	c.resolve("a", 1000, 200, now)
	resolved := 0
	for _, p := range c.places {
		if p.entry == "a" && p.configured {
			resolved++
		}
	}
	if n := len(c.places) - 2; n != MaxResolved || resolved != 200 {
		t.Errorf("%d addresses, of which %d are those that a has now; want %d and 200", n, resolved, MaxResolved)
	}
}
