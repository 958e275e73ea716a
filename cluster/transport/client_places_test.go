package transport

import (
	"context"
	"net"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// One host that takes every place of clients keeps no other host out.
func TestListener_ClientsOfOtherHost(t *testing.T) {
	second, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Skip("this machine has no second loopback address: ", err)
	}
	_ = second.Close()
	a, ended := serving(t, func(c *Config) { c.Limits.Clients = 3 })
	many := dialer(t, nil)
	var last *ClientConn
	for n := range 3 {
		c, err := many.Connect(t.Context(), Target{Addr: a.addr}, clientKey(n), wire.ID{})
		if err != nil {
			t.Fatal(err)
		}
		roundTrip(t, c, 1) // so the member serves it: of one that is evicted before, it reports no end
		last = c
	}
	other := dialer(t, func(c *DialerConfig) {
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
			return d.DialContext(ctx, "tcp", addr)
		}
	})
	c, err := other.Connect(t.Context(), Target{Addr: a.addr}, clientKey(7), wire.ID{})
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, c, 1)
	<-ended
	if err := last.Read(new(wire.MemberFrame)); err == nil {
		t.Error("the latest client of the first host is still connected")
	}
	_, err = many.Connect(t.Context(), Target{Addr: a.addr}, clientKey(8), wire.ID{})
	checkRefusal(t, err, ReasonBusy, "from no host more than from this one")
}
