// Package slots shares between remote hosts what a member has for connections: slots and memory. It is a seam, not an API:
// only package transport uses it.
package slots

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// slotGrace is the age up to which a place is not taken by a patient stranger whose own host
// has as many. Clients that connect again all at once would otherwise take each other's places
// before any handshake could end.
const slotGrace = 250 * time.Millisecond

// Slots are the places of connections that have proven nothing yet, or no membership.
// Remote hosts share them. When all are taken, a new connection takes the place of the
// oldest one of the host that has the most, the new connection's included; one from the
// host of a member only if no other has any. So connections that do nothing keep no member
// out, although they may come from its own host: those that make progress need a place for
// milliseconds. Those that yield come before the others of the same host: thousands of
// clients may run on the host of a member.
type Slots struct {
	limit int

	mu   sync.Mutex // guards open
	open []*Slot    // from the oldest
}

// Slot belongs to one connection.
type Slot struct {
	host  string
	known bool // the host of a member
	// patient says that clients may connect: those in a storm are served in turns. Founders do
	// not wait for strangers.
	patient bool
	since   time.Time
	close   func()

	yields bool // guarded by mu of the slots
}

// New returns slots for limit connections.
func New(limit int) *Slots { return &Slots{limit: limit} }

// Begin takes a place until end. If another connection takes it first, evict is called.
// It returns nil if there is none.
func (s *Slots) Begin(host string, known, patient bool, evict func()) *Slot {
	taken := &Slot{host: host, known: known, patient: patient, since: time.Now(), close: evict}
	s.mu.Lock()
	var victim *Slot
	if len(s.open) >= s.limit {
		if victim = s.victim(taken); victim == nil {
			s.mu.Unlock()
			return nil
		}
		s.remove(victim)
	}
	s.open = append(s.open, taken)
	s.mu.Unlock()
	if victim != nil {
		victim.close()
	}
	return taken
}

// victim is called with mu held.
func (s *Slots) victim(taken *Slot) *Slot {
	count := map[string]int{taken.host: 1}
	for _, o := range s.open {
		count[o.host]++
	}
	var victim *Slot
	for _, o := range s.open {
		switch {
		case o.known && !taken.known: // a stranger takes no place of a member's host
		case victim == nil, o.before(victim, count):
			victim = o
		}
	}
	if victim != nil && taken.patient && !taken.known && count[victim.host] <= count[taken.host] && taken.since.Sub(victim.since) < slotGrace {
		return nil
	}
	return victim
}

// before reports whether o loses its place before other, which began earlier. count is the
// places of each host.
func (o *Slot) before(other *Slot, count map[string]int) bool {
	if o.known != other.known {
		return other.known
	}
	if n, most := count[o.host], count[other.host]; n != most {
		return n > most
	}
	return o.yields && !other.yields
}

// Yield marks a place as that of a connection which yields to others; nil: none.
func (s *Slots) Yield(taken *Slot) {
	if taken == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	taken.yields = true
}

// End frees a slot, and returns false if another connection has taken it: then evict is called, now or later.
func (s *Slots) End(taken *Slot) (had bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.open)
	s.remove(taken)
	return len(s.open) < before
}

// remove is called with mu held. The slot may have been removed before.
func (s *Slots) remove(taken *Slot) {
	s.open = slices.DeleteFunc(s.open, func(o *Slot) bool { return o == taken })
}

// HostOf returns what the connections of one host share: its IP address; of IPv6 the
// network of 64 bits, within which a host can choose any.
func HostOf(addr net.Addr) string {
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	return netip.PrefixFrom(ip, 64).Masked().String()
}

// Address is a net.Addr of host:port.
type Address string

func (Address) Network() string  { return "tcp" }
func (a Address) String() string { return string(a) }
