package transport

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

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
	{"wrong address", func(o *opening) { o.to = m(7) }, ReasonMember, "address of member " + text(1) + ", not of " + text(7)},
	{"connected to itself", func(o *opening) { o.id.Member = m(1); o.id.Incarnation = wire.ID{1, 1} }, ReasonSelf, "member that dialed it"},
	{"copy of the listener", func(o *opening) { o.id.Member = m(1) }, ReasonClone, "on a copy of the data directory"},
	{"copy of a member", func(o *opening) { o.id.Incarnation = wire.ID{2, 99} }, ReasonClone, "boot counter 5 of member " + text(2)},
	{"rolled back", func(o *opening) { o.id.Boot = 4 }, ReasonRollback, "boot counter 4 after 5 was seen"},
	{"rolled back, gossip", func(o *opening) { o.id.Boot = 4; o.kind = wire.Kind_GOSSIP_PACKETS }, ReasonRollback, "with an empty one, as a new member"},
	{"not a member", func(o *opening) { o.id.Member = m(4) }, ReasonNotMember, "member " + text(4) + " is unknown"},
	{"not a member, gossip", func(o *opening) { o.id.Member = m(4); o.kind = wire.Kind_GOSSIP_STREAM }, ReasonNotMember, "member " + text(4) + " is unknown"},
	{"removed", func(o *opening) { o.id.Member = m(5) }, ReasonRemoved, "the group has removed member " + text(5)},
	{"no kind", func(o *opening) { o.kind = wire.Kind_KIND_UNSPECIFIED }, ReasonKind, "KIND_UNSPECIFIED"},
	{"unknown kind", func(o *opening) { o.kind = 99 }, ReasonKind, "99"},
	{"another member's key", func(o *opening) { o.key = testKeys[3] }, ReasonMalformed, "presents the key of member " + text(3)},
	{"no key", func(o *opening) { o.raw = func(h *wire.Hello) { h.Key = nil } }, ReasonMalformed, "invalid key: want 32 bytes, got 0"},
	{"short nonce", func(o *opening) { o.raw = func(h *wire.Hello) { h.Nonce = h.Nonce[1:] } }, ReasonMalformed, "invalid nonce"},
	{"no incarnation", func(o *opening) { o.id.Incarnation = wire.ID{} }, ReasonMalformed, "incarnation"},
}

func TestListener_RefusesHello(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), func(c *Config) { c.Removed = func(member uint64) bool { return member == m(5) } })
	a.SetPeer(m(2), "127.0.0.1:1")
	a.SetPeer(m(3), "127.0.0.1:1")
	c, refusal := greetAs(t, a.addr, memberTwo()) // records boot counter 5 of this incarnation
	defer c.Close()
	if refusal != "" {
		t.Fatalf("a valid hello was refused: %s", refusal)
	}
	a.events.await(t, "connected 2")
	for _, r := range refusals {
		t.Run(r.name, func(t *testing.T) {
			o := memberTwo()
			r.change(&o)
			c, refusal := greetAs(t, a.addr, o)
			defer c.Close()
			if refusal == "" {
				t.Fatal("the hello was accepted")
			}
			checkRefusal(t, parseRefusal(m(1), a.addr, refusal), r.reason, r.detail)
			if _, err := c.Read(make([]byte, 1)); err == nil {
				t.Error("the connection stayed open")
			}
		})
	}
}

