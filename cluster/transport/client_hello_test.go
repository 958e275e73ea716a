package transport

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// clientRefusals are hellos of client 1 that member 1 refuses. Member 1 has the peer 3.
var clientRefusals = []struct {
	name   string
	change func(*opening)
	config func(*Config)
	reason Reason
	detail string // contained in the refusal
}{
	{"another group", func(o *opening) { o.id.Group = "other" }, nil, ReasonGroup, `group "other", the member for "test"`},
	{"another cluster", func(o *opening) { o.id.Cluster = wire.ID{9} }, nil, ReasonCluster, "known in cluster 09000000"},
	{"no cluster yet", nil, func(c *Config) { c.Identity.Cluster = wire.ID{} }, ReasonNoCluster, "the member belongs to no cluster yet"},
	{"wrong address", func(o *opening) { o.to = m(7) }, nil, ReasonMember, "address of member " + text(1)},
	{"the key of a member", func(o *opening) { o.use(3) }, nil, ReasonNotClient, "the key is that of member " + text(3)},
	{"the key of the member that listens", func(o *opening) { o.use(1) }, nil, ReasonNotClient, "the key is that of member " + text(1)},
	{"an incarnation of another process", func(o *opening) { o.id.Incarnation = wire.ID{3, 1} }, nil, ReasonNotClient, "the incarnation is not the one"},
	{"the incarnation of another client", func(o *opening) { o.id.Incarnation = wire.ClientIncarnation(publicOf(clientKey(2))) }, nil, ReasonNotClient, "the incarnation"},
	{"no incarnation", func(o *opening) { o.id.Incarnation = wire.ID{} }, nil, ReasonMalformed, "incarnation"},
	{"another ID", func(o *opening) { o.id.Member++ }, nil, ReasonMalformed, "presents the key of"},
	{"not configured", nil, func(c *Config) { c.Client = nil }, ReasonNoClients, "not configured for clients"},
	{"not at present", nil, func(c *Config) {
		c.ClientsRefused = func(uint32) (Reason, string) { return ReasonNoClients, "a quorum is missing" }
	}, ReasonNoClients, "a quorum is missing"},
	{"of a deleted group", func(o *opening) { o.id.FurtherGroup = 7 }, func(c *Config) {
		c.ClientsRefused = func(group uint32) (Reason, string) { return ReasonNoGroup, fmt.Sprintf("group %d", group) }
	}, ReasonNoGroup, "group 7"},
	{"not admitted", nil, func(c *Config) { c.Admit = func(Peer) error { return errors.New("its certificate is of no client") } }, ReasonNotAdmitted, "its certificate is of no client"},
}

// use has the opening present the key of member n, as a client would.
func (o *opening) use(n int) {
	o.key = testKeys[n]
	o.id = clientIdentity("test", "c1", 0, publicOf(o.key), testCluster)
}

func TestListener_RefusesClient(t *testing.T) {
	for _, r := range clientRefusals {
		t.Run(r.name, func(t *testing.T) {
			a, ended := serving(t, r.config)
			a.SetPeer(m(3), "127.0.0.1:1")
			o := clientOpening()
			if r.change != nil {
				r.change(&o)
			}
			c, refusal := greetAs(t, a.addr, o)
			defer c.Close()
			checkRefusal(t, parseRefusal(m(1), a.addr, refusal), r.reason, r.detail)
			if _, err := c.Read(make([]byte, 1)); err == nil {
				t.Error("the connection stayed open")
			}
			if len(ended) != 0 || a.clients.Count() != 0 {
				t.Error("the client was served")
			}
		})
	}
}

// What members are refused for does not concern a client: a removed member's key is one
// like any other, a boot counter means nothing, endorsements are not passed on.
func TestListener_AcceptsClient(t *testing.T) {
	for name, change := range map[string]func(*opening){
		"as it is":                  func(*opening) {},
		"without a cluster":         func(o *opening) { o.id.Cluster = wire.ID{} },
		"the key of a removed one":  func(o *opening) { o.use(5) },
		"a boot counter":            func(o *opening) { o.id.Boot = 99 },
		"an endorsement":            func(o *opening) { o.endorsements = []*wire.Endorsement{{Key: []byte("key")}} },
		"the address of the member": func(o *opening) { o.to = m(1) },
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := serving(t, func(c *Config) {
				c.Removed = func(member uint64) bool { return member == m(5) }
				c.Endorsements = func() []*wire.Endorsement { return []*wire.Endorsement{{Key: []byte("of the member")}} }
				c.Endorsed = func(p Peer, _ []*wire.Endorsement) { t.Errorf("endorsements of %v were passed on", p.Member) }
			})
			o := clientOpening()
			change(&o)
			raw, err := net.Dial("tcp", a.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer raw.Close()
			h, refusal, err := dialAs(raw, o)
			if err != nil || refusal != "" || len(h.endorsements) > 0 {
				t.Fatal(refusal, err, h)
			}
			frame, err := appendMessage(nil, renewal(3))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := raw.Write(frame); err != nil {
				t.Fatal(err)
			}
			f := new(wire.MemberFrame)
			body, err := readFrame(raw, 100, nil)
			if err != nil || proto.Unmarshal(body, f) != nil || f.GetRenewed().GetNumber() != 3 {
				t.Errorf("got %v, %v", f, err)
			}
		})
	}
}

