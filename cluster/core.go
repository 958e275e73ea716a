package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
)

// core turns events into effects. It has no goroutine, no clock and no
// randomness of its own, does no I/O, and belongs to whoever calls it: the
// loop in production, the simulator in a test. Each event is a method; take
// then hands out what is to be done because of it.
type core struct {
	coreConfig
	node    *raft.RawNode
	clock   groupClock
	tickets *tickets
	reads   reads
	inbox   inbox
	digests digests

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
	unstored   int         // writes handed out and not carried out yet
	storedAt   uint64      // tick at which the disk last finished one, or had none
	staged     *staged
	installs   uint64
	installing *staged // being switched to
	conf       *raftpb.ConfState
	removing   bool // a change of the membership is under way
	parting    []parting

	out effects
}

type coreConfig struct {
	id            uint64
	incarnation   wire.ID
	log           *raftlog.Log // its memory half
	machine       Machine
	tick          time.Duration
	electionTicks int
	rand          *rand.Rand // spreads campaigns
	logger        *slog.Logger
	keep          uint64 // entries kept in the log behind the applied one
	keepBytes     uint64
	maxCalls      int                    // of our own under way
	dropOutcome   func(wire.Ticket) bool // see Harness
}

// effects is what has to be done, in the order of the fields' meaning: writes
// in their order, messages and the rest at any time.
type effects struct {
	writes    []write
	messages  []*raftpb.Message
	snapshots []*raftpb.Message // MsgSnap: the state is to be streamed
	forward   []forward
	news      []news
	reads     []Read
	leader    bool // the leader or our role has changed
	restored  bool // a snapshot has replaced the state

	membership bool     // it has changed
	deposed    bool     // by the change: we led, and are no member any more
	parted     []uint64 // whose connections are to be closed
}

// forward is a submission on its way to the leader.
type forward struct {
	to         uint64
	submission *wire.Submission
}

// write is one operation on the disk and what may be sent once it is done.
type write struct {
	op        raftlog.Op // nil: nothing to write, only an order to keep
	responses []*raftpb.Message
}

// news is what the log says to this process, in the log's order: what an entry
// has changed, an outcome for one of its calls, or the end of a session.
type news struct {
	keys    []wire.KeyChange
	leaders []wire.LeaderChange
	call    Call // nil, and nothing changed: ended
	ticket  wire.Ticket
	reply   *wire.Reply
	more    bool
	ended   wire.Ended
}

// isChange reports whether the news is of what an entry has changed.
func (n *news) isChange() bool { return len(n.keys) > 0 || len(n.leaders) > 0 }

const (
	maxBatchBytes    = 1 << 20
	maxMessageSize   = 1 << 20
	maxInflight      = 256
	maxInflightBytes = 8 << 20 // what the port queues for a peer is larger
	maxUncommitted   = 64 << 20
)

func newCore(cfg coreConfig) (*core, error) {
	c := &core{
		coreConfig: cfg,
		clock:      groupClock{cap: 2 * cfg.tick},
		tickets:    newTickets(cfg.incarnation),
		reads:      reads{incarnation: cfg.incarnation},
	}
	applied := cfg.log.Applied()
	c.applied = applied.Index
	c.digests.restore(applied.Index, applied.Digest)
	c.last, _ = cfg.log.LastIndex() // in memory: never fails
	hard, conf, err := cfg.log.InitialState()
	if err != nil {
		return nil, fmt.Errorf("reading the log's state: %w", err)
	}
	c.term, c.conf = hard.GetTerm(), conf
	c.tickets.gated = true
	c.node, err = newRawNode(&raft.Config{
		ID:                        cfg.id,
		ElectionTick:              cfg.electionTicks,
		HeartbeatTick:             1,
		Storage:                   cfg.log,
		Applied:                   c.applied,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             maxMessageSize,
		MaxCommittedSizePerReady:  4 * maxMessageSize,
		MaxUncommittedEntriesSize: maxUncommitted,
		MaxInflightMsgs:           maxInflight,
		MaxInflightBytes:          maxInflightBytes,
		CheckQuorum:               true,
		PreVote:                   true,
		Logger:                    raftLogger{cfg.logger},
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
	})
	if err != nil {
		return nil, fmt.Errorf("starting raft: %w", err)
	}
	return c, nil
}

// ticked is the heartbeat interval's event.
func (c *core) ticked() {
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
	c.part()
}

