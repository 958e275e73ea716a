package replica

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// loop owns the core: raft and the machine. It never waits for the disk, the network
// or a caller. A panic on it, one of raft's assertions included, stops the member and
// not the process.
func (r *Replica) loop() {
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("panic in the loop", "panic", p, "stack", string(debug.Stack()))
			r.cfg.Fail(fmt.Errorf("internal error: %v", p))
		}
	}()
	r.cfg.Restored(r.core.Machine())
	ticker := time.NewTicker(r.cfg.Heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			r.tick()
			if r.pace.Skips(r.core) {
				r.pulse.pass()
				continue
			}
		case event := <-r.inbound:
			event(r.core)
			r.drain()
		case <-r.mailbox.Ready():
			r.fetched = r.yielding.fetch(r.mailbox)
			if len(r.fetched) == 0 {
				continue // fetched before, with those of an earlier signal
			}
			for len(r.fetched) > 0 {
				e := r.fetched[0]
				r.fetched = r.fetched[1:]
				e.run(r.core)
			}
			r.drain()
		case <-r.share.left:
			r.clients.AttachDue()
		case <-r.cfg.DiskFailed:
			r.cfg.Fail(fmt.Errorf("disk failed: %w", r.cfg.DiskError()))
			return
		case <-r.cfg.Lifetime.Done():
			r.ended = true
			return
		}
		if err := r.step(); err != nil {
			r.cfg.Fail(err)
			return
		}
		if r.pace.Adapt(r.core) {
			ticker.Reset(time.Duration(r.pace.Ticks()) * r.cfg.Heartbeat)
		}
	}
}

// step carries out the effects of the events that have run.
func (r *Replica) step() (err error) {
	r.cfg.Woke()
	if r.effects, err = r.core.Take(r.pulse.pass()); err != nil {
		return err
	}
	r.backlog.update(r.core.Backlog())
	if r.cfg.Effects != nil {
		r.cfg.Effects(&r.effects)
	}
	r.Acknowledged.progressed(r.core)
	r.share.queue(&r.effects)
	woken := r.effects.Callers()
	r.effects.Deliver(driver{r})
	woken += r.share.run(r.core.Machine())
	r.clients.Deliver()
	r.share.spent = 0
	r.yielding.woke(woken)
	return nil
}

// tick does what is due at each heartbeat interval, and of a quiet group less often.
func (r *Replica) tick() {
	r.core.Tick()
	if r.ticks++; r.ticks%acknowledgedTicks == 0 {
		r.Acknowledged.unsaved(r.cfg.Host.SaveAcknowledged)
	}
	r.considerLevel()
	r.cfg.Host.Ticked()
	r.clients.Tick()
	if r.cfg.Ticked != nil {
		r.cfg.Ticked(r.core.Machine())
	}
}

// drain passes on all messages received so far, so that they share one Ready and one
// write to the disk.
func (r *Replica) drain() {
	for range cap(r.inbound) {
		select {
		case event := <-r.inbound:
			event(r.core)
		default:
			return
		}
	}
}

func (r *Replica) raftEvent(from uint64, body []byte) func(*core.Core) {
	message := new(raftpb.Message)
	if err := proto.Unmarshal(body, message); err != nil {
		r.log.Warn("malformed raft message", "from", wire.MemberID(from), "error", err)
		return nil
	}
	process := r.Acknowledged.process(from)
	return func(c *core.Core) {
		switch err := c.Receive(from, message); {
		case err == nil:
			r.Acknowledged.learn(c, process, message)
		case errors.Is(err, core.ErrForgot):
			r.cfg.Fail(err)
		default:
			r.log.Warn("raft message refused", "from", wire.MemberID(from), "error", err)
		}
	}
}

// Frame receives a frame of another member, on the goroutine that reads from it. It blocks while the queue of
// the loop is full.
func (r *Replica) Frame(from uint64, f *wire.Frame) {
	var event func(*core.Core)
	switch body := f.GetBody().(type) {
	case *wire.Frame_Raft:
		event = r.raftEvent(from, body.Raft)
	case *wire.Frame_Submission:
		event = func(c *core.Core) {
			if err := c.ReceiveSubmission(from, body.Submission); err != nil {
				r.log.Warn("submission refused", "from", wire.MemberID(from), "error", err)
			}
		}
	case *wire.Frame_LeadershipTransfer:
		event = func(c *core.Core) { c.ReceiveTransfer(from, body.LeadershipTransfer) }
	case *wire.Frame_Quiet:
		event = func(c *core.Core) { c.ReceiveQuiet(from, body.Quiet) }
	case *wire.Frame_Digest:
		process := r.Acknowledged.process(from)
		event = func(c *core.Core) {
			// What is not committed here is not believed: a false index would bar the
			// member's later processes.
			r.Acknowledged.applied(process, min(body.Digest.GetIndex(), c.Status().Commit))
			c.ReceiveDigest(from, body.Digest)
		}
	}
	if event != nil {
		r.Enqueue(event, IsLarge(f))
	}
}

// Snapshot implements transport.Handler. It stages the snapshot beside the state, and
// raft decides whether to install it.
func (r *Replica) Snapshot(from uint64, received *transport.SnapshotReader) error {
	return r.receiver.receive(from, received)
}

// largeFrame is the size, in bytes, from which on a frame of a member is large.
const largeFrame = 256 << 10

// IsLarge reports whether a frame takes much memory.
func IsLarge(f *wire.Frame) bool {
	n := len(f.GetRaft())
	for _, c := range f.GetSubmission().GetCalls() {
		n += len(c.GetCommand())
	}
	const entry = 256 // bytes, of a call, of a member that is vouched for, or of a process
	lists := max(len(f.GetSubmission().GetCalls()), len(f.GetMembership().GetMembers()), len(f.GetCrashEvidence().GetProcesses()))
	return n+entry*lists >= largeFrame
}

// Enqueue queues an event of a member for the loop, and blocks while the queue is full. Of the
// large ones each member has one in the queue, so that it bounds the memory as well: Enqueue blocks
// until the loop has run the event.
func (r *Replica) Enqueue(event func(*core.Core), large bool) {
	var handled chan struct{}
	if large {
		small := event
		handled = make(chan struct{})
		event = func(c *core.Core) { small(c); close(handled) }
	}
	select {
	case r.inbound <- event:
	case <-r.cfg.Lifetime.Done():
		return
	}
	if large {
		select {
		case <-handled:
		case <-r.cfg.Lifetime.Done():
		}
	}
}

// PeerLost reports that the connection from a member was lost, on the goroutine that has read from it. The loop handles it
// behind the frames that came over the connection, within the time that those take: a heartbeat of a leader that has
// crashed must not restore it. It blocks while the queue of the loop is full.
func (r *Replica) PeerLost(member uint64) {
	r.Enqueue(func(c *core.Core) { c.PeerDisconnected(member) }, false)
}
