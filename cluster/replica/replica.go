// Package replica runs this process's copy of one group: the core that orders commands and gives them
// meaning (cluster/core), the log beneath it, and the goroutine that owns both. The member of package
// cluster around it, which a process has once, connects it to the other members. It is a seam, not an
// API: only package conclave and what it is made of use it.
//
// submit.go takes commands and reads; loop.go passes events to the core, and driver.go carries out its
// effects; status.go is what other goroutines may know of it. Backups and snapshots (backup.go, snapshot_send.go,
// snapshot_receive.go) run on goroutines of their own, and take of the replica what they need as functions.
package replica

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/budget"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wait"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
)

// Machine is the replicated state machine, and Call a pending command. The user of a
// replica implements both.
type (
	Machine = core.Machine
	Call    = core.Call
)

var (
	// ErrStopped: the member has stopped.
	ErrStopped = errors.New("the member has stopped")
	// ErrNoLeader: no leader was known in time.
	ErrNoLeader = errors.New("no leader is known")
	// ErrLevel: the group refuses a feature level.
	ErrLevel = errors.New("the group refuses the feature level")
)

// Config configures a replica.
type Config struct {
	Number       uint32 // of the group; 0: the default one
	Log          *raftlog.Log
	Acknowledged []*wire.Peer // with what the other members have acknowledged, as far as an earlier process has recorded it
	Member       uint64
	Incarnation  wire.ID
	Group        string
	Dir          string         // of the log, for log lines
	Cluster      func() wire.ID // of the group, once Start is called
	Heartbeat    time.Duration
	Election     time.Duration
	Logger       *slog.Logger
	MaxCalls     int // pending calls of this process; urgent ones are not refused for it

	MaxCallBytes int                 // of the pending calls' commands
	Received     *ReceivedBytes      // of all replicas of this process
	Budgets      *Budgets            // of the further groups of this process; nil: bounds of its own
	KeepEntries  uint64              // applied entries kept in the log; 0: a default
	Effects      func(*core.Effects) // runs on the loop before effects are carried out, and may drop or repeat messages; nil: ignored

	Snapshots *SnapshotTurns // shared by the replicas of the process; nil: slots of its own

	LoadMachine func(state iter.Seq2[[]byte, []byte]) (Machine, error)
	Commands    Commands
	Callbacks

	// MayRemove and Priority are those of the core's configuration.
	MayRemove func(id uint64) bool
	Priority  func(id uint64) (priority int32, connected bool)
	Host      Host
	Lifetime  context.Context // of the member
	Done      <-chan struct{} // closed once everything has ended
	// Stopped returns why Lifetime is done.
	Stopped func() error
	// Fail ends it.
	Fail func(error)
	// DiskFailed is closed when the disk has failed, and DiskError is why.
	DiskFailed <-chan struct{}
	DiskError  func() error
	// Routine starts a goroutine that the host waits for.
	Routine func(name string, run func())
}

// Budgets are the bounds that several replicas of a process share.
type Budgets struct {
	Core  core.Budgets
	Calls *budget.Budget // of the bytes that MaxCallBytes bounds in each
}

// NewBudgets returns those of replicas with that MaxCallBytes.
func NewBudgets(maxCallBytes int) *Budgets {
	return &Budgets{core.NewBudgets(), tickets.NewBudget(maxCallBytes)}
}

// Commands encodes the commands that a replica itself submits.
type Commands interface {
	// RaiseLevel raises the feature level; see Replica.RaiseLevel.
	RaiseLevel(level uint32, members []uint64, force bool) []byte
}

// Callbacks run on the loop's goroutine, in log order, and must not block.
type Callbacks struct {
	// Restored receives the loaded machine before any notification, and later each
	// one that a snapshot has put in its place. That one may have applied further
	// entries; their changes are reported next.
	Restored      func(Machine)
	Changed       func(keys []fact.KeyChange, leaders []fact.LeaderChange) // by one entry; before its outcomes
	Recalled      func([]fact.Recall)                                      // by one entry; nil: ignored
	ShardsChanged func([]fact.ShardChange)                                 // by one entry; nil: ignored
	Ended         func(fact.Ended)                                         // a session has ended
	LeaderChanged func(leader, term uint64)
	Woke          func()        // at each wake-up of the loop, ticks included
	Ticked        func(Machine) // at each heartbeat interval, and at some of them while the group is quiet; nil: ignored
}

