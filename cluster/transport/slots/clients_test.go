package slots

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// A host has all places while no other needs one. Then those that took the most give up the
// latest, until all have the same number.
func TestClientPlaces_SharedByHost(t *testing.T) {
	c := NewClients(6)
	var evicted []string
	release := map[string]func(){}
	take := func(host, name string, want bool) {
		t.Helper()
		r, ok := c.Take(host, func() { evicted = append(evicted, name) })
		if ok != want {
			t.Fatalf("%s of %s: %t, want %t", name, host, ok, want)
		}
		release[name] = r
	}
	for i := range 6 {
		take("a", fmt.Sprint("a", i), true)
	}
	take("a", "a6", false)
	take("b", "b0", true)
	take("a", "a6", false)
	release["a2"]()
	take("a", "a7", true)
	for i := 1; i < 3; i++ {
		take("b", fmt.Sprint("b", i), true)
	}
	take("b", "b3", false)
	take("c", "c0", true)
	take("c", "c1", true)
	take("c", "c2", false)
	if len(evicted) != 5 || evicted[0] != "a5" || evicted[1] != "a7" || evicted[2] != "a4" {
		t.Errorf("evicted %v", evicted)
	}
	for _, r := range release {
		if r != nil {
			r() // also of those that were evicted
		}
	}
	if c.Count() != 0 || len(c.hosts) != 0 {
		t.Errorf("%d places of %d hosts remain", c.Count(), len(c.hosts))
	}
}

// Whatever hosts come and leave, none has more places than another that was refused.
func TestClientPlaces_Random(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	c := NewClients(20)
	held := map[string]map[int]func(){}
	for i := range 20_000 {
		host := fmt.Sprint(rng.IntN(1 + rng.IntN(8)))
		if rng.IntN(3) == 0 {
			for n, release := range held[host] {
				release()
				delete(held[host], n)
				break
			}
			continue
		}
		if held[host] == nil {
			held[host] = map[int]func(){}
		}
		release, ok := c.Take(host, func() {})
		if ok {
			held[host][i] = release
			continue
		}
		for other, places := range c.hosts {
			if own := c.hosts[host]; own == nil || places.Len() > own.Len()+1 {
				t.Fatalf("host %s is refused, and %s has %d places", host, other, places.Len())
			}
		}
	}
	n := 0
	for _, places := range c.hosts {
		n += places.Len()
	}
	if n != c.Count() || n > 20 {
		t.Errorf("%d places are counted, and %d taken", c.Count(), n)
	}
}
