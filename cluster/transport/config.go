package transport

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/conclave-go/conclave/cluster/crash"
	"github.com/conclave-go/conclave/internal/appcall"
	"github.com/conclave-go/conclave/internal/wire"
)

// Identity is the content of a member's hello.
type Identity struct {
	Group       string
	Cluster     wire.ID // zero: no cluster yet
	Member      uint64
	Incarnation wire.ID
	Boot        uint64
	Name        string
	Advertise   string // host:port that peers dial. Default: the listener's address
	// FeatureLevel is the highest that this process supports.
	FeatureLevel uint32
	// LeaderPriority is the process's priority as a leader, constant for its life.
	LeaderPriority int32
	// FurtherGroup is, of a client, the number of the group that the connection is for; 0: the default group.
	FurtherGroup uint32
}

// Handler receives what arrives. Calls for different members are concurrent;
// for one member PeerConnected, Frame and PeerLost are sequential.
type Handler interface {
	// Frame handles one frame. While it blocks, the member's connection is not
	// read, so it must not wait for one group.
	Frame(from uint64, f *wire.Frame)
	// PeerConnected reports that the member has connected, and the address and
	// name that it advertises. It is repeated when the member reconnects.
	PeerConnected(member uint64, advertise, name string)
	// PeerLost reports that the member's connection broke and the same process
	// has not replaced it. While it blocks, a newer connection of the member is not
	// read. It is not called for connections that Close closes.
	PeerLost(member uint64)
	// Form answers a proposal to form a group. It must not return nil.
	Form(*wire.FormRequest) *wire.FormReply
	// Snapshot reads and installs a snapshot. Its error is reported to the sender.
	Snapshot(from uint64, r *SnapshotReader) error
}

// Config configures a Transport.
type Config struct {
	Identity Identity
	Key      ed25519.PrivateKey                                       // whose fingerprint is Identity.Member
	Listener net.Listener                                             // owned by the transport from New on
	Dial     func(ctx context.Context, addr string) (net.Conn, error) // nil: TCP; it heeds ctx
	// Calls are those of the application's functions, which Close waits for; nil: of the
	// callbacks of TLS.
	Calls *appcall.Calls
	// Lookup returns the addresses of a host, for Resolve and for the advertised address;
	// nil: those of the system's name service. Resolve does not use that if Dial is set.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	// TLS is used in both directions, so it needs a certificate for either; nil:
	// plaintext. A certificate must name the host that the member advertises,
	// and each name that is resolved to its address (see Resolve); or ServerName
	// is set to a name that all certificates contain. ClientCAs defaults to
	// RootCAs.
	TLS      *tls.Config
	Insecure bool // allows plaintext beyond loopback
	Handler  Handler
	Logger   *slog.Logger // nil: discard

	// Member reports whether frames and snapshots of the member are accepted;
	// nil: those of the peers are. It must not block, and must report true for
	// a bounded number of members only: their boot counters are kept.
	Member func(member uint64) bool
	// Removed reports whether the group has removed the member, so that a
	// removed member can learn of it here; nil: never. It must not block.
	Removed func(member uint64) bool
	// Moved is called when a dial has reached a member at another address than the one
	// that it advertises; nil: ignored. It must not block.
	Moved func(member uint64, advertise, name string)
	// Crashes gets what the connections show of crashed processes; nil: ignored.
	Crashes *crash.Evidence
	// Reconnected is called when there is a new connection to a peer: frames sent
	// to it before may be lost; nil: ignored. It must not block.
	Reconnected func(member uint64)
	// Admit is asked about each connection, in both directions, after both sides have
	// proven their keys; nil: no objection. The text of its error is the refusal; a
	// *RefusedError keeps its Reason. The connection may still fail afterwards. It returns
	// once Closed of the Peer is closed.
	Admit func(Peer) error
	// OnRefused is called for each refusal of this member by a peer that has proven to
	// be a member; nil: ignored. It must not block.
	OnRefused func(member uint64, r *RefusedError)
	// Durable returns what of this member's logs is durable, for the hello; nil: nothing. It must not block.
	Durable func() Durable
	// Endorsements returns those of this member, for the hello; nil: none. It must not
	// block. A hello has 64 KiB: 16 of them fit, with the positions of 2,000 groups.
	Endorsements func() []*wire.Endorsement
	// Endorsed is called when a process that is no member, but has proven its key, was
	// refused and had endorsements in its hello, which are unverified; nil: ignored. It
	// must not block.
	Endorsed func(Peer, []*wire.Endorsement)
	// Client serves the connection of a client, on the connection's own goroutine. The
	// connection is closed when it returns, and what is still queued on it is lost; nil:
	// such connections are refused. It must return once Done of the connection is closed.
	Client func(*ClientConn)
	// ClientsRefused returns why clients cannot be served in the group with that number, 0 for the default one, at present;
	// without a reason they can, and with nil always. It must not block.
	ClientsRefused func(furtherGroup uint32) (Reason, string)
	// Boots are the highest boot counters known of other members.
	Boots map[uint64]uint64
	// BootChanged is called with each other counter before the connection that
	// brought it is accepted, one call at a time; nil: ignored. It must not
	// call the transport.
	BootChanged func(member, boot uint64)
	// Registered returns the incarnation of the member's process that the group has
	// registered last, which is accepted with any boot counter; zero or nil: none. It
	// must not block.
	Registered func(member uint64) wire.ID
	// Jitter spreads the waits between dials; nil: random in [d/2, d).
	Jitter func(d time.Duration) time.Duration

	Limits Limits
	Timing Timing
}

