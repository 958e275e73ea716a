package core

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
)

// Core is one member's part in the group. It belongs to whoever calls it: each
// event is a method, Take lets the consequences unfold, and CarryOut has a Driver
// do what is to be done because of them.
type Core struct {
	cfg         Config
	id          uint64
	incarnation wire.ID
	log         *raftlog.Log // its memory half
	machine     Machine
	node        *raft.RawNode
	clock       groupClock
	tickets     *tickets
	reads       reads
	inbox       inbox
	digests     digests
	disk        disk

	ticks      uint64
	now        time.Duration // monotonic, as the driver last said
	role       raft.SoftState
	term       uint64
	applied    uint64
	proposed   bool        // our batch is under way. One at a time: the next one gathers meanwhile
	campaignAt uint64      // tick; 0 is never
	standing   uint64      // ticks from the next campaign to the one after; 0: there is none
	last       uint64      // the log's last index, durable or not
	truncated  uint64      // up to where the log was told to let go
	transfers  []*transfer // under way
	staged     *Staged
	installs   uint64
	installing *Staged // being switched to
	conf       *raftpb.ConfState
	removing   bool // a change of the membership is under way

	out     Effects
	telling []news // what CarryOut has not come to yet
}

// Config says what a core is made of.
type Config struct {
	ID            uint64
	Incarnation   wire.ID
	Log           *raftlog.Log
	Machine       Machine
	Tick          time.Duration // the driver calls Tick so often: the heartbeat interval
	ElectionTicks int
	Rand          *rand.Rand // spreads campaigns
	Logger        *slog.Logger
	Keep          uint64 // entries kept in the log behind the applied one
	KeepBytes     uint64
	MaxCalls      int                    // of this process under way; urgent ones are not counted
	DropOutcome   func(wire.Ticket) bool // as if a first outcome had not been seen; nil in production
}

const (
	maxBatchBytes    = 1 << 20
	maxMessageSize   = 1 << 20
	maxInflight      = 256
	maxInflightBytes = 8 << 20 // what the port queues for a peer is larger
	maxUncommitted   = 64 << 20
)

// New starts from what the log has on the disk; cfg.Machine has been loaded from
// the same. A log or a membership that raft cannot start from is storage.ErrCorrupt.
func New(cfg Config) (*Core, error) {
	c := &Core{
		cfg:         cfg,
		id:          cfg.ID,
		incarnation: cfg.Incarnation,
		log:         cfg.Log,
		machine:     cfg.Machine,
		clock:       groupClock{cap: 2 * cfg.Tick},
		tickets:     newTickets(),
		reads:       reads{incarnation: cfg.Incarnation},
	}
	applied := cfg.Log.Applied()
	c.applied = applied.Index
	c.digests.restore(applied.Index, applied.Digest)
	c.last, _ = cfg.Log.LastIndex() // in memory: never fails
	hard, conf, err := cfg.Log.InitialState()
	if err != nil {
		return nil, fmt.Errorf("reading the log's state: %w", err)
	}
	c.term, c.conf = hard.GetTerm(), conf
	c.tickets.gated = true
	c.node, err = newRawNode(&raft.Config{
		ID:                        cfg.ID,
		ElectionTick:              cfg.ElectionTicks,
		HeartbeatTick:             1,
		Storage:                   cfg.Log,
		Applied:                   c.applied,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             maxMessageSize,
		MaxCommittedSizePerReady:  4 * maxMessageSize,
		MaxUncommittedEntriesSize: maxUncommitted,
		MaxInflightMsgs:           maxInflight,
		MaxInflightBytes:          maxInflightBytes,
		CheckQuorum:               true,
		PreVote:                   true,
		Logger:                    raftLogger{cfg.Logger},
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
	})
	if err != nil {
		return nil, fmt.Errorf("starting raft: %w", err)
	}
	return c, nil
}

