package transport

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// relay listens in the place of a member, and passes what arrives to another process and
// back. It returns its address.
func relay(t *testing.T, to string) string {
	t.Helper()
	ln := listenTCP(t)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			dialer, err := ln.Accept()
			if err != nil {
				return
			}
			listener, err := net.Dial("tcp", to)
			if err != nil {
				dialer.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{dialer, listener}, {listener, dialer}} {
				running.Go(func() {
					_, _ = io.Copy(way[0], way[1]) // until either side closes
					dialer.Close()
					listener.Close()
				})
			}
		}
	})
	// The transports close first: their cleanups are registered later.
	t.Cleanup(func() { ln.Close(); running.Wait() })
	return ln.Addr().String()
}

// relayed starts members 1 and 2 of a group, and a relay to member 2 at another address.
// moved receives what member 1 learns of addresses.
func relayed(t *testing.T) (one, two *node, addr string, moved chan string) {
	t.Helper()
	ln := listenTCP(t)
	addr, moved = relay(t, ln.Addr().String()), make(chan string, 100)
	two = start(t, identity(2), ln, anyMember)
	one = start(t, identity(1), listenTCP(t), func(c *Config) {
		anyMember(c)
		c.Moved = func(member uint64, advertise, name string) {
			moved <- fmt.Sprint(number(member), " ", advertise, " ", name)
		}
	})
	return one, two, addr, moved
}

// A relay gets no connection of a dialer that has the address from the member that
// advertised it, or that names the member.
func TestRelay_Refused(t *testing.T) {
	one, two, addr, moved := relayed(t)
	for name, c := range map[string]struct {
		to     Target
		kind   wire.Kind
		reason Reason
		learns bool
	}{
		"frames to a member that has moved":             {Target{Addr: addr, Member: m(2), Advertised: true}, wire.Kind_PEER, ReasonAddress, true},
		"snapshot to a member that has moved":           {Target{Addr: addr, Member: m(2), Advertised: true}, wire.Kind_SNAPSHOT, ReasonAddress, true},
		"packets to a member that has moved":            {Target{Addr: addr, Member: m(2), Advertised: true}, wire.Kind_GOSSIP_PACKETS, ReasonAddress, true},
		"states to a member that has moved":             {Target{Addr: addr, Member: m(2), Advertised: true}, wire.Kind_GOSSIP_STREAM, ReasonAddress, true},
		"packets to another member":                     {Target{Addr: addr, Member: m(3), Advertised: true}, wire.Kind_GOSSIP_PACKETS, ReasonMember, true},
		"states to another member":                      {Target{Addr: addr, Member: m(3), Advertised: true}, wire.Kind_GOSSIP_STREAM, ReasonMember, true},
		"request to an address heard of":                {Target{Addr: addr, Advertised: true}, wire.Kind_FORM, ReasonAddress, false},
		"proposal to a founder":                         {Target{Addr: addr, Member: m(2), Advertised: true}, wire.Kind_FORM, ReasonAddress, false},
		"proposal to another founder":                   {Target{Addr: addr, Member: m(3), Advertised: true}, wire.Kind_FORM, ReasonMember, false},
		"states to a member that has a configured name": {Target{Addr: addr, Member: m(3)}, wire.Kind_GOSSIP_STREAM, ReasonMember, true},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := one.connect(t.Context(), c.to, c.kind)
			if err == nil {
				conn.Close()
			}
			detail := "is the address of member " + text(2) + ", not of " + text(3)
			if c.reason == ReasonAddress {
				detail = "member " + text(2) + " was dialed at " + addr + " and advertises " + two.addr
			}
			checkRefusal(t, err, c.reason, detail)
			if c.reason == ReasonAddress && !strings.Contains(err.Error(), "Config.Advertise") {
				t.Errorf("no advice: %v", err)
			}
			got := ""
			select {
			case got = <-moved:
			default:
			}
			want := ""
			if c.learns {
				want = "2 " + two.addr + " m2"
			}
			if got != want {
				t.Errorf("learned %q, want %q", got, want)
			}
		})
	}
}

// What gossip dials names the member, at every address but one to join.
func TestRelay_Gossip(t *testing.T) {
	one, two, addr, _ := relayed(t)
	dial := func(to Target) error {
		c, err := one.Gossip().DialStream(to, time.Minute)
		if err == nil {
			c.Close()
		}
		return err
	}
	member := func(n uint64, addr string) Target { return one.Gossip().MemberAt(m(n), addr) }
	checkRefusal(t, dial(member(2, addr)), ReasonAddress, "advertises "+two.addr)
	checkRefusal(t, dial(member(3, two.addr)), ReasonMember, "address of member "+text(2))
	// An address to join may be another name of the member.
	for _, err := range []error{dial(member(2, two.addr)), dial(Target{Addr: addr})} {
		if err != nil {
			t.Error(err)
		}
	}
	packet := func(to Target, content string) {
		t.Helper()
		if err := one.Gossip().SendPacket(to, ack(content)); err != nil {
			t.Fatal(err)
		}
	}
	packet(member(2, addr), "relayed")
	await(t, func() error { // the relayed link has ended
		one.Gossip().mu.Lock()
		defer one.Gossip().mu.Unlock()
		if n := len(one.Gossip().links); n > 0 {
			return fmt.Errorf("%d links", n)
		}
		return nil
	})
	packet(member(2, two.addr), "direct")
	if p := <-two.Gossip().Packets(); string(p.Body) != string(ack("direct")) {
		t.Errorf("member 2 received %q", p.Body)
	}
}

// A member that has moved is connected at its new address, even if its old one is answered.
func TestRelay_MovedMemberIsFollowed(t *testing.T) {
	one, two, addr, moved := relayed(t)
	one.SetPeer(m(2), addr)
	await(t, func() error {
		if err := one.PeerError(m(2)); reasonOf(err) != string(ReasonAddress) {
			return fmt.Errorf("got %v, want %s", err, ReasonAddress)
		}
		return nil
	})
	if one.Send(m(2), raftFrame("relayed")) {
		t.Error("a frame is sent to the relay")
	}
	one.SetPeer(m(2), strings.Fields(<-moved)[1])
	awaitConnected(t, one, m(2))
	one.Send(m(2), raftFrame("direct"))
	two.events.await(t, "frame 1 direct")
}

func TestResolvesTo(t *testing.T) {
	addrs := []string{"127.0.0.1:7000", "127.0.0.1:7001", "127.0.0.2:7000", "[::1]:7000", "7000"}
	for advertise, want := range map[string][]string{
		"127.0.0.1:7000":          {"127.0.0.1:7000"},
		"[::ffff:127.0.0.1]:7000": {"127.0.0.1:7000"},
		"[0:0::1]:7000":           {"[::1]:7000"},
		"host.example:7000":       {"127.0.0.1:7000", "127.0.0.2:7000", "[::1]:7000"},
		"host.example":            nil,
	} {
		var got []string
		for _, addr := range addrs {
			if resolvesTo(advertise, addr) {
				got = append(got, addr)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s resolves to %q, want %q", advertise, got, want)
		}
	}
}
