package conclave

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/survey"
	"github.com/conclave-go/conclave/internal/wire"
)

// Node is this process's member of the group. All methods are safe for concurrent use.
type Node struct {
	*Group         // the default group
	cfg     Config // its functions do not block; see application.go
	app     *application
	log     *slog.Logger
	id      MemberID
	member  *cluster.Member
	replica *replica.Replica // the member's, of this group
	events  *events
	history *history
	state   groupState
	backups backups // that clients read
	groups  *nodeGroups

	shutdown *shutdown
	routines sync.WaitGroup
	started  chan struct{} // closed when clients can be served
	done     chan struct{}
	err      error // set before done is closed
}

// Open opens the member's directory and finds its group or forms a new one. It blocks
// until a leader is known and the log up to its commit index is applied here, for
// which a quorum has to be up, or ctx is done. While Open waits for the founders of
// the group, it logs what is missing every 10 seconds. A nil cfg is a group of one in
// memory. The Node lives until Close or Leave, or until its disk fails; ctx bounds
// Open only.
//
// Errors: ErrInvalid with every fault of cfg at once, or for a directory that an
// interrupted [Restore] has left unfinished; ErrCorrupt if the directory is
// damaged, or if a member that Open reaches knows that it is an older copy (one that is
// reached later stops the Node with that error); ErrUpgradeRequired if the group or the
// directory uses what only a newer build knows; ErrRemoved if the member has left its group;
// ErrUnavailable with ctx's error if no quorum was found in time; ErrBusy with 1,024
// processes registered in the group; those of the network and the file system. After
// an error nothing is left open.
func Open(ctx context.Context, cfg *Config) (*Node, error) {
	checked, app, err := cfg.prepare(ctx)
	if err != nil {
		return nil, fault("open", checked.Dir, err)
	}
	checked.warn()
	n := &Node{
		cfg:      checked,
		app:      app,
		log:      checked.Logger,
		events:   newEvents(checked.Events, checked.Logger),
		Group:    &Group{calls: newCalls(), jobs: survey.NewJobs(checked.MeasuredJobs), isNode: true, dir: checked.Dir},
		history:  newHistory(),
		started:  make(chan struct{}),
		done:     make(chan struct{}),
		shutdown: newShutdown(),
	}
	n.admin = n
	n.events.describe = func(id MemberID) Member { return n.Status().member(id) }
	n.tracing = newTracing(checked.Tracer, checked.Logger, func() MemberID { return n.id })
	own := n.clientConfig()
	own.IncarnationTTL = cmp.Or(cluster.SeamsFrom(ctx).IncarnationTTL, incarnationTTL)
	n.client = client.New(own)
	n.groups = newNodeGroups(n)
	if err := n.start(ctx); err != nil {
		app.failed()
		return nil, fault("open", checked.Dir, err)
	}
	return n, nil
}

// incarnationTTL is how long the group keeps the registration of a process that is
// silent and has no session with a TTL.
const incarnationTTL = time.Minute

func listen(ctx context.Context, cfg *Config) error {
	if cfg.Listener == nil {
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", cfg.Bind)
		if err != nil {
			advice := "choose another Bind, or stop the process that uses it"
			if errors.Is(err, syscall.EADDRNOTAVAIL) {
				advice = "set Bind to an address of this machine, and Advertise to the one that others dial"
			}
			return fmt.Errorf("%w: %s", err, advice)
		}
		cfg.Listener = l
	}
	if cfg.Advertise == "" {
		cfg.Advertise = cfg.Listener.Addr().String()
	}
	return nil
}

func (n *Node) start(ctx context.Context) error {
	member, err := cluster.Start(ctx, n.memberConfig(cmp.Or(cluster.SeamsFrom(ctx).FeatureLevel, wire.FeatureLevel)))
	switch {
	case err != nil:
		n.groups.stopped(err)
		n.routines.Wait()
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return err
	}
	n.member, n.replica = member, member.Replica()
	status := member.Status()
	n.id = MemberID(status.ID)
	n.client.Connect(group{n.replica, member, n.client, status.ID}, registration(member.Registration()))
	close(n.started)
	n.routines.Go(n.watch)
	registered := make(chan struct{})
	n.routines.Go(func() { n.logWaiting(registered) })
	err = n.register(ctx)
	close(registered)
	status = member.Status()
	n.history.begin(status.Leader, status.Term)
	if err != nil {
		n.stop(func() {})
		n.awaitEnd()
		return err
	}
	return nil
}

// openReport is how often an Open that waits logs what it waits for.
const openReport = 10 * time.Second

// logWaiting logs what Open waits for after the member has found its group.
func (n *Node) logWaiting(registered <-chan struct{}) {
	ticker := time.NewTicker(openReport)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			n.log.Info("waiting for a quorum of the group", "leader", wire.MemberID(n.member.Status().Leader), "reason", waitsFor(n.member))
		case <-registered:
			return
		}
	}
}

// waitsFor returns why there is no quorum, as far as the member knows; nil: it does not.
func waitsFor(m *cluster.Member) error {
	if last := m.JoinError(); last != nil {
		return fmt.Errorf("last attempt to reach another member: %w", last)
	}
	if why := m.Unreachable(); why != "" {
		return errors.New(why)
	}
	return nil
}