// Tick is the heartbeat interval's event.
func (c *Core) Tick() {
	c.ticks++
	c.node.Tick()
	if c.campaignAt != 0 && c.ticks >= c.campaignAt && c.role.Lead == raft.None {
		c.campaign()
	}
	if c.role.Lead != raft.None {
		c.hand(c.tickets.overdue(c.ticks))
	}
	if len(c.transfers) > 0 && c.role.RaftState == raft.StateLeader && c.node.BasicStatus().LeadTransferee == raft.None {
		c.transferred(ErrNoSuccessor)
	}
	c.watchDisk()
}

// Receive steps a message of an authenticated peer. An error says why it was
// not let through to raft.
func (c *Core) Receive(from uint64, m *raftpb.Message) error {
	if err := c.admissible(from, m); err != nil {
		return err
	}
	if m.GetType() == raftpb.MsgSnap {
		return refuse("a snapshot comes on a connection of its own")
	}
	if m.GetType() == raftpb.MsgReadIndex && c.role.RaftState != raft.StateLeader {
		return nil // raft would pass it on in its sender's name; the sender asks again
	}
	c.step(m)
	return nil
}

// ReceiveSubmission takes commands that a member forwarded. Only the leader has a use
// for them; a member that does not hear of their outcome sends them again.
func (c *Core) ReceiveSubmission(s *wire.Submission) {
	if c.role.RaftState == raft.StateLeader && proto.Size(s) <= maxBatchBytes {
		c.inbox.add(s)
	}
}

// Submit takes a command of our own. Urgent ones, renewals and releases, are
// taken however many others are under way: refusing them would cost locks.
func (c *Core) Submit(command []byte, call Call, urgent bool) {
	if !urgent && c.tickets.calls >= c.cfg.MaxCalls {
		call.Fail(ErrBusy)
		return
	}
	c.tickets.add(command, call, urgent)
}

// Cancel tries to take a command back before it was handed on.
func (c *Core) Cancel(call Call) {
	call.Cancelled(!c.tickets.cancel(call))
}

// Reincarnate goes on under a new incarnation, as the group has forgotten the
// old one. The registration of the new one comes before anything else; every
// call made under the old one fails.
func (c *Core) Reincarnate(id wire.ID, registration []byte, call Call) {
	forgotten := c.tickets.drain()
	c.incarnation = id
	c.tickets.gated = true
	c.tickets.add(registration, call, true)
	for _, call := range forgotten {
		call.Fail(ErrForgotten)
	}
}

// Read asks for a linearizable read.
func (c *Core) Read(r Read) error {
	if c.reads.len() >= maxReads {
		c.reads.prune()
	}
	if c.reads.len() >= maxReads {
		return ErrBusy
	}
	c.reads.waiting = append(c.reads.waiting, r)
	return nil
}

// Look asks for a read of what has been applied here. It runs behind the
// news of that, so it sees no state that is ahead of what was reported.
func (c *Core) Look(r Read) error {
	c.out.reads = append(c.out.reads, r)
	return nil
}

// recheck asks the calls that await an outcome to look for it in the new
// state: it may be among the entries that the snapshot stands for.
func (c *Core) recheck() {
	for _, seq := range c.tickets.awaitingInOrder() {
		call, ticket := c.tickets.awaiting[seq], wire.Ticket{Incarnation: c.incarnation, Seq: seq}
		if reply := call.Recheck(c.machine, ticket); reply != nil {
			delete(c.tickets.awaiting, seq)
			c.out.news = append(c.out.news, news{call: call, ticket: ticket, reply: reply})
		}
	}
	c.resend()
}

// Unreachable says that nothing gets to a peer at the moment.
func (c *Core) Unreachable(peer uint64) { c.node.ReportUnreachable(peer) }

// SnapshotSent says how the sending of a snapshot ended.
func (c *Core) SnapshotSent(peer uint64, ok bool) {
	status := raft.SnapshotFailure
	if ok {
		status = raft.SnapshotFinish
	}
	c.node.ReportSnapshot(peer, status)
}

