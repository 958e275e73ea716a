package cluster

import (
	"fmt"
	"runtime/debug"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// loop owns the core: raft and the machine. It never waits for the disk, the
// network or a caller. A panic in here, raft's assertions included, stops the
// member and not the host.
func (m *Member) loop() {
	defer func() {
		if r := recover(); r != nil {
			m.log.Error("panic in the loop", "panic", r, "stack", string(debug.Stack()))
			m.fail(fmt.Errorf("internal error: %v", r))
		}
	}()
	m.cfg.Restored(m.core.machine)
	ticker := time.NewTicker(m.cfg.Heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			m.core.ticked()
		case event := <-m.inbound:
			event(m.core)
			m.drain()
		case <-m.mailbox.signal:
			m.fetched = m.mailbox.fetch()
			for len(m.fetched) > 0 {
				e := m.fetched[0]
				m.fetched = m.fetched[1:]
				e.run(m.core)
			}
			m.drain()
		case <-m.store.Failed():
			m.fail(fmt.Errorf("the disk failed: %w", m.store.Err()))
			return
		case <-m.lifetime.Done():
			return
		}
		out, err := m.core.take(time.Since(m.began))
		if err != nil {
			m.fail(err)
			return
		}
		m.carryOut(out)
	}
}

// drain takes what peers have sent meanwhile, so that one round through raft
// and one write to the disk serve all of it.
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

func (m *Member) carryOut(out effects) {
	m.write(out.writes)
	for _, message := range out.messages {
		body, err := proto.Marshal(message)
		if err != nil {
			m.fail(fmt.Errorf("encoding a message: %w", err))
			continue
		}
		frame := &wire.Frame{Body: &wire.Frame_Raft{Raft: body}}
		if !m.port.Send(message.GetTo(), frame) {
			m.core.unreachable(message.GetTo())
		}
	}
	for _, f := range out.forward {
		m.forward(f)
	}
	for _, message := range out.snapshots {
		m.routine("snapshot", func() { m.sendSnapshot(message) })
	}
	m.publish() // whoever is told of something finds a status that knows of it
	if out.restored {
		m.cfg.Restored(m.core.machine)
	}
	m.news = out.news
	for len(m.news) > 0 {
		n := m.news[0]
		m.news = m.news[1:]
		m.deliver(n)
	}
	for _, r := range out.reads {
		r.Run(m.core.machine)
	}
	m.regroup(out)
	if out.leader {
		m.cfg.LeaderChanged(m.core.role.Lead, m.core.term)
	}
}

func (m *Member) deliver(n news) {
	switch {
	case n.isChange():
		m.cfg.Changed(n.keys, n.leaders)
	case n.call != nil:
		n.call.Deliver(n.ticket, n.reply, n.more)
	default:
		m.cfg.Ended(n.ended)
	}
}

// forward hands commands to the leader. When they do not get there, they are
// sent again like any whose outcome does not come.
func (m *Member) forward(f forward) {
	frame := &wire.Frame{Body: &wire.Frame_Submission{Submission: f.submission}}
	m.port.Send(f.to, frame)
	if duplicate := m.cfg.Harness.DuplicateForward; duplicate != nil && duplicate() {
		m.port.Send(f.to, frame)
	}
}

func (m *Member) raftEvent(from uint64, body []byte) func(*core) {
	message := new(raftpb.Message)
	if err := proto.Unmarshal(body, message); err != nil {
		m.log.Warn("a member sends what is no message", "from", from, "error", err)
		return nil
	}
	return func(c *core) {
		if err := c.received(from, message); err != nil {
			m.log.Warn("a member's message is refused", "from", from, "error", err)
		}
	}
}

// Frame takes what a peer has sent; it runs on that peer's reader.
func (m *Member) Frame(from uint64, f *wire.Frame) {
	var event func(*core)
	switch body := f.GetBody().(type) {
	case *wire.Frame_Raft:
		event = m.raftEvent(from, body.Raft)
	case *wire.Frame_Submission:
		event = func(c *core) { c.submitted(body.Submission) }
	}
	if event == nil {
		return
	}
	select {
	case m.inbound <- event:
	case <-m.lifetime.Done():
	}
}
