package transport

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// opening is a hello as a test changes it before it is sent.
type opening struct {
	id   Identity
	kind wire.Kind
	to   uint64
}

// refusals lists what a hello of member 2 may get wrong, seen by member 1 that
// knows members 2 and 3 and has seen boot 5 of member 2.
var refusals = []struct {
	name   string
	change func(*opening)
	reason Reason
	says   string
}{
	{"another group", func(o *opening) { o.id.Group = "other" }, ReasonGroup, `group "other"`},
	{"another cluster", func(o *opening) { o.id.Cluster = wire.ID{9} }, ReasonCluster, "one member belongs to cluster 09000000"},
	{"another cluster, gossip", func(o *opening) { o.id.Cluster = wire.ID{9}; o.kind = wire.Kind_GOSSIP_STREAM }, ReasonCluster, "cluster"},
	{"no cluster yet", func(o *opening) { o.id.Cluster = wire.ID{} }, ReasonNoCluster, "belongs to no cluster yet"},
	{"no cluster yet, snapshot", func(o *opening) { o.id.Cluster = wire.ID{}; o.kind = wire.Kind_SNAPSHOT }, ReasonNoCluster, "no cluster"},
	{"wrong address", func(o *opening) { o.to = 7 }, ReasonMember, "address of member 1, not of 7"},
	{"itself", func(o *opening) { o.id.Member = 1; o.id.Incarnation = wire.ID{1, 1} }, ReasonSelf, "leads back"},
	{"a copy of the listener", func(o *opening) { o.id.Member = 1 }, ReasonClone, "copy of the other's directory"},
	{"a copy of a member", func(o *opening) { o.id.Incarnation = wire.ID{2, 99} }, ReasonClone, "start number 5 of member 2"},
	{"rolled back", func(o *opening) { o.id.Boot = 4 }, ReasonRollback, "its start number 5 was seen"},
	{"rolled back, gossip", func(o *opening) { o.id.Boot = 4; o.kind = wire.Kind_GOSSIP_PACKETS }, ReasonRollback, "empty directory"},
	{"a stranger", func(o *opening) { o.id.Member = 4 }, ReasonStranger, "member 4 is not known here"},
	{"no kind", func(o *opening) { o.kind = wire.Kind_KIND_UNSPECIFIED }, ReasonKind, "KIND_UNSPECIFIED"},
	{"a kind of the future", func(o *opening) { o.kind = 99 }, ReasonKind, "99"},
	{"no member", func(o *opening) { o.id.Member = 0 }, ReasonMalformed, "needs a member"},
	{"no incarnation", func(o *opening) { o.id.Incarnation = wire.ID{} }, ReasonMalformed, "incarnation"},
}

func memberTwo() opening {
	id := identity(2)
	id.Boot = 5
	return opening{id: id, kind: wire.Kind_PEER, to: 1}
}

// shake plays the dialer's part by hand and returns the answer.
func shake(t *testing.T, addr string, o opening) (net.Conn, *hello) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeHello(c, o.id, o.kind, o.to, ""); err != nil {
		t.Fatal(err)
	}
	h, err := readHello(c)
	if err != nil {
		t.Fatal(err)
	}
	return c, h
}

func TestListenerRefuses(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), nil)
	a.SetPeer(2, "127.0.0.1:1")
	a.SetPeer(3, "127.0.0.1:1")
	c, h := shake(t, a.addr, memberTwo()) // from now on boot 5 of this incarnation is known
	defer c.Close()
	if h.refusal != "" || h.Member != 1 {
		t.Fatalf("a proper hello was answered with %+v", h)
	}
	a.events.await(t, "connected 2")
	for _, r := range refusals {
		t.Run(r.name, func(t *testing.T) {
			o := memberTwo()
			r.change(&o)
			c, h := shake(t, a.addr, o)
			defer c.Close()
			checkRefusal(t, parseRefusal(a.addr, h.refusal), r.reason, r.says)
			if _, err := c.Read(make([]byte, 1)); err == nil {
				t.Error("the connection stayed open")
			}
		})
	}
}

func checkRefusal(t *testing.T, err error, reason Reason, says string) {
	t.Helper()
	var refused *RefusedError
	if !errors.As(err, &refused) {
		t.Fatalf("got %v, want a refusal: %s", err, reason)
	}
	if refused.Reason != reason || !strings.Contains(refused.Detail, says) {
		t.Errorf("refused with %q: %q, want %q and %q in it", refused.Reason, refused.Detail, reason, says)
	}
}