// A client checks the answer itself, even if the listener accepts the client.
func TestDialer_RefusesMember(t *testing.T) {
	for _, r := range []struct {
		name   string
		change func(*opening)
		reason Reason
		detail string
	}{
		{"another group", func(o *opening) { o.id.Group = "other" }, ReasonGroup, `the member for "other"`},
		{"another cluster", func(o *opening) { o.id.Cluster = wire.ID{9} }, ReasonCluster, "the member belongs to 09000000"},
		{"no cluster", func(o *opening) { o.id.Cluster = wire.ID{} }, ReasonNoCluster, "the member belongs to no cluster yet"},
		{"the client's own key", func(o *opening) { o.id.Member, o.key = wire.FingerprintOf(publicOf(clientKey(1))), clientKey(1) }, ReasonSelf, "the key of this client"},
		{"another member's key", func(o *opening) { o.key = testKeys[3] }, ReasonMalformed, "presents the key of member " + text(3)},
		{"not admitted", func(o *opening) { o.id.Name = "stranger" }, ReasonNotAdmitted, "unknown name"},
	} {
		t.Run(r.name, func(t *testing.T) {
			d := dialer(t, func(c *DialerConfig) {
				c.Admit = func(p Peer) error {
					if p.Name == "stranger" && p.Kind == wire.Kind_CLIENT && !p.Inbound {
						return errors.New("unknown name")
					}
					return nil
				}
			})
			o := opening{id: identity(2), kind: wire.Kind_CLIENT}
			r.change(&o)
			addr := answerWith(t, o)
			_, err := d.Connect(t.Context(), Target{Addr: addr}, clientKey(1), testCluster)
			checkRefusal(t, err, r.reason, r.detail)
			if refused := new(RefusedError); errors.As(err, &refused) && (!refused.Here || refused.Addr != addr) {
				t.Errorf("got %+v, want Here and Addr %s", refused, addr)
			}
		})
	}
}

// A client that knows its cluster is refused by others of the same name; one that knows
// none takes what it finds.
func TestDialer_Cluster(t *testing.T) {
	a, _ := serving(t, nil)
	d := dialer(t, nil)
	for _, cluster := range []wire.ID{{}, testCluster} {
		c, err := d.Connect(t.Context(), Target{Addr: a.addr}, clientKey(1), cluster)
		if err != nil || c.Peer().Cluster != testCluster {
			t.Fatal(err)
		}
	}
	_, err := d.Connect(t.Context(), Target{Addr: a.addr}, clientKey(1), wire.ID{9})
	checkRefusal(t, err, ReasonCluster, "the client must begin again")
}

// A build from before there were clients refuses their kind by its number.
func TestDialer_MemberWithoutClients(t *testing.T) {
	addr := serve(t, func(c net.Conn) {
		x := &transcript{}
		var err error
		if x.dialer, err = readHello(c); err != nil {
			return
		}
		o := opening{id: identity(2), kind: 6}
		x.listener = o.body()
		_ = writeHello(c, x.listener)
		_, _ = readFrame(c, maxProof, nil)
		_ = writeProof(c, testKeys[2], x, listenerVerdict, (&RefusedError{Reason: ReasonKind, Detail: "6"}).text())
		_, _ = io.Copy(io.Discard, c)
	})
	_, err := dialer(t, nil).Connect(t.Context(), Target{Addr: addr}, clientKey(1), wire.ID{})
	checkRefusal(t, err, ReasonKind, "the member at "+addr+" runs a build without clients: upgrade it")
}

// Without the proof of its key a client is closed without an answer.
func TestListener_ClientNotProven(t *testing.T) {
	a, ended := serving(t, nil)
	for name, prove := range map[string]func(c net.Conn, x *transcript) error{
		"another key":   func(c net.Conn, x *transcript) error { return writeProof(c, clientKey(2), x, dialerProof, "") },
		"another stage": func(c net.Conn, x *transcript) error { return writeProof(c, clientKey(1), x, dialerVerdict, "") },
	} {
		c, x := begin(t, a.addr, clientOpening())
		if err := prove(c, x); err != nil {
			t.Fatal(name, err)
		}
		mustNotBeAnswered(t, a, c)
	}
	// Nor is it served before its verdict, or after one that refuses.
	c, x := begin(t, a.addr, clientOpening())
	if err := writeProof(c, clientKey(1), x, dialerProof, ""); err != nil {
		t.Fatal(err)
	}
	if refusal, err := readProof(c, publicOf(testKeys[1]), x, listenerVerdict); err != nil || refusal != "" {
		t.Fatal(refusal, err)
	}
	if err := writeProof(c, clientKey(1), x, dialerVerdict, "for a test"); err != nil {
		t.Fatal(err)
	}
	mustNotBeAnswered(t, a, c)
	if len(ended) != 0 {
		t.Error("the client was served")
	}
}

func TestListener_ClientsLimit(t *testing.T) {
	var j journal
	a, ended := serving(t, func(c *Config) {
		c.Limits.Clients, c.Limits.Connections, c.Limits.Strangers, c.Logger = 3, 1, 1, j.logger()
	})
	d := dialer(t, nil)
	connect := func(n int) (*ClientConn, error) {
		return d.Connect(t.Context(), Target{Addr: a.addr}, clientKey(n), wire.ID{})
	}
	var last *ClientConn
	for n := range 3 {
		c, err := connect(n)
		if err != nil {
			t.Fatal(err)
		}
		last = c
	}
	_, err := connect(4)
	checkRefusal(t, err, ReasonBusy, "connections of 3 clients, and from no host more than from this one")
	id := wire.MemberID(wire.FingerprintOf(publicOf(clientKey(4)))).String()
	await(t, func() error {
		if text := j.String(); !strings.Contains(text, "refused client "+id) {
			return errors.New("the log is " + text)
		}
		return nil
	})
	last.Close(nil)
	<-ended
	await(t, func() error { _, err := connect(5); return err })
}
