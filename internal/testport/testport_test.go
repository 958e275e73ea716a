package testport_test

import (
	"net"
	"testing"

	"github.com/conclave-go/conclave/internal/testport"
)

// A reserved port is not reserved again, although nothing listens there, until the test that reserved it has ended.
func TestAddr_NeverTwice(t *testing.T) {
	seen := make(map[string]bool)
	for range 500 {
		addr := testport.Addr(t)
		if seen[addr] {
			t.Fatal(addr, "was reserved twice")
		}
		seen[addr] = true
	}
	for addr := range seen {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		if _, err := net.ListenPacket("udp", addr); err == nil {
			t.Fatal(addr, "is not reserved")
		}
	}
}

func TestAddr_FreeAfterTest(t *testing.T) {
	var addr string
	t.Run("reserves", func(t *testing.T) { addr = testport.Addr(t) })
	c, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}
