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

// opening is the content of a hello that a test sends.
type opening struct {
	id   Identity
	kind wire.Kind
	to   uint64
}

// refusals are hellos of member 2 that member 1 refuses. Member 1 has the peers 2
// and 3 and has seen boot counter 5 of member 2.
var refusals = []struct {
	name   string
	change func(*opening)
	reason Reason
	detail string // contained in the refusal
}{
	{"another group", func(o *opening) { o.id.Group = "other" }, ReasonGroup, `group "other"`},
	{"another cluster", func(o *opening) { o.id.Cluster = wire.ID{9} }, ReasonCluster, "one member belongs to cluster 09000000"},
	{"another cluster, gossip", func(o *opening) { o.id.Cluster = wire.ID{9}; o.kind = wire.Kind_GOSSIP_STREAM }, ReasonCluster, "cluster"},
	{"no cluster yet", func(o *opening) { o.id.Cluster = wire.ID{} }, ReasonNoCluster, "belongs to no cluster yet"},
	{"no cluster yet, snapshot", func(o *opening) { o.id.Cluster = wire.ID{}; o.kind = wire.Kind_SNAPSHOT }, ReasonNoCluster, "no cluster"},
	{"wrong address", func(o *opening) { o.to = 7 }, ReasonMember, "address of member 0000000000000001, not of 0000000000000007"},
	{"connected to itself", func(o *opening) { o.id.Member = 1; o.id.Incarnation = wire.ID{1, 1} }, ReasonSelf, "member that dialed it"},
	{"copy of the listener", func(o *opening) { o.id.Member = 1 }, ReasonClone, "on a copy of the data directory"},
	{"copy of a member", func(o *opening) { o.id.Incarnation = wire.ID{2, 99} }, ReasonClone, "boot counter 5 of member 0000000000000002"},
	{"rolled back", func(o *opening) { o.id.Boot = 4 }, ReasonRollback, "boot counter 4 after 5 was seen"},
	{"rolled back, gossip", func(o *opening) { o.id.Boot = 4; o.kind = wire.Kind_GOSSIP_PACKETS }, ReasonRollback, "cannot add a member to an existing group"},
	{"not a member", func(o *opening) { o.id.Member = 4 }, ReasonNotMember, "member 0000000000000004 is unknown"},
	{"removed", func(o *opening) { o.id.Member = 5 }, ReasonRemoved, "the group has removed member 0000000000000005"},
	{"no kind", func(o *opening) { o.kind = wire.Kind_KIND_UNSPECIFIED }, ReasonKind, "KIND_UNSPECIFIED"},
	{"unknown kind", func(o *opening) { o.kind = 99 }, ReasonKind, "99"},
	{"no member", func(o *opening) { o.id.Member = 0 }, ReasonMalformed, "needs a member"},
	{"no incarnation", func(o *opening) { o.id.Incarnation = wire.ID{} }, ReasonMalformed, "incarnation"},
}

func memberTwo() opening {
	id := identity(2)
	id.Boot = 5
	return opening{id: id, kind: wire.Kind_PEER, to: 1}
}

// greetAs sends the dialer's hello and returns the answer.
func greetAs(t *testing.T, addr string, o opening) (net.Conn, *hello) {
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

func TestListener_RefusesHello(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), func(c *Config) { c.Removed = func(member uint64) bool { return member == 5 } })
	a.SetPeer(2, "127.0.0.1:1")
	a.SetPeer(3, "127.0.0.1:1")
	c, h := greetAs(t, a.addr, memberTwo()) // records boot counter 5 of this incarnation
	defer c.Close()
	if h.refusal != "" || h.Member != 1 {
		t.Fatalf("a valid hello was answered with %+v", h)
	}
	a.events.await(t, "connected 2")
	for _, r := range refusals {
		t.Run(r.name, func(t *testing.T) {
			o := memberTwo()
			r.change(&o)
			c, h := greetAs(t, a.addr, o)
			defer c.Close()
			checkRefusal(t, parseRefusal(1, a.addr, h.refusal), r.reason, r.detail)
			if _, err := c.Read(make([]byte, 1)); err == nil {
				t.Error("the connection stayed open")
			}
		})
	}
}

