// Package testport reserves ports for servers that a test starts later, or again after a stop.
package testport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// The ports that systems choose for other sockets begin at 32768 or above by default.
const first, end = 10_000, 32_768

// Addr returns a TCP address of the loopback interface at which nothing listens. A port that the system chose would do
// only until its listener closes: then the system can give it to another test. This one stays reserved until the
// test ends, by a UDP socket on the same port, from every test that reserves ports, also in another process.
func Addr(t testing.TB) string {
	t.Helper()
	n := rand.IntN(end - first)
	for range end - first {
		n = (n + 1) % (end - first)
		addr := fmt.Sprintf("127.0.0.1:%d", first+n)
		reservation, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue
		}
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			t.Cleanup(func() { reservation.Close() })
			return addr
		}
		reservation.Close()
	}
	t.Fatalf("no port from %d to %d is free", first, end-1)
	return ""
}
