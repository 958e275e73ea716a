package cluster

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// loop owns the core: raft and the machine. It never waits for the disk, the network
// or a caller. A panic on it, one of raft's assertions included, stops the member and
// not the process.
func (m *Member) loop() {
	defer func() {
		if r := recover(); r != nil {
			m.log.Error("panic in the loop", "panic", r, "stack", string(debug.Stack()))
			m.fail(fmt.Errorf("internal error: %v", r))
		}
	}()
	m.cfg.Restored(m.core.Machine())
	ticker := time.NewTicker(m.cfg.Heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			m.tick()
		case event := <-m.inbound:
			event(m.core)
			m.drain()
		case <-m.mailbox.Ready():
			m.fetched = m.fetchTogether()
			if len(m.fetched) == 0 {
				continue // fetched before, with those of an earlier signal
			}
			for len(m.fetched) > 0 {
				e := m.fetched[0]
				m.fetched = m.fetched[1:]
				e.run(m.core)
			}
			m.drain()
		case <-m.share.left:
			m.clients.AttachDue()
		case <-m.store.Failed():
			m.fail(fmt.Errorf("disk failed: %w", m.store.Err()))
			return
		case <-m.lifetime.Done():
			m.ended = true
			return
		}
		m.cfg.Woke()
		var err error
		if m.effects, err = m.core.Take(m.pass()); err != nil {
			m.fail(err)
			return
		}
		m.backlog.update(m.core.Backlog())
		if m.seams.Effects != nil {
			m.seams.Effects(&m.effects)
		}
		m.noteProgress()
		m.share.queue(&m.effects)
		woken := m.effects.Callers()
		m.effects.Deliver(driver{m})
		woken += m.runReads()
		m.clients.Deliver()
		m.share.spent = 0
		if woken > 0 {
			m.woken, m.wokenAt = woken, time.Now()
		}
	}
}

// tick does what is due at each heartbeat interval.
func (m *Member) tick() {
	m.core.Tick()
	m.saveAcknowledged()
	m.considerLevel()
	m.noteRedundancy()
	m.reconsiderVouched()
	m.clients.Tick()
	if m.cfg.Ticked != nil {
		m.cfg.Ticked(m.core.Machine())
	}
}

// drain passes on all messages received so far, so that they share one Ready and one
// write to the disk.
func (m *Member) drain() {
	for range cap(m.inbound) {
		select {
		case event := <-m.inbound:
			event(m.core)
		default:
			return
		}
	}
}

func (m *Member) raftEvent(from uint64, body []byte) func(*core.Core) {
	message := new(raftpb.Message)
	if err := proto.Unmarshal(body, message); err != nil {
		m.log.Warn("malformed raft message", "from", wire.MemberID(from), "error", err)
		return nil
	}
	process := m.acknowledged.process(from)
	return func(c *core.Core) {
		switch err := c.Receive(from, message); {
		case err == nil:
			m.acknowledged.learn(c, process, message)
		case errors.Is(err, ErrForgot):
			m.fail(err)
		default:
			m.log.Warn("raft message refused", "from", wire.MemberID(from), "error", err)
		}
	}
}

// Frame implements transport.Handler; it runs on the peer's reader.
func (m *Member) Frame(from uint64, f *wire.Frame) {
	var event func(*core.Core)
	switch body := f.GetBody().(type) {
	case *wire.Frame_Raft:
		event = m.raftEvent(from, body.Raft)
	case *wire.Frame_Submission:
		event = func(c *core.Core) {
			if err := c.ReceiveSubmission(from, body.Submission); err != nil {
				m.log.Warn("submission refused", "from", wire.MemberID(from), "error", err)
			}
		}
	case *wire.Frame_Membership:
		event = func(*core.Core) { m.receiveMembership(from, body.Membership) }
	case *wire.Frame_LeadershipTransfer:
		event = func(c *core.Core) { c.ReceiveTransfer(from, body.LeadershipTransfer) }
	case *wire.Frame_Digest:
		process := m.acknowledged.process(from)
		event = func(c *core.Core) {
			// What is not committed here is not believed: a false index would bar the
			// member's later processes.
			m.acknowledged.applied(process, min(body.Digest.GetIndex(), c.Status().Commit))
			c.ReceiveDigest(from, body.Digest)
		}
	}
	if event != nil {
		m.enqueue(event, isLarge(f))
	}
}

// largeFrame is the size, in bytes, from which on a frame of a member is large.
const largeFrame = 256 << 10

// isLarge reports whether a frame takes much memory.
func isLarge(f *wire.Frame) bool {
	n := len(f.GetRaft())
	for _, c := range f.GetSubmission().GetCalls() {
		n += len(c.GetCommand())
	}
	const entry = 256 // bytes, of a call or of a member that is vouched for
	return n+entry*max(len(f.GetSubmission().GetCalls()), len(f.GetMembership().GetMembers())) >= largeFrame
}

// enqueue queues an event of a member for the loop, and blocks while the queue is full. Of the
// large ones each member has one in the queue, so that it bounds the memory as well: enqueue blocks
// until the loop has run the event.
func (m *Member) enqueue(event func(*core.Core), large bool) {
	var handled chan struct{}
	if large {
		small := event
		handled = make(chan struct{})
		event = func(c *core.Core) { small(c); close(handled) }
	}
	select {
	case m.inbound <- event:
	case <-m.lifetime.Done():
		return
	}
	if large {
		select {
		case <-handled:
		case <-m.lifetime.Done():
		}
	}
}
