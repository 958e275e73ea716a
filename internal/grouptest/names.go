package grouptest

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
)

// NameService is a name service in memory, for cluster.Seams.Lookup. Its methods may be
// called from any goroutine.
type NameService struct {
	mu    sync.Mutex
	hosts map[string][]netip.Addr // guarded by mu
}

// Add makes a host resolve to another address, given with or without a port.
func (s *NameService) Add(host, addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hosts == nil {
		s.hosts = make(map[string][]netip.Addr)
	}
	s.hosts[host] = append(s.hosts[host], addressOf(addr))
}

// Remove makes a host not resolve to an address any more.
func (s *NameService) Remove(host, addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hosts[host] = slices.DeleteFunc(s.hosts[host], func(a netip.Addr) bool { return a == addressOf(addr) })
}

// Lookup returns the addresses of a host.
func (s *NameService) Lookup(_ context.Context, host string) ([]netip.Addr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.hosts[host]) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return slices.Clone(s.hosts[host]), nil
}

func addressOf(addr string) netip.Addr {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		addr = host
	}
	return netip.MustParseAddr(addr)
}
