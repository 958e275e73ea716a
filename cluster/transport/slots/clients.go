package slots

import (
	"container/list"
	"sync"
)

// Clients are the places of connections of proven clients. Remote hosts share them: when
// all are taken, a connection from a host that has fewer takes the place of the latest one of
// the host that has the most. So one host can use all of them as long as no other needs any,
// and never keeps another out. Those that were first stay: they may hold locks.
//
// Processes behind one address are one host here.
type Clients struct {
	limit int

	mu    sync.Mutex // guards what follows
	total int
	hosts map[string]*list.List // of *clientPlace, from the earliest; none is empty
}

// clientPlace is the place of one connection.
type clientPlace struct {
	host  string
	evict func()
	at    *list.Element // nil: given up, or taken by another
}

// NewClients returns slots for limit connections.
func NewClients(limit int) *Clients {
	return &Clients{limit: limit, hosts: make(map[string]*list.List)}
}

// Take takes a place until release. If another connection takes it first, evict is called.
func (c *Clients) Take(host string, evict func()) (release func(), ok bool) {
	c.mu.Lock()
	var victim *clientPlace
	if c.total >= c.limit {
		if victim = c.victim(host); victim == nil {
			c.mu.Unlock()
			return nil, false
		}
		c.remove(victim)
	}
	if c.hosts[host] == nil {
		c.hosts[host] = list.New()
	}
	p := &clientPlace{host: host, evict: evict}
	p.at = c.hosts[host].PushBack(p)
	c.total++
	c.mu.Unlock()
	if victim != nil {
		victim.evict()
	}
	return func() { c.release(p) }, true
}

// victim returns the place that a connection from the host takes; nil: none. It is called
// with mu held.
func (c *Clients) victim(host string) *clientPlace {
	var most *list.List
	for _, places := range c.hosts {
		if most == nil || places.Len() > most.Len() {
			most = places
		}
	}
	own := 0
	if places := c.hosts[host]; places != nil {
		own = places.Len()
	}
	if most == nil || most.Len() <= own+1 {
		return nil
	}
	return most.Back().Value.(*clientPlace)
}

func (c *Clients) release(p *clientPlace) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(p)
}

// remove is called with mu held. The place may have been removed before.
func (c *Clients) remove(p *clientPlace) {
	if p.at == nil {
		return
	}
	places := c.hosts[p.host]
	places.Remove(p.at)
	if p.at = nil; places.Len() == 0 {
		delete(c.hosts, p.host)
	}
	c.total--
}

// Count returns how many are taken.
func (c *Clients) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}
