package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// Identity is what a member says of itself in each hello.
type Identity struct {
	Group       string
	Cluster     wire.ID // zero: member of no cluster yet
	Member      uint64
	Incarnation wire.ID
	Boot        uint64
	Name        string
	Advertise   string // host:port that others dial. Default: the listener's address
}

// Handler receives what arrives. Calls for different members are concurrent;
// for one member PeerConnected, Frame and PeerLost come one after the other.
type Handler interface {
	// Frame may block: the member's connection is not read meanwhile.
	Frame(from uint64, f *wire.Frame)
	// PeerConnected says that frames of the member may follow, and where it
	// says it can be reached. It is repeated when the member connects anew.
	PeerConnected(member uint64, advertise, name string)
	// PeerLost says that the member's connection broke and was not replaced by
	// the same process. It is not called on account of Close.
	PeerLost(member uint64)
	// Form answers a proposal to form a group. It must not return nil.
	Form(*wire.FormRequest) *wire.FormReply
	// Snapshot reads and installs a snapshot. The member learns the error.
	Snapshot(from uint64, r *SnapshotReader) error
}

// Config is what a Transport is made of.
type Config struct {
	Identity Identity
	Listener net.Listener                                             // owned by the transport from New on
	Dial     func(ctx context.Context, addr string) (net.Conn, error) // nil: TCP
	// TLS is for both directions, nil: plaintext. A certificate has to name the
	// host that the member advertises and, since memberlist dials those, its IP
	// address; or ServerName is set to what all certificates name. ClientCAs is
	// RootCAs unless set.
	TLS      *tls.Config
	Insecure bool // allows plaintext beyond loopback
	Handler  Handler
	Logger   *slog.Logger // nil: silent

	// Member reports whether frames and snapshots of the member are accepted.
	// nil: those of the members in the address book. It must not block, and say
	// yes to a bounded number of members only: their boots are remembered.
	Member func(member uint64) bool
	// Left reports whether the member has left the group for good, so that one
	// that did not hear of it can be told; ToldLeft is what a peer tells this
	// member. Neither may block; nil: nobody leaves.
	Left     func(member uint64) bool
	ToldLeft func()
	// Boots are the highest boot counters known of other members. BootRaised
	// is told of each higher one before the connection that brought it is
	// accepted, one call at a time; it must not call the transport.
	Boots      map[uint64]uint64
	BootRaised func(member, boot uint64)
	// Jitter spreads the waits between dials; nil: random in [d/2, d).
	Jitter func(d time.Duration) time.Duration

	Limits Limits
	Timing Timing
}

// Limits bounds memory and goroutines. Zero fields take the default.
type Limits struct {
	Frame       int // bytes of one frame. Default 4 MiB
	QueueFrames int // frames waiting for one peer. Default 4096
	QueueBytes  int // their bytes. Default 16 MiB
	Handshakes  int // inbound connections before the end of their hello. Default 64
	Connections int // inbound connections altogether. Default 1024
	PerMember   int // inbound connections of one kind from one member. Default 8
	Packets     int // memberlist packets waiting, inbound and for each address. Default 256
	Packet      int // bytes of one memberlist packet; four times that may wait for one address. Default 64 KiB
	Addresses   int // addresses that memberlist sends packets to at once. Default 256
	Chunk       int // bytes of one snapshot chunk. Default 1 MiB
}

// Timing holds every duration. Zero fields take the default.
type Timing struct {
	Dial       time.Duration // longest wait for a connection and its hello. Default 3 s
	Hello      time.Duration // longest wait for an inbound hello. Default 5 s
	Beat       time.Duration // between signs of life on an idle connection. Default 1 s
	Silence    time.Duration // without progress a connection counts as dead. Default 5 s
	BackoffMin time.Duration // first wait before dialling again. Default 50 ms
	BackoffMax time.Duration // longest such wait. Default 2 s
	Idle       time.Duration // then an unused packet connection is closed. Default 30 s
	Form       time.Duration // longest wait for the answer to a proposal. Default 10 s
}

// withDefaults completes a copy and reports all faults at once.
func (c Config) withDefaults() (Config, error) {
	orInt := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	orTime := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	l, t := &c.Limits, &c.Timing
	orInt(&l.Frame, 4<<20)
	orInt(&l.QueueFrames, 4096)
	orInt(&l.QueueBytes, 16<<20)
	orInt(&l.Handshakes, 64)
	orInt(&l.Connections, 1024)
	orInt(&l.PerMember, 8)
	orInt(&l.Packets, 256)
	orInt(&l.Packet, 64<<10)
	orInt(&l.Addresses, 256)
	orInt(&l.Chunk, 1<<20)
	orTime(&t.Dial, 3*time.Second)
	orTime(&t.Hello, 5*time.Second)
	orTime(&t.Beat, time.Second)
	orTime(&t.Silence, 5*time.Second)
	orTime(&t.BackoffMin, 50*time.Millisecond)
	orTime(&t.BackoffMax, 2*time.Second)
	orTime(&t.Idle, 30*time.Second)
	orTime(&t.Form, 10*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Jitter == nil {
		c.Jitter = func(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
	}
	if c.Identity.Advertise == "" && c.Listener != nil {
		c.Identity.Advertise = c.Listener.Addr().String()
	}
	return c, c.faults()
}

func (c *Config) faults() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Listener == nil {
		fault("transport: no listener")
	} else if c.TLS == nil && !c.Insecure && !isLocal(c.Listener.Addr()) {
		fault("transport: listening on %v: %w", c.Listener.Addr(), ErrPlaintext)
	}
	if c.Handler == nil {
		fault("transport: no handler")
	}
	if c.Identity.Member == 0 {
		fault("transport: no member ID")
	}
	if c.Identity.Incarnation.IsZero() {
		fault("transport: no incarnation")
	}
	if n := len(c.Identity.Group) + len(c.Identity.Name) + len(c.Identity.Advertise); n > maxHello/2 {
		fault("transport: group, name and advertised address have %d bytes together, the limit is %d", n, maxHello/2)
	}
	return errors.Join(faults...)
}