// answerWith is a listener that answers every hello with the one given.
func answerWith(t *testing.T, o opening) string {
	t.Helper()
	ln := listenTCP(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			if _, err := readHello(c); err == nil && writeHello(c, o.id, o.kind, o.to, "") == nil {
				_, _ = c.Read(make([]byte, 1)) // until the dialer has closed
			}
			c.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr().String()
}

// The dialer is as strict with the answer, whatever the listener thinks of it.
func TestDialerRefuses(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), nil)
	two := memberTwo().id
	if err := a.boots.admit(&two); err != nil {
		t.Fatal(err)
	}
	for _, r := range refusals {
		o := memberTwo()
		r.change(&o)
		if r.reason == ReasonKind || r.reason == ReasonStranger || o.kind != wire.Kind_PEER || o.to != 1 {
			continue // not for the dialer to check
		}
		t.Run(r.name, func(t *testing.T) {
			addr := answerWith(t, o)
			_, err := a.connect(context.Background(), addr, wire.Kind_PEER, o.id.Member)
			checkRefusal(t, err, r.reason, r.says)
			if refused := new(RefusedError); errors.As(err, &refused) && (!refused.Here || refused.Addr != addr) {
				t.Errorf("%+v does not say who refused whom", refused)
			}
		})
	}
	t.Run("another member than expected", func(t *testing.T) {
		_, err := a.connect(context.Background(), answerWith(t, memberTwo()), wire.Kind_PEER, 3)
		checkRefusal(t, err, ReasonMember, "member 3 was expected, 2 answered")
	})
}

func TestProtocolRange(t *testing.T) {
	for _, c := range []struct {
		name     string
		min, max uint32
		ok       bool
	}{
		{"the same", wire.ProtocolMin, wire.ProtocolMax, true},
		{"newer, but compatible", wire.ProtocolMax, wire.ProtocolMax + 5, true},
		{"too new", wire.ProtocolMax + 1, wire.ProtocolMax + 5, false},
		{"too old", 0, wire.ProtocolMin - 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			body, err := proto.Marshal(&wire.Hello{MinProtocol: c.min, MaxProtocol: c.max, Member: 1, Incarnation: make([]byte, 15, 16)})
			if err != nil {
				t.Fatal(err)
			}
			_, err = parseHello(body)
			want := ReasonProtocol
			if c.ok {
				want = ReasonMalformed // by its incarnation: it got past the versions
			}
			checkRefusal(t, err, want, "")
		})
	}
}

// What the dialer is told must tell a person what to do.
func TestRefusalIsTypedAtTheDialer(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), nil)
	id := identity(2)
	id.Group = "other"
	b := start(t, id, listenTCP(t), nil)
	b.SetPeer(1, a.addr)
	await(t, func() error {
		if err := b.PeerError(1); errors.Is(err, ErrNotConnected) {
			return err
		}
		return nil
	})
	err := b.PeerError(1)
	checkRefusal(t, err, ReasonGroup, `group "other"`)
	if want := "refused by the member at " + a.addr; !strings.Contains(err.Error(), want) {
		t.Errorf("%q does not contain %q", err, want)
	}
}

func TestRefusalOfALaterVersion(t *testing.T) {
	got := parseRefusal("here", "wrong moon phase: wait")
	if got.Reason != ReasonOther || got.Detail != "wrong moon phase: wait" {
		t.Errorf("got %+v", got)
	}
}

func TestBootsAreToldOnce(t *testing.T) {
	var told []uint64
	b := newBoots(map[uint64]uint64{2: 5}, func(_, boot uint64) { told = append(told, boot) })
	for _, boot := range []uint64{5, 6, 6, 8} {
		id := identity(2)
		id.Boot, id.Incarnation = boot, wire.ID{byte(boot)}
		if err := b.admit(&id); err != nil {
			t.Fatal(err)
		}
	}
	if len(told) != 2 || told[0] != 6 || told[1] != 8 {
		t.Errorf("raised to %v, want 6 and 8", told)
	}
}

// FuzzHello feeds its input as what comes from the network, and as the body of
// a sound frame, past which the checksum would hardly let it.
func FuzzHello(f *testing.F) {
	var good bytes.Buffer
	if err := writeHello(&good, identity(2), wire.Kind_PEER, 1, ""); err != nil {
		f.Fatal(err)
	}
	f.Add(good.Bytes())
	f.Add(good.Bytes()[len(magic)+frameHeader:])
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		h, err := readHello(r)
		checkHello(t, h, err)
		if read := len(in) - r.Len(); read > len(magic)+frameHeader+maxHello {
			t.Fatalf("read %d bytes", read)
		}
		h, err = parseHello(in)
		checkHello(t, h, err)
	})
}

func checkHello(t *testing.T, h *hello, err error) {
	t.Helper()
	if (h == nil) == (err == nil) {
		t.Fatalf("hello %v, error %v", h, err)
	}
	if err == nil && h.refusal == "" && (h.Member == 0 || h.Incarnation.IsZero()) {
		t.Fatalf("accepted %+v", h)
	}
}
