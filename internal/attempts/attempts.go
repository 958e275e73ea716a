// Package attempts limits how often a remote host may fail at what needs an authorization, so that
// a password cannot be guessed fast and refusals cannot fill a log.
package attempts

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// Burst is how many attempts may fail at once: enough for a person who mistypes.
	Burst = 10
	// Every is after how long one more attempt may fail.
	Every = 10 * time.Second

	maxHosts = 4096
)

// Limiter counts the failed attempts of each remote host. A host that fails too often has to wait;
// no host's attempts count for another. The zero value is ready to use. Its methods may be called
// concurrently.
type Limiter struct {
	mu    sync.Mutex
	hosts map[string]*list.Element // guarded by mu; of *bucket
	used  list.List                // guarded by mu; the least recently used first
}

// bucket is a token bucket.
type bucket struct {
	host    string
	tokens  int
	filled  time.Time // the time up to which tokens were added
	refused bool      // the latest attempt
}

// Begin begins an attempt, which counts as failed unless [Limiter.Succeeded] follows. wait is 0, or for how long
// the host must wait; then there is no attempt, and first reports that the one before was
// not refused.
func (l *Limiter) Begin(host string) (wait time.Duration, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	b := l.bucket(host, now)
	if added := int(now.Sub(b.filled) / Every); added > 0 {
		b.tokens, b.filled = min(Burst, b.tokens+added), b.filled.Add(time.Duration(added)*Every)
	}
	if b.tokens == 0 {
		first, b.refused = !b.refused, true
		return b.filled.Add(Every).Sub(now), first
	}
	if b.tokens == Burst {
		b.filled = now
	}
	b.tokens--
	b.refused = false
	return 0, false
}

// Succeeded says that an attempt that began has not failed.
func (l *Limiter) Succeeded(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.hosts[host]; e != nil {
		b := e.Value.(*bucket)
		b.tokens = min(Burst, b.tokens+1)
	}
}

// bucket returns that of a host. A new one may replace the one that was not used for the longest time. It is
// called with mu held.
func (l *Limiter) bucket(host string, now time.Time) *bucket {
	if e := l.hosts[host]; e != nil {
		l.used.MoveToBack(e)
		return e.Value.(*bucket)
	}
	if l.hosts == nil {
		l.hosts = make(map[string]*list.Element)
	}
	if len(l.hosts) == maxHosts {
		oldest := l.used.Front()
		delete(l.hosts, oldest.Value.(*bucket).host)
		l.used.Remove(oldest)
	}
	b := &bucket{host: host, tokens: Burst, filled: now}
	l.hosts[host] = l.used.PushBack(b)
	return b
}

// Host returns the host of a request's remote address. One of IPv6 is its network of 64 bits, since a machine
// has all addresses of that.
func Host(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	addr = addr.Unmap().WithZone("")
	if addr.Is6() && !addr.IsLoopback() {
		network, _ := addr.Prefix(64) // a valid length
		return network.String()
	}
	return addr.String()
}
