package conclave

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// Node is this process's member of the group. It is safe for concurrent use.
type Node struct {
	cfg     Config
	log     *slog.Logger
	member  *cluster.Member
	id      MemberID
	boot    uint64
	events  *events
	clock   clock
	feeds   *feeds
	handles atomic.Uint64 // numbers given to lock handles
	// restores counts how often the state was replaced, and outcomes may have
	// been skipped.
	restores atomic.Uint64

	attempt uint32        // of registering; the loop's, after Open
	memory  time.Duration // incarnationTTL, but in a test
	renewal renewal

	mu       sync.Mutex
	sessions map[wire.ID]*Session // guarded by mu; alive
	own      *Session             // guarded by mu; the node's own, if it has one
	opening  *ownOpening          // guarded by mu; of the node's own
	closing  bool                 // guarded by mu

	hurried context.Context // ended by a Close that does not want to wait for a Leave any longer
	hurry   context.CancelFunc

	closeOnce sync.Once
	routines  sync.WaitGroup
	done      chan struct{}
	err       error // set before done is closed
}

// Open opens the member's directory, finds its group or forms a new one, and
// returns once a leader is known and everything agreed so far is applied here.
// That takes as long as it takes for a majority to be there; ctx bounds it.
// A nil cfg is a group of one in memory. The Node lives until Close or until
// its disk fails, whatever becomes of ctx.
//
// Errors: ErrInvalid with every fault of cfg at once; ErrCorrupt when the
// directory is damaged, copied or rolled back; ErrUnavailable with ctx's error
// when no majority was found in time; those of the network and the file system.
// After an error nothing is left open.
func Open(ctx context.Context, cfg *Config) (*Node, error) {
	checked, err := cfg.withDefaults()
	if err == nil {
		err = listen(ctx, &checked)
	}
	if err != nil {
		if checked.Listener != nil {
			checked.Listener.Close() // it is the node's, and there will be none
		}
		return nil, fault("open", checked.Dir, err)
	}
	n := &Node{
		cfg:      checked,
		log:      checked.Logger,
		clock:    newClock(),
		events:   newEvents(checked.Events, checked.Logger),
		feeds:    newFeeds(),
		sessions: make(map[wire.ID]*Session),
		memory:   cmp.Or(cluster.SeamsFrom(ctx).IncarnationTTL, incarnationTTL),
		done:     make(chan struct{}),
	}
	n.hurried, n.hurry = context.WithCancel(context.Background())
	n.renewal.node = n
	if checked.SessionTTL < 2*checked.ElectionTimeout {
		n.log.Warn("SessionTTL is less than two election timeouts: a change of leader may cost holders their locks",
			"ttl", checked.SessionTTL, "election", checked.ElectionTimeout)
	}
	if err := n.start(ctx); err != nil {
		return nil, fault("open", checked.Dir, err)
	}
	return n, nil
}

func listen(ctx context.Context, cfg *Config) error {
	if cfg.Listener == nil {
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", cfg.Bind)
		if err != nil {
			return fmt.Errorf("%w: choose another Bind, or stop what uses it", err)
		}
		cfg.Listener = l
	}
	if cfg.Advertise == "" {
		cfg.Advertise = cfg.Listener.Addr().String()
	}
	return nil
}

func (n *Node) start(ctx context.Context) error {
	member, err := cluster.Start(ctx, n.clusterConfig())
	if err != nil {
		return startFault(ctx, err)
	}
	n.member = member
	status := member.Status()
	n.id, n.boot = MemberID(status.ID), status.Boot
	n.routines.Go(n.watch)
	if err := n.register(ctx); err != nil {
		n.Close(expired)
		return err
	}
	n.renewal.begin()
	return nil
}

func startFault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return ours(err)
}

// expired is a context that has ended, for a close without a farewell.
var expired = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// register makes this process known to the group. Its outcome comes through
// the log, so whoever has it knows a leader and has applied what was agreed.
func (n *Node) register(ctx context.Context) error {
	reply, err := n.send(ctx, n.registration(), forget)
	if err == nil && (answer{reply: reply}).unregistered() {
		// It was registered and forgotten again before it heard of that. By
		// now it is being registered anew, ahead of whatever else it sends.
		reply, err = n.exec(ctx, &wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}})
	}
	switch {
	case err == nil && reply.GetCode() == wire.Code_LEFT:
		// This member has left, and not heard yet that it is out. Its vote may
		// be needed for that, so it stays until then.
		select {
		case <-n.member.Done():
			return cmp.Or(ours(n.member.Err()), refusal(reply))
		case <-ctx.Done():
			return fmt.Errorf("%w; this member has left the group, which still needs its vote to take it out", because(ErrUnavailable, ctx))
		}
	case err == nil:
		return refusal(reply)
	case ctx.Err() != nil:
		// However far it had got, to the caller of Open it is all the same:
		// there was no majority in time.
		err = because(ErrUnavailable, ctx)
		if unmet := n.member.JoinError(); unmet != nil {
			err = fmt.Errorf("%w; the last attempt to meet another member: %w", err, unmet)
		}
	}
	return err
}

func (n *Node) clusterConfig() cluster.Config {
	return cluster.Config{
		Name:        n.cfg.Name,
		Group:       n.cfg.Group,
		Dir:         n.cfg.Dir,
		Listener:    n.cfg.Listener,
		Advertise:   n.cfg.Advertise,
		Join:        n.cfg.Join,
		Expect:      n.cfg.Expect,
		Voters:      n.cfg.Voters,
		TLS:         n.cfg.TLS,
		Insecure:    n.cfg.Insecure,
		Dial:        n.cfg.Dial,
		Heartbeat:   n.cfg.HeartbeatInterval,
		Election:    n.cfg.ElectionTimeout,
		Logger:      n.log,
		MaxCalls:    n.cfg.Limits.Calls,
		LoadMachine: loadMachine,
		Ended:       n.sessionEnded,
		Restored: func(m cluster.Machine) {
			n.feeds.restored(m)
			n.restored(m)
		},
		Changed:       n.feeds.changed,
		LeaderChanged: n.events.leaderChanged,
		Commands:      machine.Commands{},
	}
}

