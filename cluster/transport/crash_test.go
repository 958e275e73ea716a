package transport

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/cluster/crash"
	"github.com/conclave-go/conclave/internal/memnet"
	"github.com/conclave-go/conclave/internal/wire"
)

// watched is a pair of members, of which the first one watches whether the other one crashes.
type watched struct {
	t       *testing.T
	net     *memnet.Network
	crashes *crash.Evidence
	a, b    *node
}

const watchedAddr = "127.1.0.2:7000"

// watch connects two members in the bubble of the test.
func watch(t *testing.T) *watched {
	w := &watched{t: t, net: memnet.New(2), crashes: crash.NewEvidence(func() {})}
	w.a = start(t, identity(1), w.net.Listen(0, "127.1.0.1:7000"), func(c *Config) { c.Dial, c.Crashes = w.net.Dialer(0), w.crashes })
	w.b = w.start(identity(2))
	connectAll(t, w.a, w.b)
	return w
}

func (w *watched) start(id Identity) *node {
	return start(w.t, id, w.net.Listen(1, watchedAddr), func(c *Config) { c.Dial = w.net.Dialer(1) })
}

var (
	firstStart  = []crash.Process{{Member: m(2), Boot: identity(2).Boot}}
	secondStart = []crash.Process{{Member: m(2), Boot: identity(2).Boot + 1}}
)

// startAgain starts the next process of the watched member.
func (w *watched) startAgain() *node {
	next := identity(2)
	next.Boot, next.Incarnation = next.Boot+1, wire.ID{2, 2}
	b := w.start(next)
	b.SetPeer(m(1), w.a.addr)
	return b
}

var crashScenes = []struct {
	name string
	run  func(w *watched)
	want []crash.Process
}{
	{"the process ends", func(w *watched) { w.b.Close() }, firstStart},
	{"and its connections are reset", func(w *watched) {
		w.b.cfg.Listener.Close()
		w.net.Reset(1)
		w.b.Close()
	}, firstStart},
	{"nothing happens", func(*watched) {}, nil},
	{"the connections break", func(w *watched) { w.net.Reset(1) }, nil},
	{"the listener ends", func(w *watched) { w.b.cfg.Listener.Close() }, nil},
	{"the listener ends, and the connections from here break", func(w *watched) {
		w.b.cfg.Listener.Close()
		w.a.RemovePeer(m(2))
		w.a.SetPeer(m(2), watchedAddr)
	}, nil},
	{"a partition", func(w *watched) { w.net.Partition(0, 1) }, nil},
	{"a partition, behind which it ends", func(w *watched) {
		w.net.Partition(0, 1)
		time.Sleep(time.Minute)
		w.b.Close()
		w.net.Heal(0, 1)
	}, nil},
	{"it is removed here and ends", func(w *watched) {
		w.a.RemovePeer(m(2))
		w.b.Close()
	}, nil},
	{"it is dialed at another address, and ends", func(w *watched) {
		w.a.SetPeer(m(2), "127.1.0.2:7001")
		synctest.Wait()
		w.b.Close()
	}, nil},
	{"it ends, and has another address", func(w *watched) {
		w.b.Close()
		time.Sleep(time.Second)
		w.net.Listen(1, "127.1.0.2:7001")
		w.a.SetPeer(m(2), "127.1.0.2:7001")
	}, nil},
	{"it ends, and another program listens there", func(w *watched) {
		w.b.Close()
		time.Sleep(time.Second)
		w.net.Listen(1, watchedAddr)
	}, nil},
	{"it is started again", func(w *watched) {
		w.b.Close()
		time.Sleep(time.Second)
		w.startAgain()
	}, nil},
	{"it is started again, and ends", func(w *watched) {
		w.b.Close()
		time.Sleep(time.Second)
		b := w.startAgain()
		connectAll(w.t, w.a, b)
		b.Close()
	}, secondStart},
}

// A member has evidence that another one's process has crashed when its host has closed the connections in both directions and
// refuses the address, and in no other case.
func TestCrashes(t *testing.T) {
	for _, test := range crashScenes {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := watch(t)
				test.run(w)
				time.Sleep(20 * time.Second)
				synctest.Wait()
				if got := w.crashes.Crashed(); !slices.Equal(got, test.want) {
					t.Errorf("crashed: %v, want %v; %v", got, test.want, w.a.PeerError(m(2)))
				}
			})
		})
	}
}

// The errors of the operating system are recognized, and of TLS.
func TestCrashes_TCP(t *testing.T) {
	t.Run("plaintext", func(t *testing.T) { crashOverTCP(t, func(*Config) {}) })
	t.Run("TLS", func(t *testing.T) { crashOverTCP(t, withTLS(newAuthority(t).config(t))) })
}

func crashOverTCP(t *testing.T, secure func(*Config)) {
	changed := make(chan struct{}, 100)
	crashes := crash.NewEvidence(func() { changed <- struct{}{} })
	a := start(t, identity(1), listenTCP(t), func(c *Config) { secure(c); c.Crashes = crashes })
	b := start(t, identity(2), listenTCP(t), secure)
	connectAll(t, a, b)
	b.Close()
	<-changed
	if got, want := fmt.Sprint(crashes.Crashed()), fmt.Sprint(firstStart); got != want {
		t.Errorf("crashed: %s, want %s", got, want)
	}
}

// A name that stands for several addresses is refused if all of them are. Anything but a refusal by the host is none.
func TestIsRefused(t *testing.T) {
	listener := listenTCP(t)
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n := start(t, identity(1), listenTCP(t), withNames(names{
		"accepts": {"127.0.0.1"}, "refuses": {"127.0.0.2", "127.0.0.3"}, "both": {"127.0.0.2", "127.0.0.1"}, "nothing": nil,
	}))
	_, refused := new(net.Dialer).DialContext(t.Context(), "tcp", "127.0.0.2:"+port)
	for _, test := range []struct {
		host string
		err  error
		want bool
	}{
		{"127.0.0.2", &ConnectError{Err: refused}, true},
		{"127.0.0.2", &ConnectError{Err: refused, Handshake: true}, false},
		{"127.0.0.2", &ConnectError{Err: context.DeadlineExceeded}, false},
		{"127.0.0.2", &RefusedError{Reason: ReasonRemoved}, false},
		{"refuses", &ConnectError{Err: refused}, true},
		{"accepts", &ConnectError{Err: refused}, false},
		{"both", &ConnectError{Err: refused}, false},
		{"nothing", &ConnectError{Err: refused}, false},
		{"refuses", &ConnectError{Err: context.DeadlineExceeded}, false},
	} {
		if got := n.isRefused(t.Context(), net.JoinHostPort(test.host, port), test.err); got != test.want {
			t.Errorf("%s after %v: %t", test.host, test.err, got)
		}
	}
}