// register registers this process with the group. The outcome comes through the log,
// so a leader is known then, and the log up to it is applied.
func (n *Node) register(ctx context.Context) error {
	err := n.client.Register(ctx)
	switch {
	case errors.Is(err, cluster.ErrStopped): // by itself: it was refused, or its disk failed
		<-n.member.Done()
		return cmp.Or(n.member.Err(), err)
	case errors.Is(convert(err), ErrRemoved):
		// This member has left, and no peer has confirmed its removal yet. The group
		// may need its vote to agree on that, so it runs until then.
		select {
		case <-n.member.Done():
			return cmp.Or(n.member.Err(), err)
		case <-ctx.Done():
			return fmt.Errorf("%w: %w; this member has left, and its group still needs its vote to remove it: open it again",
				ErrUnavailable, contextError(ctx))
		}
	case err != nil && ctx.Err() != nil && !client.IsKind(err, client.Refused):
		err = fmt.Errorf("%w: %w", ErrUnavailable, contextError(ctx))
		if why := waitsFor(n.member); why != nil {
			err = fmt.Errorf("%w; %w", err, why)
		}
	}
	return err
}

// watch reports the node's end, whatever its reason.
func (n *Node) watch() {
	n.routines.Go(func() {
		n.events.run(n.done)
		n.app.lines.Close(logGrace)
	})
	<-n.member.Done()
	why := n.member.Err()
	n.client.Stopped(why, why == nil) // else it stopped by itself
	n.client.Wait()
	n.groups.stopped(why)
	n.err = fault("run", n.cfg.Dir, cmp.Or(why, ErrClosed))
	close(n.done)
}

// Close shuts the node down gracefully: it closes the node's sessions, which releases
// what they hold at once, transfers leadership if this member has it, and stops.
// Sessions with NoTTL end only in this process. They live on in the group with all
// that they hold, for AttachSession or CloseSession, unless one of their checks ends
// them: the gossip check, which they have unless NoChecks was set, becomes critical
// soon after.
//
// ctx bounds the graceful part, which takes three election timeouts at most. If ctx is
// done already, Close still attempts it for one election timeout, so a deferred Close
// works with a context that a signal has cancelled. Close may be called at any time, more
// than once, and concurrently. All calls wait for the one shutdown, and its graceful part
// ends as soon as one of them has no more time for it. A Leave that is under way is cut short
// in the same way.
//
// When Close returns, no goroutine, port or file of the node is left, except goroutines
// inside functions of the application that have not returned: Close waits up to 3 seconds for
// [Events], a second for Logger, and 3 for the others of [Config]. If its disk has failed,
// the database ends in the background, on files that it can no longer reach. Close returns
// nil, or, if ctx was done and the group had not answered in time, an error that wraps
// ErrUnknown and ctx's error; the group may then find out as if the process had
// crashed.
func (n *Node) Close(ctx context.Context) error {
	bounded, cancel := n.shutdownContext(ctx)
	defer cancel()
	defer n.shutdown.bound(ctx, bounded)()
	crash := cluster.IsCrash(ctx)
	if crash { // this ends a graceful part that is under way as well
		n.beginShutdown()
		n.member.Crash()
	}
	n.stop(func() {
		if !crash {
			n.shutDown(n.shutdown.graceful, n.shutdown.hurried.Load)
		}
	})
	n.awaitEnd()
	return fault("close", n.cfg.Dir, n.shutdown.result(ctx))
}

// shutdownContext bounds a graceful shutdown.
func (n *Node) shutdownContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() != nil && !cluster.IsCrash(ctx) {
		return context.WithTimeout(context.WithoutCancel(ctx), n.cfg.ElectionTimeout)
	}
	return context.WithTimeout(ctx, 3*n.cfg.ElectionTimeout)
}

// stop ends the node, after the graceful part, unless another call does so; awaitEnd waits
// for either.
func (n *Node) stop(graceful func()) bool {
	return n.shutdown.carryOut(func() {
		n.beginShutdown()
		graceful()
	}, n.member.Stop)
}

// beginShutdown refuses every further use, of each group, also of those that start from now on.
func (n *Node) beginShutdown() {
	n.member.BeginShutdown()
	n.groups.close()
	n.eachClient((*client.Client).BeginShutdown)
}

// eachClient calls do with this process's side of each group.
func (n *Node) eachClient(do func(*client.Client)) {
	do(n.client)
	n.groups.each(do)
}

// awaitEnd blocks until nothing of the node is left.
func (n *Node) awaitEnd() {
	<-n.shutdown.ended
	<-n.done
	n.routines.Wait()
}

// shutDown first ends the sessions in this process, and then in the group: no holder
// here may trust a lock that the group is granting to another owner. bounded bounds the
// second part; what is left of that is skipped when its caller is in a hurry by then.
func (n *Node) shutDown(bounded context.Context, hurried func() bool) {
	n.eachClient((*client.Client).StopRenewing)
	n.eachClient((*client.Client).EndLeases)
	if n.member.HasQuorum() {
		further := make(chan bool, 1)
		n.routines.Go(func() { further <- n.groups.shutDown(bounded) })
		if err := n.client.Deregister(bounded); err != nil && bounded.Err() != nil {
			if n.shutdown.unanswered = true; hurried() {
				return
			}
		}
		if err := n.replica.StepDown(bounded); err != nil && !errors.Is(err, cluster.ErrNotLeader) {
			n.log.Debug("leadership is not transferred", "error", err)
		}
		if !<-further {
			n.shutdown.unanswered = true
		}
	}
	n.member.AnnounceShutdown()
}

// Done returns a channel that is closed when the node has stopped for any reason. Err
// returns the reason.
func (n *Node) Done() <-chan struct{} { return n.done }

// Err returns why the node has stopped: an error that wraps ErrClosed after Close or
// Leave, otherwise the failure, with the operation and the file if it was the disk.
// It is nil while the node runs.
func (n *Node) Err() error {
	select {
	case <-n.done:
		return n.err
	default:
		return nil
	}
}

func duration(ns int64) time.Duration { return time.Duration(ns) }