func loadMachine(state iter.Seq2[[]byte, []byte]) (cluster.Machine, error) {
	return machine.Load(state)
}

// watch makes the node's end known, whatever its reason.
func (n *Node) watch() {
	n.routines.Go(func() { n.events.run(n.done) })
	<-n.member.Done()
	n.renewal.stop()
	n.endSessions(ErrClosed)
	n.err = ErrClosed
	if err := n.member.Err(); err != nil {
		n.err = ours(err)
	}
	n.err = fault("run", n.cfg.Dir, n.err)
	close(n.done)
}

// Close takes leave and stops the node. It closes the node's sessions, so that
// what they hold is handed on at once, and hands leadership over if this member
// has it. Sessions with NoTTL end only here and live on in the group with all that
// they hold, for AttachSession or CloseSession, unless one of their checks ends
// them: gossip, which they have unless NoChecks was given, knows of the farewell. ctx bounds this farewell;
// with a ctx that has ended there is none, and the group finds out as if the
// process had crashed. Without a majority there is nobody to take leave of, so
// the farewell also ends after three election timeouts, and at once when the
// others have taken leave before. A Leave that is under way goes on for as long.
//
// Then everything stops: when Close returns no goroutine, port or file of the
// node is left. If its disk has failed, the database ends in the background, on
// files that it can no longer reach. Close may be called at any time, more than
// once, and by many.
// It returns nil, or the context's error when the farewell was cut short.
func (n *Node) Close(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, n.farewellTimeout())
	defer cancel()
	defer context.AfterFunc(bounded, n.hurry)()
	var err error
	n.stop(func() { err = n.farewell(ctx) })
	return fault("close", n.cfg.Dir, err)
}

// stop ends the node, after the farewell if nobody has begun one before. It
// returns when nothing of the node is left.
func (n *Node) stop(farewell func()) {
	n.closeOnce.Do(func() {
		n.mu.Lock()
		n.closing = true
		n.mu.Unlock()
		farewell()
		n.member.Stop()
	})
	<-n.done
	n.routines.Wait()
}

func (n *Node) farewellTimeout() time.Duration { return 3 * n.cfg.ElectionTimeout }

// farewell first tells the holders in this process, and then the group: nobody
// here may believe in a lock that somebody else is being granted.
func (n *Node) farewell(ctx context.Context) error {
	n.renewal.stop()
	n.endSessions(ErrClosed)
	if ctx.Err() != nil {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, n.farewellTimeout())
	defer cancel()
	if n.member.HasQuorum() {
		if err := n.deregister(bounded); err != nil && ctx.Err() != nil {
			return err
		}
		if err := n.member.StepDown(bounded); err != nil {
			n.log.Debug("leadership is not handed over", "reason", err)
		}
	}
	n.member.AnnounceShutdown()
	return nil
}

// deregister ends what the group knows of this process, its sessions with a TTL
// included.
func (n *Node) deregister(ctx context.Context) error {
	answered := make(chan answer, 1)
	n.pursue(&wire.Command{Op: &wire.Command_Deregister{Deregister: &wire.Deregister{}}},
		func(a answer) { answered <- a })
	select {
	case a := <-answered:
		return ours(a.err)
	case <-ctx.Done():
		return because(ErrUnknown, ctx)
	}
}

// TransferLeadership transfers leadership of the group to a voter, or to the most
// up-to-date one when to is 0. It works on every member: one that does not lead asks the
// leader. It blocks until another member leads, or to does, until the attempt has
// failed, or ctx is done; in the last case leadership may still move. ErrInvalid: there
// is no such voter, or it did not answer in time.
func (n *Node) TransferLeadership(ctx context.Context, to MemberID) error {
	err := cmp.Or(n.usable(), ended(ctx))
	if err != nil {
		return fault("transfer leadership", "", err)
	}
	err = n.member.TransferLeadership(ctx, uint64(to))
	switch {
	case err != nil && ctx.Err() != nil:
		err = because(ErrUnknown, ctx)
	case errors.Is(err, cluster.ErrNotLeader), errors.Is(err, cluster.ErrNoSuccessor):
		err = fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return fault("transfer leadership", "", ours(err))
}

// Done is closed when the node has stopped for any reason; Err says why.
func (n *Node) Done() <-chan struct{} { return n.done }

// Err says why the node has stopped: an error that wraps ErrClosed after Close,
// otherwise what went wrong, with the operation and the file if it was the
// disk. It is nil while the node runs.
func (n *Node) Err() error {
	select {
	case <-n.done:
		return n.err
	default:
		return nil
	}
}

// usable reports ErrClosed once the node is being closed or has stopped.
func (n *Node) usable() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closing {
		return ErrClosed
	}
	select {
	case <-n.done:
		return fmt.Errorf("%w: %w", ErrClosed, n.err)
	default:
		return nil
	}
}

// read runs look at a state that is at least as new as everything acknowledged
// before. It blocks until then.
func (n *Node) read(ctx context.Context, look func(*machine.Machine)) error {
	if err := n.usable(); err != nil {
		return err
	}
	err := n.member.Read(ctx, func(m cluster.Machine) { look(m.(*machine.Machine)) })
	if err != nil && ctx.Err() != nil {
		return because(ErrUnavailable, ctx)
	}
	return ours(err)
}
