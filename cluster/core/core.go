package core

import (
	"log/slog"
	"math/rand/v2"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/inbox"
	"github.com/conclave-go/conclave/internal/budget"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
)

// Core is one member's Raft node and state machine. Each event is a method; Take
// processes the events and returns Effects. It is not safe for concurrent use.
type Core struct {
	raftNode
	elections
	leadershipTransfers
	calls
	attachedClients
	checkpoints
	truncation
	snapshotSending
	heartbeat    time.Duration // between two calls of Tick
	machine      Machine
	clock        groupClock
	reads        reads
	inbox        inbox.Inbox
	peers        peers
	digests      digests
	arbitration  arbitration
	notices      commitNotices
	reconciler   reconciler
	installation installation
	quiet        quiescence
	proposals    proposals
	disk         disk

	now time.Duration // monotonic, as the driver last passed it to Take

	reported reported

	metrics *Metrics
	out     Effects // since the last Take
}

// Config configures a Core.
type Config struct {
	ID                uint64
	Incarnation       wire.ID
	Log               *raftlog.Log
	Machine           Machine
	Tick              time.Duration // between two calls of Tick: the heartbeat interval
	ElectionTicks     int
	Rand              *rand.Rand // spreads campaigns
	Logger            *slog.Logger
	Keep              uint64  // applied entries kept in the log; more of them with a large state
	KeepBytes         uint64  // their bytes
	CheckpointEntries int     // applied between two checkpoints at most; 0: 4096
	MaxCalls          int     // pending calls of this process; urgent ones are not refused for it
	MaxCallBytes      int     // of their commands; 0: no limit
	Budgets           Budgets // of the groups of this process that share bounds
	// MayRemove reports whether a member that was removed may leave the configuration. It runs in Take. nil: always.
	MayRemove func(id uint64) bool
	// Priority returns the LeaderPriority of a member's process, if this one is connected to it. It runs where leadership is to be transferred. nil: all have the same.
	Priority func(id uint64) (priority int32, connected bool)
	// Quiet lets the group be quiet while it has nothing to do, which each member must know of.
	Quiet bool
}

// Budgets are bounds that several groups of a process share, of what each keeps in memory. A nil one bounds nothing.
type Budgets struct {
	Inboxes *budget.Budget // of what waits for the leaders
	Logs    *Logs
}

// NewBudgets returns those of a process.
func NewBudgets() Budgets {
	return Budgets{Inboxes: inbox.NewBudget(), Logs: NewLogs(maxLogs, maxAwaitedLogs, leastLog)}
}

// MaxPosition bounds an index or a term from which a log can go on.
const MaxPosition = 1 << 61

