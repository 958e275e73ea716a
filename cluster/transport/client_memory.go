package transport

import (
	"fmt"
	"sync"
)

// clientMemory bounds what a member holds in memory for all of its clients together: frames
// that arrive, what is gathered from several of them, requests, and what is queued. Each of
// these has a bound of its own for one connection; this one is for very many. Beyond it a
// connection is closed: of the host that has the most the one that has the most. So a client that takes
// it all harms none on another host.
type clientMemory struct {
	limit int

	mu       sync.Mutex // guards what follows, and the accounts
	total    int
	accounts map[*clientAccount]struct{} // those that hold something
}

// clientAccount is what one connection holds.
type clientAccount struct {
	memory *clientMemory
	host   string
	close  func(error)
	held   int
	closed bool // it counts no more
}

func newClientMemory(limit int) *clientMemory {
	return &clientMemory{limit: limit, accounts: make(map[*clientAccount]struct{})}
}

func (m *clientMemory) open(host string, closeConn func(error)) *clientAccount {
	return &clientAccount{memory: m, host: host, close: closeConn}
}

// add counts bytes, or discounts them. It must not be called with a lock that closing a
// connection takes. A nil account counts nothing.
func (a *clientAccount) add(n int) {
	if a == nil || n == 0 {
		return
	}
	m := a.memory
	m.mu.Lock()
	if a.closed {
		m.mu.Unlock()
		return
	}
	a.held += n
	m.total += n
	if a.held == 0 {
		delete(m.accounts, a)
	} else {
		m.accounts[a] = struct{}{}
	}
	var victim *clientAccount
	if n > 0 && m.total > m.limit {
		victim = m.victim()
		m.drop(victim)
	}
	m.mu.Unlock()
	if victim != nil {
		victim.close(fmt.Errorf("%w: the member holds %d MiB for its clients, and for this one the most", ErrQueueFull, m.limit>>20))
	}
}

// end is called when the connection is closed.
func (a *clientAccount) end() {
	a.memory.mu.Lock()
	defer a.memory.mu.Unlock()
	a.memory.drop(a)
}

// drop is called with mu held.
func (m *clientMemory) drop(a *clientAccount) {
	if !a.closed {
		a.closed = true
		m.total -= a.held
		delete(m.accounts, a)
	}
}

// victim is called with mu held, and an account.
func (m *clientMemory) victim() (victim *clientAccount) {
	hosts := make(map[string]int)
	for a := range m.accounts { // order: sums
		hosts[a.host] += a.held
	}
	for a := range m.accounts { // order: of equals it does not matter which
		if victim == nil || hosts[a.host] > hosts[victim.host] || a.host == victim.host && a.held > victim.held {
			victim = a
		}
	}
	return victim
}