func checkRefusal(t *testing.T, err error, reason Reason, detail string) {
	t.Helper()
	var refused *RefusedError
	if !errors.As(err, &refused) {
		t.Fatalf("got %v, want a refusal: %s", err, reason)
	}
	if refused.Reason != reason || !strings.Contains(refused.Detail, detail) {
		t.Errorf("got %q: %q, want %q with %q", refused.Reason, refused.Detail, reason, detail)
	}
}

// answerWith starts a listener that answers every hello with o.
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

// The dialer checks the answer itself, even if the listener accepts the hello.
func TestDialer_RefusesHello(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), nil)
	two := memberTwo().id
	if err := a.boots.advance(&two); err != nil {
		t.Fatal(err)
	}
	for _, r := range refusals {
		o := memberTwo()
		r.change(&o)
		if r.reason == ReasonKind || r.reason == ReasonNotMember || r.reason == ReasonRemoved || o.kind != wire.Kind_PEER || o.to != 1 {
			continue // the listener alone checks these
		}
		t.Run(r.name, func(t *testing.T) {
			addr := answerWith(t, o)
			_, err := a.connect(context.Background(), addr, wire.Kind_PEER, o.id.Member)
			checkRefusal(t, err, r.reason, r.detail)
			if refused := new(RefusedError); errors.As(err, &refused) && (!refused.Here || refused.Addr != addr) {
				t.Errorf("got %+v, want Here and Addr %s", refused, addr)
			}
		})
	}
	t.Run("another member than expected", func(t *testing.T) {
		_, err := a.connect(context.Background(), answerWith(t, memberTwo()), wire.Kind_PEER, 3)
		checkRefusal(t, err, ReasonMember, "address of member 0000000000000002, not of 0000000000000003")
	})
}

func TestHello_ProtocolRange(t *testing.T) {
	for _, c := range []struct {
		name     string
		min, max uint32
		ok       bool
	}{
		{"same", wire.ProtocolMin, wire.ProtocolMax, true},
		{"newer and compatible", wire.ProtocolMax, wire.ProtocolMax + 5, true},
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
				want = ReasonMalformed // by its incarnation, which is checked after the versions
			}
			checkRefusal(t, err, want, "")
		})
	}
}

// The dialer's error names the refusing member, its address and the cause.
func TestRefusal_ErrorAtDialer(t *testing.T) {
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
	if want := "transport: refused by member 0000000000000001 at " + a.addr + ": another group: "; !strings.Contains(err.Error(), want) {
		t.Errorf("%q does not contain %q", err, want)
	}
}

func TestParseRefusal_UnknownReason(t *testing.T) {
	got := parseRefusal(7, "here", "reason of a later version: detail")
	if got.Reason != ReasonOther || got.Detail != "reason of a later version: detail" {
		t.Errorf("got %+v", got)
	}
}

func TestBootCounters_EachAdvanceReportedOnce(t *testing.T) {
	var reported []uint64
	b := newBootCounters(map[uint64]uint64{2: 5}, func(_, boot uint64) { reported = append(reported, boot) })
	for _, boot := range []uint64{5, 6, 6, 8} {
		id := identity(2)
		id.Boot, id.Incarnation = boot, wire.ID{byte(boot)}
		if err := b.advance(&id); err != nil {
			t.Fatal(err)
		}
	}
	if len(reported) != 2 || reported[0] != 6 || reported[1] != 8 {
		t.Errorf("reported %v, want 6 and 8", reported)
	}
}

// FuzzHello uses its input as bytes from the network, and as the body of a valid
// frame: few inputs would pass the checksum.
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
