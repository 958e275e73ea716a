package slots

import (
	"fmt"
	"sync"
)

// Memory bounds what a member holds in memory for all of its clients together: frames
// that arrive, what is gathered from several of them, requests, and what is queued. Each of
// these has a bound of its own for one connection; this one is for very many. Beyond it a
// connection is closed: of the host that has the most the one that has the most. So a client that takes
// it all harms none on another host.
type Memory struct {
	limit int
	full  error

	mu       sync.Mutex // guards what follows, and the accounts
	total    int
	accounts map[*Account]struct{} // those that hold something
}

// Account is what one connection holds.
type Account struct {
	memory *Memory
	host   string
	close  func(error)
	held   int
	closed bool // it counts no more
}

// NewMemory returns a bound of so many bytes. A connection beyond it is closed with an error that
// wraps full.
func NewMemory(limit int, full error) *Memory {
	return &Memory{limit: limit, full: full, accounts: make(map[*Account]struct{})}
}

// Open returns the account of a connection from a host. closeConn must not block.
func (m *Memory) Open(host string, closeConn func(error)) *Account {
	return &Account{memory: m, host: host, close: closeConn}
}

// Add counts bytes, or discounts them. It must not be called with a lock that closing a
// connection takes. A nil account counts nothing.
func (a *Account) Add(n int) {
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
	var victim *Account
	if n > 0 && m.total > m.limit {
		victim = m.victim()
		m.drop(victim)
	}
	m.mu.Unlock()
	if victim != nil {
		victim.close(fmt.Errorf("%w: the member holds %d MiB for its clients, and for this one the most", m.full, m.limit>>20))
	}
}

// End is called when the connection is closed.
func (a *Account) End() {
	a.memory.mu.Lock()
	defer a.memory.mu.Unlock()
	a.memory.drop(a)
}

// drop is called with mu held.
func (m *Memory) drop(a *Account) {
	if !a.closed {
		a.closed = true
		m.total -= a.held
		delete(m.accounts, a)
	}
}

// victim is called with mu held, and an account.
func (m *Memory) victim() (victim *Account) {
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

// Held returns the bytes of all accounts, and how many accounts hold any.
func (m *Memory) Held() (bytes, accounts int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total, len(m.accounts)
}