// New returns a core with the state of cfg.Log and cfg.Machine, which must have been
// loaded from the same disk. It returns storage.ErrCorrupt if raft cannot start from it.
func New(cfg Config) (*Core, error) {
	node, hard, err := newRaftNode(cfg)
	if err != nil {
		return nil, err
	}
	c := &Core{
		raftNode:  node,
		heartbeat: cfg.Tick,
		machine:   cfg.Machine,
		clock:     groupClock{cap: 2 * cfg.Tick},
		metrics:   newMetrics(),
	}
	applied := cfg.Log.Applied()
	c.elections = elections{raftNode: &c.raftNode, peers: &c.peers, rand: cfg.Rand}
	c.leadershipTransfers = leadershipTransfers{raftNode: &c.raftNode, out: &c.out}
	c.inbox = inbox.New(cfg.Budgets.Inboxes)
	c.notices.raftNode = &c.raftNode
	c.arbitration = arbitration{raftNode: &c.raftNode, peers: &c.peers, digests: &c.digests, out: &c.out}
	c.installation = installation{raftNode: &c.raftNode, disk: &c.disk}
	c.reconciler = reconciler{raftNode: &c.raftNode, peers: &c.peers, notices: &c.notices, clock: &c.clock, mayRemove: cfg.MayRemove}
	c.snapshotSending = snapshotSending{
		raftNode: &c.raftNode, peers: &c.peers, arbitration: &c.arbitration, notices: &c.notices, out: &c.out,
	}
	c.quiet = quiescence{raftNode: &c.raftNode, peers: &c.peers, out: &c.out, may: cfg.Quiet}
	c.proposals = proposals{raftNode: &c.raftNode, commit: c.metrics.Commit}
	c.calls = calls{
		raftNode: &c.raftNode, inbox: &c.inbox, out: &c.out, resent: &c.metrics.Resent,
		maxCalls: cfg.MaxCalls, maxBytes: cfg.MaxCallBytes, incarnation: cfg.Incarnation, tickets: tickets.New[Call](),
	}
	c.attachedClients = attachedClients{out: &c.out, clients: make(map[wire.ID]Client)}
	c.reads = reads{self: &c.raftNode, clock: &c.clock, incarnation: cfg.Incarnation}
	c.checkpoints = checkpoints{
		raftNode: &c.raftNode, disk: &c.disk, digests: &c.digests, maxEntries: cfg.CheckpointEntries, checkpoint: applied.Index,
	}
	c.truncation = truncation{
		raftNode: &c.raftNode, peers: &c.peers, disk: &c.disk, checkpoints: &c.checkpoints, out: &c.out, keep: cfg.Keep, keepBytes: cfg.KeepBytes,
		logs: cfg.Budgets.Logs, recent: applied.Index,
	}
	c.digests.restore(applied.Index, applied.Digest)
	c.disk.hard = hard
	c.peers.follow(c.id, c.conf)
	if err := c.notices.changes.restore(cfg.Log, c.applied, c.last); err != nil {
		return nil, err
	}
	c.tickets.Gate()
	c.truncation.count()
	return c, nil
}

// Tick must be called once in each heartbeat interval, unless the member is Quiet: then it has no effect, but that the
// member wakes if its log has more than its part of what several share (Config.Budgets).
func (c *Core) Tick() {
	if c.quiet.state == asleep {
		if !c.truncation.exceeds(c.machine.Size()) {
			return
		}
		c.quiet.wake()
	}
	c.ticks++
	if c.quiet.state == awake {
		c.node.Tick()
	}
	c.elections.tick()
	if c.role.Lead != raft.None {
		c.calls.resendOverdue()
	}
	c.leadershipTransfers.checkTransfers()
	c.disk.writeCommit()
	c.checkpoints.tick()
	c.leadershipTransfers.checkDisk(&c.disk)
	c.arbitration.checkDigests()
	if c.truncation.tick(); c.arbitration.diverged == nil && c.truncation.exceeds(c.machine.Size()) {
		c.truncation.truncate(c.machine.Size(), c.arbitration.disputed != 0)
	}
	c.considerQuiet()
}

// Receive passes a message of an authenticated peer to raft. It returns ErrInadmissible
// for a message that no correct peer sends, and ErrForgot if a correct leader sends it only
// to a member that has lost acknowledged entries.
func (c *Core) Receive(from uint64, m *raftpb.Message) error {
	if err := c.admissible(from, m); err != nil {
		return err
	}
	if m.GetType() == raftpb.MsgHeartbeatResp && c.isLeader() && m.GetTerm() >= c.term { // raft ignores others
		if err := c.reads.checkConfirmation(m); err != nil {
			return err
		}
	}
	if p := c.peers.byID[from]; p != nil {
		p.heard(c.ticks, c.electionTicks)
	}
	if m.GetType() == raftpb.MsgSnap {
		return refuse("snapshot outside of a snapshot connection")
	}
	c.quiet.received(m)
	switch {
	case m.GetType() == raftpb.MsgReadIndex:
		c.reads.receiveReadRequest(m)
	case m.GetType() == raftpb.MsgReadIndexResp && !c.isFollowed(m):
		// Of a member that does not lead, or that this one does not follow yet or any
		// more: raft would believe it. The read is requested again.
	default:
		c.reported.append(m)
		c.step(m)
	}
	return nil
}