// Endorsements are passed on once the process that presents them has proved its key, and never
// those of a removed member.
func TestListener_Endorsed(t *testing.T) {
	got := make(chan Peer, 9)
	a := start(t, identity(1), listenTCP(t), func(c *Config) {
		c.Removed = func(member uint64) bool { return member == m(5) }
		c.Endorsed = func(p Peer, chain []*wire.Endorsement) {
			if len(chain) == 2 && string(chain[1].GetKey()) == "key" {
				got <- p
			}
		}
	})
	for _, r := range []struct {
		reason Reason
		passed bool
		change func(*opening)
	}{
		{ReasonNotMember, true, func(o *opening) { o.id.Member = m(4) }},
		{ReasonRemoved, false, func(o *opening) { o.id.Member = m(5) }},
		{ReasonCluster, false, func(o *opening) { o.id.Member, o.id.Cluster = m(4), wire.ID{9} }},
		{ReasonMalformed, false, func(o *opening) { o.id.Member, o.key = m(4), testKeys[3] }},
	} {
		o := memberTwo()
		o.endorsements = []*wire.Endorsement{{}, {Key: []byte("key")}}
		r.change(&o)
		c, refusal := greetAs(t, a.addr, o)
		c.Close()
		checkRefusal(t, parseRefusal(m(1), a.addr, refusal), r.reason, "")
		if passed := len(got) > 0; passed != r.passed {
			t.Errorf("%s: passed on: %v", r.reason, passed)
		}
		if r.passed {
			if p := <-got; p.Member != m(4) || p.Name != "m2" {
				t.Errorf("got %+v", p)
			}
		}
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

// The dialer checks the answer itself, even if the listener accepts the hello.
func TestDialer_RefusesHello(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), func(c *Config) { c.Member = func(uint64) bool { return true } })
	two := memberTwo().id
	if err := a.boots.record(&two, false); err != nil {
		t.Fatal(err)
	}
	for _, r := range refusals {
		o := memberTwo()
		r.change(&o)
		if r.reason == ReasonKind || r.reason == ReasonNotMember || r.reason == ReasonRemoved || o.kind != wire.Kind_PEER || o.to != m(1) {
			continue // the listener alone checks these
		}
		t.Run(r.name, func(t *testing.T) {
			addr := answerWith(t, o)
			_, err := a.connect(context.Background(), Target{Addr: addr, Member: wire.FingerprintOf(publicOf(o.signer()))}, wire.Kind_PEER)
			checkRefusal(t, err, r.reason, r.detail)
			if refused := new(RefusedError); errors.As(err, &refused) && (!refused.Here || refused.Addr != addr) {
				t.Errorf("got %+v, want Here and Addr %s", refused, addr)
			}
		})
	}
	t.Run("another member than expected", func(t *testing.T) {
		_, err := a.connect(context.Background(), Target{Addr: answerWith(t, memberTwo()), Member: m(3)}, wire.Kind_PEER)
		checkRefusal(t, err, ReasonMember, "address of member "+text(2)+", not of "+text(3))
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
			o := memberTwo()
			o.raw = func(h *wire.Hello) { h.MinProtocol, h.MaxProtocol = c.min, c.max }
			h, refused := parseHello(o.body())
			if !c.ok {
				checkRefusal(t, refused, ReasonProtocol, "")
			} else if refused != nil || h.protocol != wire.ProtocolMax {
				t.Errorf("got %+v, %v, want protocol %d", h, refused, wire.ProtocolMax)
			}
		})
	}
}

// The dialer's error names the refusing member, its address and the cause.
func TestRefusal_ErrorAtDialer(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), nil)
	id := identity(2)
	id.Group = "other"
	b := start(t, id, listenTCP(t), nil)
	b.SetPeer(m(1), a.addr)
	await(t, func() error {
		if err := b.PeerError(m(1)); errors.Is(err, ErrNotConnected) {
			return err
		}
		return nil
	})
	err := b.PeerError(m(1))
	checkRefusal(t, err, ReasonGroup, `group "other"`)
	if want := "refused by member " + text(1) + " at " + a.addr + ": another group: "; !strings.Contains(err.Error(), want) {
		t.Errorf("%q does not contain %q", err, want)
	}
}

func TestParseRefusal_UnknownReason(t *testing.T) {
	got := parseRefusal(7, "here", "reason of a later version: detail")
	if got.Reason != ReasonOther || got.Detail != "reason of a later version: detail" {
		t.Errorf("got %+v", got)
	}
}

func TestBootCounters_EachChangeReportedOnce(t *testing.T) {
	var reported []uint64
	b := newBootCounters(map[uint64]uint64{m(2): 5}, func(_, boot uint64) { reported = append(reported, boot) })
	for _, boot := range []uint64{5, 6, 6, 8} {
		id := identity(2)
		id.Boot, id.Incarnation = boot, wire.ID{byte(boot)}
		if err := b.record(&id, false); err != nil {
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
	o := memberTwo()
	good := o.body()
	f.Add(good)
	f.Add(appendFrame([]byte(magic), good))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		if body, err := readHello(r); err == nil {
			checkParsed(t, body)
		}
		if read := len(in) - r.Len(); read > len(magic)+frameHeader+maxHello {
			t.Fatalf("read %d bytes", read)
		}
		checkParsed(t, in)
	})
}

func checkParsed(t *testing.T, body []byte) {
	t.Helper()
	h, refused := parseHello(body)
	if (h == nil) == (refused == nil) {
		t.Fatalf("hello %v, refusal %v", h, refused)
	}
	if h != nil && (h.Member == 0 || h.Incarnation.IsZero() || h.Member != wire.FingerprintOf(h.key)) {
		t.Fatalf("accepted %+v", h)
	}
}
