package remote

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/appcall"
	"github.com/conclave-go/conclave/internal/budget"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// Config configures a Group.
type Config struct {
	Addresses []string // of members, host:port
	Group     string   // its name
	// Further is the number of a further group of it, which Cluster has: what a connection is for. 0: the default group.
	Further  uint32
	Cluster  wire.ID // whose members are accepted; zero: of that with the first member that is reached
	Name     string  // of this process, for people
	TLS      *tls.Config
	Insecure bool
	Dial     func(ctx context.Context, addr string) (net.Conn, error) // nil: TCP; it heeds ctx
	Calls    *appcall.Calls                                           // of the application's functions; nil: of the callbacks of TLS
	Admit    func(Peer) error                                         // refuses a member; nil: none
	ReadOnly bool                                                     // no command is submitted, so this process is never registered
	Logger   *slog.Logger
	Named    func(member uint64, name string) // reports the name of a member, for Logger; nil: ignored
	MaxCalls int                              // under way; urgent ones are not refused for it

	MaxCallBytes int            // of their commands
	Budget       *budget.Budget // of these bytes, shared with other Groups of this process: see tickets.NewBudget; nil: none

	// Members returns the addresses that another Group of this process knows, since this one may begin when all members have moved; nil: none.
	Members func() []string
	// Deleted is called when a member has stated that the further group is deleted; then everything fails. It must not block.
	Deleted func()

	// These run on the goroutine that delivers outcomes, in log order, and must not block.

	Ended    func(fact.Ended)
	Recalled func([]fact.Recall)
	// Replaced reports that outcomes may have been skipped: what ask returns is of the state
	// from which on they are delivered again. It answers a machine.IndexQuery by 0, and a
	// machine.SessionQuery for those of Sessions.
	Replaced func(ask func(machine.Query) any)
	Woke     func()
	// Sessions returns the sessions that are bound to this process.
	Sessions func() []wire.ID
	// Patience is how long a member may take to acknowledge the registration, a renewal or a call.
	Patience func() time.Duration
	// Left is for how long the sessions of this process last without another renewal.
	Left func() time.Duration
}

// Peer is the other end of a connection.
type Peer = transport.Peer
