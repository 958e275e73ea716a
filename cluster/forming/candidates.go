package forming

import (
	"cmp"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wait"
	"github.com/conclave-go/conclave/internal/wire"
)

// candidates is the table of addresses at which a process that belongs to no group looks
// for the founders of one. An address is a suggestion, from Config.Join, from the name
// service or from another process. A process counts as a founder only once it has answered
// there itself, on a connection that proves its key.
type candidates struct {
	self    string      // this member's address
	changed wait.Signal // set when another process is found, or one is removed
	news    wait.Signal // set when an address is new

	mu     sync.Mutex
	places map[string]*place // guarded by mu; by address, or by name/address if a name was resolved to it
	asking int               // guarded by mu; requests under way
}

// place is an address. Only the goroutine that asks it changes found and err.
type place struct {
	to         transport.Target
	name       bool   // to be looked up, not dialed: in Config.Join, with a host name
	entry      string // the name in Config.Join, with its port, that was resolved to this address; "": none
	configured bool   // in Config.Join, or an address that a name there has now, and therefore kept
	source     uint64 // the member that has suggested the address; once one has answered there, that
	asking     bool
	next       time.Time        // when it is asked again
	failures   int              // since its last answer
	found      *wire.GossipMeta // the process that answered last; nil: none
	err        error            // of the last request; nil: it was answered
}

const (
	// MaxResolved bounds the addresses that all names in Config.Join stand for.
	MaxResolved = 256
	// maxHeard bounds the addresses that other processes suggest. A group has 64
	// founders at most.
	maxHeard = 128
	// maxAsking bounds the requests under way.
	maxAsking = 16
	// maxFailures is after how many failures a suggested address is dropped.
	maxFailures = 8
	// maxAddress bounds a suggested address: a DNS name and a port.
	maxAddress = 260
	// askMissing and askFound are the pauses between two requests to an address at which
	// no process was found, and at which one was.
	askMissing = 250 * time.Millisecond
	askFound   = time.Second
)

func newCandidates(self string, join []string) *candidates {
	c := &candidates{self: self, changed: wait.NewSignal(), news: wait.NewSignal(), places: make(map[string]*place)}
	for _, addr := range join {
		if addr != self {
			c.places[addr] = &place{to: transport.Target{Addr: addr}, configured: true}
		}
	}
	return c
}

