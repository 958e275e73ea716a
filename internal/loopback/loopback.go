// Package loopback recognizes HTTP requests of programs on this machine. What serves without
// authorization serves only these.
package loopback

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// IsFrom reports whether a request comes from this machine and asks for it by a name that is
// certain to mean it. Any other host may be a name of a site that resolves to a loopback
// address, so that the browser takes its script for the server's own (DNS rebinding). What
// a proxy forwards comes from this machine as well; one that adds no header of its own is
// not noticed.
//
// A client of a Unix socket is on this machine, and no browser; it may use any name, as Consul's
// client for Go uses that of the file. The file's permissions say which users it may have.
func IsFrom(r *http.Request) bool {
	for name := range r.Header { // whatever the values: a proxy may add its line behind an empty one
		if strings.HasPrefix(name, "X-Forwarded-") || slices.Contains(ofProxies(), name) {
			return false
		}
	}
	if !r.ProtoAtLeast(1, 1) { // no browser speaks HTTP/1.0, as nginx does by default to what is behind it
		return false
	}
	if _, ok := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr); ok {
		return true
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback() && names(r.Host)
}

// ofProxies returns headers that proxies add, besides X-Forwarded-For and its like.
func ofProxies() []string {
	return []string{"Forwarded", "Via", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip"}
}

// names reports whether a Host header names a loopback address.
func names(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	addr, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && addr.Unmap().IsLoopback()
}