// Host is the member around a replica. Its methods run on the loop's goroutine, and do not block.
type Host interface {
	// Ticked runs at each heartbeat interval, and at some of them while the group is quiet.
	Ticked()
	// Published runs after each change of the status.
	Published(*Status)
	MembershipChanged(*raftpb.ConfState)
	// ListsChanged reports that what the machine shows of sessions and checks, or of the members, has changed.
	ListsChanged(applied uint64)
	// SaveAcknowledged records on disk what a peer has acknowledged.
	SaveAcknowledged(member uint64, p core.Position)
}

// Peers sends to the other members.
type Peers interface {
	// Send sends a frame, and reports false if there is no connection.
	Send(member uint64, f *wire.Frame) bool
	// SendLater is Send for a frame that may wait for others, a part of a heartbeat interval.
	SendLater(member uint64, f *wire.Frame) bool
	OpenSnapshot(ctx context.Context, member uint64, h *wire.SnapshotHeader) (*transport.SnapshotWriter, error)
}

// numbered marks what is sent as that of a further group.
type numbered struct {
	Peers
	group uint32
}

func (n numbered) Send(member uint64, f *wire.Frame) bool {
	f.Group = n.group
	return n.Peers.Send(member, f)
}

func (n numbered) SendLater(member uint64, f *wire.Frame) bool {
	f.Group = n.group
	return n.Peers.SendLater(member, f)
}

func (n numbered) OpenSnapshot(ctx context.Context, member uint64, h *wire.SnapshotHeader) (*transport.SnapshotWriter, error) {
	h.Group = n.group
	return n.Peers.OpenSnapshot(ctx, member, h)
}

// Clients serves the processes that are connected to this member and use this replica. Its methods run on
// the loop's goroutine, and do not block.
type Clients interface {
	// AttachDue attaches those that a later step of the loop was to attach.
	AttachDue()
	// Deliver sends what they are to be notified of.
	Deliver()
	Tick()
	// Resend runs when their calls are sent again, and Restored when a snapshot has replaced the machine.
	Resend()
	Restored()
}

// Replica is this process's copy of one group.
type Replica struct {
	Requests
	// Acknowledged is set by New.
	Acknowledged *Acknowledged

	cfg      Config
	log      *slog.Logger
	peers    Peers
	clients  Clients
	backups  backups
	receiver snapshotReceiver

	// Owned by the loop's goroutine, and by Abandon when that has ended.
	core      *core.Core
	lag       lag
	yielding  yielding
	ended     bool  // the loop has ended in order, between two events
	failure   error // why the loop has ended otherwise; nil: it has not, or because of the disk
	fetched   []event
	taken     []receivedEvent
	effects   core.Effects
	ticks     uint64
	pace      core.Pace
	leaderLog leaderLog
	snapshots snapshotSender
	share     share

	metrics  Metrics
	received *received             // from peers
	queue    chan func(*core.Core) // from clients, which have one event in it each; their readers block while it is full
	status   atomic.Pointer[Status]
	pulse    pulse
	raising  atomic.Bool // the feature level

	// Leadership is set when the leader changes, and when this process is registered.
	Leadership wait.Signal
}

// New returns a replica that takes events, and runs none before Start.
func New(cfg Config) *Replica {
	if cfg.Snapshots == nil {
		cfg.Snapshots = new(SnapshotTurns)
	}
	if cfg.Budgets == nil {
		cfg.Budgets = new(Budgets)
	}
	r := &Replica{
		cfg: cfg, log: cfg.Logger, pulse: pulse{began: time.Now()}, received: newReceived(cfg.Received), queue: make(chan func(*core.Core), 256),
		Acknowledged: new(Acknowledged), Leadership: wait.NewSignal(),
	}
	r.Requests = Requests{
		mailbox: wait.NewMailbox[event](), backlog: backlog{maxCalls: cfg.MaxCalls, maxBytes: cfg.MaxCallBytes, budget: cfg.Budgets.Calls},
		refused: &r.metrics.Refused, lifetime: cfg.Lifetime, done: cfg.Done, stopped: cfg.Stopped,
	}
	r.share.left = wait.NewSignal()
	r.Acknowledged.load(cfg.Acknowledged)
	r.Acknowledged.noteDurable(cfg.Log)
	checkpoint := func() { r.Post((*core.Core).Checkpoint) }
	r.backups = backups{cfg: &r.cfg, status: r.Status, readApplied: r.readApplied, checkpoint: checkpoint}
	r.snapshots = snapshotSender{cfg: &r.cfg, metrics: &r.metrics, post: r.Post}
	r.receiver = snapshotReceiver{cfg: &r.cfg, post: r.Post}
	return r
}