// setNames marks the configured addresses whose host is a name to be looked up.
func (c *candidates) setNames(isName func(addr string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for addr, p := range c.places {
		p.name = p.configured && isName(addr)
	}
}

// target returns what to dial at a place, or that it is a name to be looked up.
func (c *candidates) target(key string) (to transport.Target, name bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.places[key].to, c.places[key].name
}

// hear notes an address that a member has suggested.
func (c *candidates) hear(addr string, source uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if addr == "" || addr == c.self || len(addr) > maxAddress || c.places[addr] != nil || c.isResolved(addr) || !c.makeRoom(source) {
		return
	}
	c.places[addr] = &place{to: transport.Target{Addr: addr, Advertised: true}, source: source}
	c.news.Set()
}

// makeRoom reports whether another address of a source can be noted. At the limit it drops
// one that does not answer, or else one of the source that has the most, so that a process
// cannot keep others from being found. It is called with mu held.
func (c *candidates) makeRoom(source uint64) bool {
	heard, shares := 0, make(map[uint64]int)
	for _, p := range c.places {
		if !p.configured {
			heard++
			shares[p.source]++
		}
	}
	if heard < maxHeard {
		return true
	}
	worse := func(x, y *place) int {
		return cmp.Or(cmp.Compare(x.failures, y.failures), cmp.Compare(shares[x.source], shares[y.source]))
	}
	worst := ""
	for _, addr := range slices.Sorted(maps.Keys(c.places)) {
		p := c.places[addr]
		if !p.configured && !p.asking && (worst == "" || worse(p, c.places[worst]) > 0) {
			worst = addr
		}
	}
	if p := c.places[worst]; p == nil || p.failures == 0 && shares[p.source] <= shares[source]+1 {
		return false
	}
	delete(c.places, worst)
	return true
}

// due returns the addresses to ask now, the longest overdue first, and when the next one
// is due; answered, failed or abandoned must follow for each.
func (c *candidates) due(now time.Time) (addrs []string, again time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	again = askFound
	byTime := func(x, y string) int {
		return cmp.Or(c.places[x].next.Compare(c.places[y].next), cmp.Compare(x, y))
	}
	for _, addr := range slices.SortedFunc(maps.Keys(c.places), byTime) {
		p := c.places[addr]
		switch {
		case p.asking:
		case p.next.After(now):
			again = min(again, p.next.Sub(now))
		case c.asking < maxAsking:
			p.asking = true
			c.asking++
			addrs = append(addrs, addr)
		default:
			again = min(again, askMissing)
		}
	}
	return addrs, again
}

// answered notes the process that answered at an address; nil: this one.
func (c *candidates) answered(addr string, found *wire.GossipMeta, now time.Time) {
	c.finish(addr, func(p *place) {
		p.found, p.err, p.failures, p.next = found, nil, 0, now.Add(askFound)
		p.source = cmp.Or(found.GetMember(), p.source)
	})
}

// failed notes that no process has answered at an address.
func (c *candidates) failed(addr string, err error, now time.Time) {
	c.finish(addr, func(p *place) {
		p.found, p.err, p.next = nil, err, now.Add(askMissing)
		if p.failures++; p.failures >= maxFailures && !p.configured {
			delete(c.places, addr)
		}
	})
}

// abandoned notes that the search ended before an address answered. What is known of it
// stays, since it explains what the search has not found.
func (c *candidates) abandoned(addr string) { c.finish(addr, func(*place) {}) }

// resolved notes the addresses that a name in Config.Join has now, or the error of its
// lookup. An address that the name has no longer is dropped once it does not answer.
func (c *candidates) resolved(name string, targets []transport.Target, err error, now time.Time) {
	var unresolved *net.DNSError
	known := err == nil || errors.As(err, &unresolved) && unresolved.IsNotFound
	c.finish(name, func(p *place) { p.err, p.next = err, now.Add(askFound) })
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.places {
		if known && p.entry == name {
			p.configured = false
		}
	}
	for _, to := range targets {
		key := to.Host + "/" + to.Addr
		switch p := c.places[key]; {
		case p != nil:
			p.configured = true
		case to.Addr != c.self && c.makeResolvedRoom():
			c.places[key] = &place{to: to, entry: name, configured: true}
			c.news.Set()
		}
	}
}

// makeResolvedRoom reports whether another resolved address can be noted. At the limit it
// drops one that its name has no longer. It is called with mu held.
func (c *candidates) makeResolvedRoom() bool {
	resolved, Former := 0, ""
	for _, key := range slices.Sorted(maps.Keys(c.places)) {
		p := c.places[key]
		if p.entry != "" {
			resolved++
		}
		if p.entry != "" && !p.configured && !p.asking && (Former == "" || p.failures > c.places[Former].failures) {
			Former = key
		}
	}
	if resolved < MaxResolved {
		return true
	}
	delete(c.places, Former)
	return Former != ""
}

// isResolved reports whether a name stands for an address, and no failed handshake shows
// that the address alone would do better. It is called with mu held.
func (c *candidates) isResolved(addr string) bool {
	for _, p := range c.places {
		if p.entry != "" && p.to.Addr == addr && transport.HandshakeFailure(p.err) == "" {
			return true
		}
	}
	return false
}

func (c *candidates) finish(addr string, change func(*place)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.places[addr]
	before := p.found
	p.asking = false
	c.asking--
	change(p)
	if before.GetMember() != p.found.GetMember() || before.GetBoot() != p.found.GetBoot() {
		c.changed.Set()
	}
}

// processes returns the processes found, by member: of each member the latest.
func (c *candidates) processes() []*wire.GossipMeta {
	c.mu.Lock()
	defer c.mu.Unlock()
	latest := make(map[uint64]*wire.GossipMeta)
	for _, addr := range slices.Sorted(maps.Keys(c.places)) {
		found := c.places[addr].found
		if old := latest[found.GetMember()]; found != nil && (old == nil || found.GetBoot() > old.GetBoot()) {
			latest[found.GetMember()] = found
		}
	}
	return slices.SortedFunc(maps.Values(latest), func(x, y *wire.GossipMeta) int {
		return cmp.Compare(x.GetMember(), y.GetMember())
	})
}

// isConfigured reports whether a member has answered at an address in Config.Join.
func (c *candidates) isConfigured(member uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.places { // order: any
		if p.configured && p.found.GetMember() == member {
			return true
		}
	}
	return false
}

// process returns the process found of a member; nil: none.
func (c *candidates) process(member uint64) *wire.GossipMeta {
	for _, found := range c.processes() {
		if found.GetMember() == member {
			return found
		}
	}
	return nil
}

// err returns the error of an address that was not answered; nil: all were. A failed
// handshake, which needs an operator, comes first, then a configured name that is not
// resolved, then a configured address.
func (c *candidates) err() (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	best := 0
	for _, addr := range slices.Sorted(maps.Keys(c.places)) {
		p, rank := c.places[addr], 0
		switch {
		case p.err == nil:
		case transport.HandshakeFailure(p.err) != "":
			rank = 4
		case p.name:
			rank = 3
		case p.configured:
			rank = 2
		default:
			rank = 1
		}
		if rank > best {
			best, err = rank, p.err
		}
	}
	return err
}