// ReceiveSubmission receives commands that an authenticated peer has forwarded. Only a
// leader proposes them; the member retries commands without an outcome. It returns
// ErrInadmissible for commands in the name of another member.
func (c *Core) ReceiveSubmission(from uint64, s *wire.Submission) error {
	if s.GetMember() != from && !s.GetClient() {
		return refuse("submission of member %v", wire.MemberID(s.GetMember()))
	}
	if s.GetClient() && !c.servesClients() {
		return refuse("submission of a client below feature level %d", wire.LevelClient)
	}
	if c.role.RaftState == raft.StateLeader && proto.Size(s) <= inbox.MaxBatchBytes {
		c.inbox.Add(from, s)
	}
	return nil
}

// ReceiveDigest receives the digest of another member.
func (c *Core) ReceiveDigest(from uint64, d *wire.Digest) {
	if c.arbitration.receive(from, d) && from == c.role.Lead {
		c.reported.note(from, c.term, d.GetIndex()) // it has applied that
	}
}

// Read queues a linearizable read.
func (c *Core) Read(r Read) error {
	if !c.reads.makeRoom() {
		return errTooManyReads
	}
	c.reads.waiting = append(c.reads.waiting, r)
	return nil
}

// ReadStale queues a read of the state applied here. It runs after the notifications of
// that state, so it never sees a change before it is reported.
func (c *Core) ReadStale(r Read) error {
	c.out.Reads = append(c.out.Reads, r)
	return nil
}

// Unreachable reports that a message to a peer was dropped.
func (c *Core) Unreachable(peer uint64) {
	c.node.ReportUnreachable(peer)
	c.quiet.wake()
}

// Take processes the events since the last Take and returns their effects. now is the
// monotonic time, read after all these events: if a batch were stamped with a time from
// before its commands were sent, a renewal would expire earlier than its sender assumes.
func (c *Core) Take(now time.Duration) (Effects, error) {
	c.now = now
	if c.clock.running {
		c.clock.step(now)
	}
	for c.arbitration.diverged == nil {
		if c.role.Lead != raft.None {
			c.calls.send()
			c.reads.requestReads()
			c.leadershipTransfers.requestTransfers()
		}
		c.reconciler.reconcile(c.machine)
		if err := c.propose(); err != nil {
			return Effects{}, err
		}
		if !c.node.HasReady() {
			if c.disk.answer() {
				c.Stored(nil)
				continue
			}
			break
		}
		if err := c.ready(c.node.Ready()); err != nil {
			return Effects{}, err
		}
	}
	c.snapshotSending.confirmSnapshots()
	if c.arbitration.diverged != nil {
		return c.takeDiverged()
	}
	c.installation.discardStaged()
	c.out.Reads = append(c.out.Reads, c.reads.applied(c.applied)...)
	if c.quiet.state != awake && !c.idle() {
		c.quiet.wake()
	}
	out := c.out
	c.out = Effects{}
	out.Machine = c.machine
	out.Batch = Batch{c.disk.next(c.ticks)}
	return out, nil
}

// Reconnected reports a new connection to a peer: what was on its way may be lost.
func (c *Core) Reconnected(peer uint64) {
	c.quiet.wake()
	if c.role.Lead == peer {
		c.retryCalls()
	}
}

// PeerDisconnected reports that the connection from a peer has broken, see elections.
func (c *Core) PeerDisconnected(peer uint64) {
	c.quiet.wake()
	c.elections.peerDisconnected(peer)
}

// retryCalls sends every pending command again: a former leader or connection may have
// lost it.
func (c *Core) retryCalls() {
	if c.role.Lead != raft.None {
		c.calls.resendAll()
		c.out.Resend = c.attachedClients.any()
	}
}

// Abandon fails every pending call, read and transfer. Effects that were taken before
// must have been delivered or abandoned.
func (c *Core) Abandon(err error) {
	c.out.Abandon(err)
	c.inbox.Clear() // other groups may have what this one had of the budgets
	c.truncation.countAs(0)
	c.calls.abandonAll(err)
	c.leadershipTransfers.abandonAll(err)
}
