// Package clients serves the connections of clients: processes that are no members of the group.
//
// It is a seam, not an API: only packages cluster and conclave use it.
package clients

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// ErrTooLarge: a client requests more than it may.
var ErrTooLarge = errors.New("limit exceeded")

// Handlers is what requests and states mean, which this package does not know.
type Handlers struct {
	// Registered reports whether the group knows the incarnation of a client, and
	// SessionOf returns the incarnation that a session is bound to, zero if it is unbound;
	// alive is false if there is no such session. They run on the loop's goroutine.
	Registered func(m core.Machine, incarnation wire.ID) bool
	SessionOf  func(m core.Machine, session wire.ID) (incarnation wire.ID, alive bool)
	// Occupied reports whether the incarnation of a client counts in a limit of the group,
	// registered or not any more, and Free returns how many more that limit admits. They run
	// on the loop's goroutine.
	Occupied func(m core.Machine, incarnation wire.ID) bool
	Free     func(m core.Machine) int
	// Serve answers a request, and writes the answer in parts. It must return once ctx is
	// done.
	Serve func(ctx context.Context, r *wire.Request, answer Answer) error
	// Failure describes an error of Serve to the client.
	Failure func(error) (wire.Failure, string)
}

// Answer is the answer to a request of a client. Write blocks while the client does not read.
type Answer interface {
	io.Writer
	// Hold counts bytes that are kept until Serve returns, as ClientConn.Hold does.
	Hold(bytes int)
	// Within returns the answer, whose writes end with ctx as well.
	Within(ctx context.Context) Answer
	// Client returns who asks, and the host that the connection comes from: see transport.HostOf.
	Client() (client uint64, host string)
}

// Config is what a Server needs of its member.
type Config struct {
	Handlers
	Group    uint32 // its number
	Core     Core
	Lifetime context.Context // of the member
	Stopped  func() error    // why it is done
	// Queue takes what the loop is to run. Sending blocks while the queue is full.
	Queue  chan<- func(*core.Core)
	Logger *slog.Logger
	// Renew returns the command that renews clients.
	Renew func(incarnations []wire.ID) []byte
	// Submitting is called before that is submitted, for which this member's process must be registered: its registration in a further group
	// expires while it does not use that. nil: it is registered.
	Submitting func()
	// Addresses returns where clients find the members. It runs on the loop's goroutine.
	Addresses func() []string
	// Attached is how many clients are attached.
	Attached *atomic.Int64
	// Spend does a piece of work of which a step of the loop does a bounded share, and IsSpent reports whether the
	// rest waits for the next step.
	Spend   func(work func())
	IsSpent func() bool
}

// Core is what a Server asks of the core of its member, on the loop's goroutine.
type Core interface {
	Machine() core.Machine
	Status() core.Status
	HearsLeader() bool
	AttachClient(incarnation wire.ID, client core.Client)
	DetachClient(incarnation wire.ID, client core.Client)
	SubmitForClient(*wire.Submission)
	Submit(command []byte, call core.Call, urgent bool)
}

// Server serves the connections of clients. The loop's goroutine owns it and calls its methods, but for Serve.
type Server struct {
	cfg   Config
	core  Core
	ticks uint64

	attaching attachQueue       // that wait until the log is applied as far as they have seen it
	attached  map[wire.ID]*conn // by incarnation
	touched   []*conn           // that have notices to be sent
	renewing  []*conn           // that have asked for a renewal since the last tick; some may have ended since
	recent    []*conn           // that have been attached since the last tick; some may have ended since
	view      *wire.GroupView   // that was sent last; nil: none
	arrived   uint64            // that have asked to be attached, ever

	registrations registrations
}

// New returns a server without connections.
func New(cfg Config) *Server {
	return &Server{cfg: cfg, core: cfg.Core, attached: make(map[wire.ID]*conn)}
}

// Count returns how many clients are attached, and how many wait for that.
func (s *Server) Count() (attached, attaching int) { return len(s.attached), len(s.attaching) }

// Tick does what is due at each heartbeat interval.
func (s *Server) Tick() {
	s.ticks++
	s.renewClients()
	s.sendViews()
}

// Resend asks the clients to send again what has no outcome yet.
func (s *Server) Resend() {
	for _, c := range s.attached { // order: the connections are independent of each other
		c.send(&wire.MemberFrame{Body: &wire.MemberFrame_Resend{Resend: true}}, 0)
	}
}

// Restored ends the connections after a snapshot has replaced the state: it stands for
// entries whose outcomes the clients have missed.
func (s *Server) Restored() {
	for _, c := range s.attached { // order: as in Resend
		c.conn.Close(errReattach)
	}
}
