package transport

import (
	"crypto/tls"
	"errors"
	"net"
	"runtime"
	"testing"

	"github.com/conclave-go/conclave/internal/hostile"
)

// idleClients connects clients over raw connections, and returns the heap and the stacks that
// each of them takes. That includes the client's socket, and with TLS its end of TLS.
func idleClients(t testing.TB, addr string, n int, connect func(raw net.Conn) (net.Conn, error)) int {
	t.Helper()
	measure := func() int {
		for range 3 { // stacks shrink by half with each collection
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc + m.StackInuse)
	}
	before := measure()
	conns := make([]net.Conn, n)
	for i := range conns {
		raw, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if conns[i], err = connect(raw); err != nil {
			t.Fatal(err)
		}
	}
	each := (measure() - before) / n
	for _, c := range conns {
		c.Close()
	}
	return each
}

// The bounds have room for the race detector. What is measured is in the log of the test.
func TestClientConn_IdleMemory(t *testing.T) {
	ca := newAuthority(t)
	for _, c := range []struct {
		name  string
		tls   *tls.Config
		bound int // bytes
	}{
		{"plaintext", nil, 48 << 10},
		{"TLS", ca.config(t), 160 << 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, _ := serving(t, func(cfg *Config) { cfg.TLS = c.tls })
			each := idleClients(t, a.addr, 500, func(raw net.Conn) (net.Conn, error) { return greetRaw(raw, c.tls) })
			t.Logf("%d bytes for each idle client", each)
			if each > c.bound {
				t.Errorf("%d bytes for each idle client, want at most %d", each, c.bound)
			}
		})
	}
}

// greetRaw runs the handshake of client 1.
func greetRaw(raw net.Conn, secure *tls.Config) (net.Conn, error) {
	key := hostile.NewKey()
	if secure != nil {
		cfg := secure.Clone()
		cfg.ServerName = "127.0.0.1"
		client := tls.Client(raw, cfg)
		if err := client.Handshake(); err != nil {
			return nil, err
		}
		raw = client
	}
	_, refusal, err := hostile.Over(raw, key, hostile.ClientHello(key, "test"))
	if refusal != "" {
		err = errors.New(refusal)
	}
	return raw, err
}