// Limits bounds memory and goroutines. Zero fields take the default.
type Limits struct {
	Frame       int // bytes of one frame. Default 4 MiB
	QueueFrames int // frames queued for one peer, besides 64 frames for each group, which gets half of them alone. Default 8192
	QueueBytes  int // their bytes, besides 64 KiB for each group, which gets half of them alone. Default 32 MiB
	Handshakes  int // inbound handshakes in progress. Default 64
	Strangers   int // inbound connections of proven processes that are no members. Default 128
	Connections int // inbound connections of members in total. Default 1024
	PerMember   int // inbound connections of one kind from one member. Default 8
	Packets     int // memberlist packets queued: inbound, and for each address. Default 256
	Packet      int // bytes of one memberlist packet; four times that are queued for one address. Default 64 KiB
	Addresses   int // addresses that memberlist sends packets to at the same time. Default 256
	Chunk       int // bytes of one snapshot chunk. Default 1 MiB
	Clients     int // inbound connections of clients. Default 16384
	ClientFrame int // bytes of one frame from a client. Default 1 MiB + 64 KiB
	// ClientsBytes bounds what a member holds for all its clients together, besides 16 KiB for
	// each: frames, requests and their answers, and what is queued. Default 512 MiB
	ClientsBytes int
	// ClientQueueBytes bounds what is queued for one client, or for the member that a
	// client is connected to (see ClientConn.Send). Default 16 MiB
	ClientQueueBytes int
}

// Timing holds every duration. Zero fields take the default.
type Timing struct {
	Dial             time.Duration // timeout of an outbound connection with its handshake. Default 3 s
	Hello            time.Duration // timeout of an inbound handshake. Default 5 s
	KeepAlive        time.Duration // interval of keep-alives. Default 1 s
	ClientKeepAlive  time.Duration // interval of keep-alives between clients and members. Default 2 s
	KeepAliveTimeout time.Duration // a connection without progress for this long is dead. Default 5 s
	BackoffMin       time.Duration // first wait before dialing again. Default 50 ms
	BackoffMax       time.Duration // longest such wait. Default 2 s
	Idle             time.Duration // idle timeout of packet connections. Default 30 s
	Form             time.Duration // timeout of a proposal's answer. Default 10 s
	Gather           time.Duration // how long a frame of SendLater waits for others. Default 10 ms
}

// withDefaults returns a completed copy and an error that lists every fault.
func (c Config) withDefaults() (Config, error) {
	c.Limits.complete()
	c.Timing.complete()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Calls == nil {
		c.Calls = new(appcall.Calls)
	}
	if c.Crashes == nil {
		c.Crashes = crash.NewEvidence(func() {})
	}
	if c.Jitter == nil {
		c.Jitter = func(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
	}
	if c.Identity.Advertise == "" && c.Listener != nil {
		c.Identity.Advertise = c.Listener.Addr().String()
	}
	return c, c.faults()
}

// setDefault sets v to d unless it is set.
func setDefault[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// complete sets the defaults.
func (l *Limits) complete() {
	setDefault(&l.Frame, wire.MaxFrame)
	setDefault(&l.QueueFrames, 8192)
	setDefault(&l.QueueBytes, 32<<20)
	setDefault(&l.Handshakes, 64)
	setDefault(&l.Strangers, 128)
	setDefault(&l.Connections, 1024)
	setDefault(&l.PerMember, 8)
	setDefault(&l.Packets, 256)
	setDefault(&l.Packet, 64<<10)
	setDefault(&l.Addresses, 256)
	setDefault(&l.Chunk, 1<<20)
	setDefault(&l.Clients, 16384)
	setDefault(&l.ClientFrame, wire.MaxClientFrame)
	setDefault(&l.ClientQueueBytes, 16<<20)
	setDefault(&l.ClientsBytes, 512<<20)
}

// complete sets the defaults.
func (t *Timing) complete() {
	setDefault(&t.Dial, 3*time.Second)
	setDefault(&t.Hello, 5*time.Second)
	setDefault(&t.KeepAlive, time.Second)
	setDefault(&t.ClientKeepAlive, 2*time.Second)
	setDefault(&t.KeepAliveTimeout, 5*time.Second)
	setDefault(&t.BackoffMin, 50*time.Millisecond)
	setDefault(&t.BackoffMax, 2*time.Second)
	setDefault(&t.Idle, 30*time.Second)
	setDefault(&t.Form, 10*time.Second)
	setDefault(&t.Gather, 10*time.Millisecond)
}

func (c *Config) faults() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Listener == nil {
		fault("transport: no listener")
	} else if c.TLS == nil && !c.Insecure && !isLoopback(c.Listener.Addr()) {
		fault("transport: listening on %v: %w", c.Listener.Addr(), ErrPlaintext)
	}
	if err := CheckTLS(c.TLS); err != nil {
		fault("transport: member %v at %s: %w", wire.MemberID(c.Identity.Member), c.Identity.Advertise, err)
	}
	if c.Handler == nil {
		fault("transport: no handler")
	}
	if len(c.Key) != ed25519.PrivateKeySize {
		fault("transport: no key")
	} else if c.Identity.Member != wire.FingerprintOf(c.Key.Public().(ed25519.PublicKey)) {
		fault("transport: the key is not that of member %v", wire.MemberID(c.Identity.Member))
	}
	if c.Identity.Incarnation.IsZero() {
		fault("transport: no incarnation")
	}
	if n := len(c.Identity.Group) + len(c.Identity.Name) + len(c.Identity.Advertise); n > maxIdentity {
		fault("transport: group, name and advertised address exceed the limit: got %d bytes, want at most %d", n, maxIdentity)
	}
	return errors.Join(faults...)
}
