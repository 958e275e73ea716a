package transport

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
)

func TestRemovePeer_ClosesBothDirections(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), nil)
	b := start(t, identity(2), listenTCP(t), nil)
	connectAll(t, a, b)
	a.events.await(t, "connected 2") // b has connected before a notices
	b.events.await(t, "connected 1")
	a.RemovePeer(m(2))
	a.events.await(t, "lost 2")
	b.events.await(t, "lost 1")
	if err := a.PeerError(m(2)); !errors.Is(err, ErrUnknownPeer) {
		t.Error(err)
	}
	await(t, func() error {
		b.Redial(m(1))
		if refused := new(RefusedError); !errors.As(b.PeerError(m(1)), &refused) || refused.Reason != ReasonNotMember {
			return fmt.Errorf("not refused as not a member: %v", b.PeerError(m(1)))
		}
		return nil
	})
}

// The loss of a member that is removed while a newer connection from it replaces an older
// one is reported.
func TestRemovePeer_DuringReplacement(t *testing.T) {
	a := memberOne(t)
	a.events.stall = make(chan struct{})
	connect := func() net.Conn {
		c, refusal := greetAs(t, a.addr, memberTwo())
		if refusal != "" {
			t.Fatal(refusal)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	current := func() *inbound {
		a.peers.mu.Lock()
		defer a.peers.mu.Unlock()
		return a.inbound[m(2)]
	}
	c := connect()
	a.events.await(t, "connected 2")
	older := current()
	buf, err := appendMessage(nil, raftFrame("stalls the older connection"))
	if err == nil {
		_, err = c.Write(buf)
	}
	if err != nil {
		t.Fatal(err)
	}
	a.events.await(t, "frame 2")
	connect()
	await(t, func() error {
		if current() == older {
			return errors.New("the newer connection is not registered")
		}
		return nil
	})
	newer := current()
	a.RemovePeer(m(2))
	close(a.events.stall)
	<-newer.done
	select {
	case got := <-a.events.ch:
		if got != "lost 2" {
			t.Errorf("got %q, want the loss", got)
		}
	default:
		t.Error("the loss is not reported")
	}
}

// A member that is removed between the check of its hello and the registration of
// its connection does not stay connected.
func TestRemovePeer_DuringHandshake(t *testing.T) {
	var a *node
	var removed atomic.Bool
	a = start(t, identity(1), listenTCP(t), func(c *Config) {
		c.Member = func(uint64) bool {
			if removed.Swap(true) {
				return false
			}
			a.RemovePeer(m(2))
			return true
		}
	})
	b := start(t, identity(2), listenTCP(t), nil)
	b.SetPeer(m(1), a.addr)
	await(t, func() error {
		if refused := new(RefusedError); !errors.As(b.PeerError(m(1)), &refused) || refused.Reason != ReasonNotMember {
			return fmt.Errorf("not refused as not a member: %v", b.PeerError(m(1)))
		}
		return nil
	})
}
