package transport

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"slices"
)

// maxResolved bounds the addresses that one host name stands for. A group has 64 founders
// at most.
const maxResolved = 64

// Resolves reports whether Resolve looks up the host of an address: it is a name, and the
// transport dials by itself. Config.Dial gets names as they are, since it may reach hosts
// that only it can resolve.
func (t *Transport) Resolves(addr string) bool { return t.network.resolves(addr) }

func (n network) resolves(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || n.dialer != nil && n.resolver == nil {
		return false
	}
	_, err = netip.ParseAddr(host)
	return err != nil
}

// Resolve returns a target for each address that the host of addr has now, at most 64; if
// Resolves is false, one for addr itself. It blocks until the name service answers, ctx is
// done, or Timing.Dial has passed. The error is a *ConnectError.
func (t *Transport) Resolve(ctx context.Context, addr string) ([]Target, error) {
	bounded, cancel := context.WithTimeout(ctx, t.cfg.Timing.Dial)
	defer cancel()
	targets, err := t.network.resolve(bounded, addr)
	if err != nil {
		err = &ConnectError{Addr: addr, Err: err}
		t.failures.outbound(ctx, Target{Addr: addr}, err)
		return nil, err
	}
	return targets, nil
}

func (n network) resolve(ctx context.Context, addr string) ([]Target, error) {
	if !n.resolves(addr) {
		return []Target{{Addr: addr}}, nil
	}
	host, port, _ := net.SplitHostPort(addr) // resolves has checked it
	ips, err := n.lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	ips = slices.Compact(ips)
	ips = ips[:min(maxResolved, len(ips))]
	targets := make([]Target, len(ips))
	for i, ip := range ips {
		targets[i] = Target{Addr: net.JoinHostPort(ip.String(), port), Host: host}
	}
	return targets, nil
}

// lookup returns the addresses of a host, at least one.
func (n network) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	lookup := n.resolver
	if lookup == nil {
		lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	ips, err := lookup(ctx, host)
	if err == nil && len(ips) == 0 {
		err = &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if err != nil {
		return nil, withCause(ctx, err)
	}
	ips = slices.Clone(ips)
	for i := range ips {
		ips[i] = ips[i].Unmap()
	}
	return ips, nil
}

// certificateHost returns the host whose certificate is expected: the name that was resolved,
// or the host of the address.
func (to Target) certificateHost() string {
	host, _, err := net.SplitHostPort(to.Addr)
	if err != nil {
		return to.Host
	}
	return cmp.Or(to.Host, host)
}