// Take lets the consequences of the events since the last take unfold, and
// hands out what is to be done. now is the time, read after all these events: a
// batch must not carry a group time from before the commands in it were sent,
// or a renewal would count from earlier than its sender may believe.
func (c *Core) Take(now time.Duration) (Effects, error) {
	c.now = now
	if c.clock.running {
		c.clock.step(now)
	}
	for {
		if c.role.Lead != raft.None {
			c.hand(c.tickets.fresh(c.ticks))
			c.askReads()
		}
		c.remove()
		if err := c.propose(); err != nil {
			return Effects{}, err
		}
		if !c.node.HasReady() {
			break
		}
		if err := c.ready(c.node.Ready()); err != nil {
			return Effects{}, err
		}
	}
	c.discardStaged()
	c.out.reads = append(c.out.reads, c.reads.applied(c.applied)...)
	out := c.out
	c.out = Effects{}
	out.writes = c.disk.next(c.ticks)
	return out, nil
}

// resend hands on again what was handed to somebody before who may have lost it.
func (c *Core) resend() {
	if c.role.Lead != raft.None {
		c.hand(c.tickets.handed(c.ticks))
	}
}

// hand gives our own commands to the leader that we know, in submissions that
// each leave room for others in an entry.
func (c *Core) hand(calls []*wire.Call) {
	for len(calls) > 0 {
		n, size := 0, 0
		for n < len(calls) && (n == 0 || size+len(calls[n].GetCommand()) <= maxBatchBytes/4) {
			size += len(calls[n].GetCommand())
			n++
		}
		s := &wire.Submission{Incarnation: c.incarnation[:], Floor: c.tickets.floor, Calls: calls[:n]}
		calls = calls[n:]
		if c.role.RaftState == raft.StateLeader {
			c.inbox.add(s)
		} else {
			c.out.forward = append(c.out.forward, forward{c.role.Lead, s})
		}
	}
}

func (c *Core) askReads() {
	if context := c.reads.next(c.ticks, uint64(c.cfg.ElectionTicks)); context != nil {
		c.node.ReadIndex(context)
	}
}

// propose turns what has gathered into one entry, stamped with group time. An
// empty batch goes out when a deadline of the machine has passed: applying it
// is what fires the deadline.
func (c *Core) propose() error {
	if !c.clock.running || c.proposed {
		return nil
	}
	deadline, ok := c.machine.NextDeadline()
	if c.inbox.empty() && !(ok && deadline <= c.clock.time) {
		return nil
	}
	data := appendEntryHeader(make([]byte, 0, c.inbox.bytes+128), c.digests.index, c.digests.last)
	data, err := c.inbox.appendBatch(data, c.clock.time)
	if err != nil {
		return fmt.Errorf("encoding a batch: %w", err)
	}
	switch err := c.node.Propose(data); {
	case errors.Is(err, raft.ErrProposalDropped):
		// Leadership is being handed over. The commands' owners send them
		// again to whoever gets it.
		return nil
	case err != nil:
		return fmt.Errorf("proposing: %w", err)
	}
	c.proposed = true
	return nil
}

// step lets a message through to raft. What raft refuses it refuses for good
// reason (a message of a member that is gone, a proposal without leader), and
// the sender finds out by itself.
func (c *Core) step(m *raftpb.Message) { c.ignore(c.node.Step(m)) }

func (c *Core) ignore(err error) {
	if err != nil {
		c.cfg.Logger.Debug("raft", "refused", err)
	}
}

// Abandon says that nothing will be told any more: everybody who waits for
// something hears the error.
func (c *Core) Abandon(err error) {
	for _, n := range slices.Concat(c.telling, c.out.news) {
		if n.call != nil && !n.more { // who awaits more is among the tickets, or further on in the news
			n.call.Fail(err)
		}
	}
	c.telling, c.out.news = nil, nil
	for _, call := range c.tickets.drain() {
		call.Fail(err)
	}
	c.transferred(err)
}