// Load loads the machine from the disk. first has this member campaign at once, as one that has formed the
// group does. What it returns belongs to the loop's goroutine once Start is called.
func (r *Replica) Load(first bool) (*core.Core, error) {
	machine, err := raftlog.Load(r.cfg.Log, r.cfg.LoadMachine)
	if err != nil {
		return nil, err
	}
	if r.core, err = core.New(r.cfg.core(machine)); err != nil {
		return nil, err
	}
	r.metrics.measure(r.core.Metrics())
	r.Acknowledged.noteDurable(r.cfg.Log)
	r.core.CampaignFirst(first)
	return r.core, nil
}

// Start starts the loop.
func (r *Replica) Start(peers Peers, clients Clients) {
	if r.cfg.Number != 0 {
		peers = numbered{peers, r.cfg.Number}
	}
	r.peers, r.snapshots.peers, r.clients = peers, peers, clients
	r.pulse.pass()
	r.publish()
	r.cfg.Routine("loop", r.loop)
}

// Abandon fails every pending call, wherever the loop left it: in the mailbox, fetched, in undelivered
// effects, or in the core. The loop has ended.
func (r *Replica) Abandon() {
	r.received.close()
	r.backlog.close()
	lose(r.mailbox.Close())
	lose(r.fetched)
	if r.core != nil {
		r.effects.Abandon(r.cfg.Stopped())
		r.core.Abandon(r.cfg.Stopped())
	}
}

// Finish writes what is left to be written when the loop has ended: of an orderly stop the state that was applied last, and of a
// divergence of this group, which is not that of others, that the directory must not be used again.
func (r *Replica) Finish(orderly bool) {
	recordDivergence(r.cfg.Log, r.log, r.failure)
	if orderly && r.ended {
		r.writeLastCheckpoint()
	}
}

// writeLastCheckpoint writes the state that was applied last, so that the next start has
// nothing to apply again.
func (r *Replica) writeLastCheckpoint() {
	op, ok := r.core.LastCheckpoint()
	if !ok {
		return
	}
	if err := r.cfg.Log.Execute(op); err != nil {
		r.log.Warn("last checkpoint not written", "dir", r.cfg.Dir, "error", err)
	}
}

// OpenBackup returns the state of this member's machine at one index, as a view of the database. It works on the
// caller's goroutine, and nothing waits for the document to be written: neither the
// member nor its shutdown. If a quorum confirms it in time, the state has everything that
// was acknowledged before the call. ErrBusy: too many reads are pending. Of a further group the name is still to be set in the header.
func (r *Replica) OpenBackup(ctx context.Context, host HostLife) (*Backup, error) {
	return r.backups.open(ctx, host)
}

// readApplied returns the index up to which everything is applied that was acknowledged before the call.
func (r *Replica) readApplied(ctx context.Context) (uint64, error) {
	applied := make(chan uint64, 1) // a read that was abandoned may still run
	if err := r.Read(ctx, func(Machine) { applied <- r.core.Status().Applied }); err != nil {
		return 0, err
	}
	return <-applied, nil
}

// Queue takes what clients have the loop run. Sending blocks while the queue is full.
func (r *Replica) Queue() chan<- func(*core.Core) { return r.queue }

// Spend does a piece of work on the loop's goroutine, of which a step of the loop does a bounded share, and IsSpent
// reports whether the rest waits for the next step.
func (r *Replica) Spend(work func()) { r.share.spend(work) }

// IsSpent: see Spend.
func (r *Replica) IsSpent() bool { return r.share.isSpent() }