// received steps a message of an authenticated peer. An error says why it was
// not let through to raft.
func (c *core) received(from uint64, m *raftpb.Message) error {
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

// submitted takes commands that a member forwarded. Only the leader has a use
// for them; a member that does not hear of their outcome sends them again.
func (c *core) submitted(s *wire.Submission) {
	if c.role.RaftState == raft.StateLeader && proto.Size(s) <= maxBatchBytes {
		c.inbox.add(s)
	}
}

// submit takes a command of our own. Urgent ones, renewals and releases, are
// taken however many others are under way: refusing them would cost locks.
func (c *core) submit(command []byte, call Call, urgent bool) {
	if !urgent && c.tickets.calls >= c.maxCalls {
		call.Fail(ErrBusy)
		return
	}
	c.tickets.add(command, call, urgent)
}

// cancel tries to take a command back before it was handed on.
func (c *core) cancel(call Call) {
	call.Cancelled(!c.tickets.cancel(call))
}

// reincarnate goes on under a new incarnation, as the group has forgotten the
// old one. The registration of the new one comes before anything else; every
// call made under the old one fails.
func (c *core) reincarnate(id wire.ID, registration []byte, call Call) {
	forgotten := c.tickets.drain()
	c.incarnation = id
	c.tickets = newTickets(id)
	c.tickets.gated = true
	c.tickets.add(registration, call, true)
	for _, call := range forgotten {
		call.Fail(ErrForgotten)
	}
}

// read asks for a linearizable read.
func (c *core) read(r Read) error {
	if c.reads.len() >= maxReads {
		c.reads.prune()
	}
	if c.reads.len() >= maxReads {
		return ErrBusy
	}
	c.reads.waiting = append(c.reads.waiting, r)
	return nil
}

// readHere asks for a read of what has been applied here. It runs behind the
// news of that, so it sees no state that is ahead of what was reported.
func (c *core) readHere(r Read) error {
	c.out.reads = append(c.out.reads, r)
	return nil
}

// stored says that the writes have been carried out, in their order. With a
// snapshot among them comes the machine that was loaded from it.
func (c *core) stored(writes []write, installed Machine) {
	c.unstored -= len(writes)
	c.storedAt = c.ticks
	for _, w := range writes {
		if w.op != nil {
			c.log.Wrote(w.op)
		}
		if op, ok := w.op.(raftlog.Install); ok {
			c.installed(installed, op)
		}
		for _, m := range w.responses {
			if m.GetTo() == c.id {
				c.step(m)
			} else {
				c.send(m)
			}
		}
	}
}

// recheck asks the calls that await an outcome to look for it in the new
// state: it may be among the entries that the snapshot stands for.
func (c *core) recheck() {
	for _, seq := range c.tickets.awaitingInOrder() {
		call, ticket := c.tickets.awaiting[seq], wire.Ticket{Incarnation: c.incarnation, Seq: seq}
		if reply := call.Recheck(c.machine, ticket); reply != nil {
			delete(c.tickets.awaiting, seq)
			c.out.news = append(c.out.news, news{call: call, ticket: ticket, reply: reply})
		}
	}
	c.resend()
}

func (c *core) unreachable(peer uint64) { c.node.ReportUnreachable(peer) }

func (c *core) snapshotSent(peer uint64, ok bool) {
	status := raft.SnapshotFailure
	if ok {
		status = raft.SnapshotFinish
	}
	c.node.ReportSnapshot(peer, status)
}

// take lets the consequences of the events since the last take unfold, and
// hands out what is to be done. now is the time, read after all these events: a
// batch must not carry a group time from before the commands in it were sent,
// or a renewal would count from earlier than its sender may believe.
func (c *core) take(now time.Duration) (effects, error) {
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
			return effects{}, err
		}
		if !c.node.HasReady() {
			break
		}
		if err := c.ready(c.node.Ready()); err != nil {
			return effects{}, err
		}
	}
	c.discardStaged()
	c.out.reads = append(c.out.reads, c.reads.applied(c.applied)...)
	out := c.out
	c.out = effects{}
	if c.unstored == 0 {
		c.storedAt = c.ticks
	}
	c.unstored += len(out.writes)
	return out, nil
}

// resend hands on again what was handed to somebody before who may have lost it.
func (c *core) resend() {
	if c.role.Lead != raft.None {
		c.hand(c.tickets.handed(c.ticks))
	}
}

// hand gives our own commands to the leader that we know, in submissions that
// each leave room for others in an entry.
func (c *core) hand(calls []*wire.Call) {
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

func (c *core) askReads() {
	if context := c.reads.next(c.ticks, uint64(c.electionTicks)); context != nil {
		c.node.ReadIndex(context)
	}
}

// propose turns what has gathered into one entry, stamped with group time. An
// empty batch goes out when a deadline of the machine has passed: applying it
// is what fires the deadline.
func (c *core) propose() error {
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
func (c *core) step(m *raftpb.Message) { c.ignore(c.node.Step(m)) }

func (c *core) ignore(err error) {
	if err != nil {
		c.logger.Debug("raft", "refused", err)
	}
}
