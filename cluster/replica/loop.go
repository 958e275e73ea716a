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
		case <-r.received.ready:
			if !r.drain() {
				continue // handled before, with what woke the loop then
			}
		case event := <-r.queue:
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
			r.failure = err
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

// What one drain handles of other members, in frames and in bytes: between two the loop serves its ticks and callers.
const (
	drainFrames = 256
	drainBytes  = 1 << 20
)

// drain passes on what has been received so far, so that it shares one Ready and one write to the disk. It reports whether there was
// anything.
func (r *Replica) drain() (some bool) {
	some = r.drainReceived()
	for range cap(r.queue) {
		select {
		case event := <-r.queue:
			event(r.core)
			some = true
		default:
			return some
		}
	}
	return some
}

// drainReceived is drain for what other members have sent, also meanwhile.
func (r *Replica) drainReceived() (some bool) {
	for frames, bytes := 0, 0; ; {
		var left bool
		if r.taken, left = r.received.take(r.taken[:0], drainFrames-frames, drainBytes-bytes); len(r.taken) == 0 {
			if left {
				r.received.ready.Set()
			}
			return some
		}
		for i, e := range r.taken {
			r.taken[i] = receivedEvent{}
			frames, bytes, some = frames+1, bytes+e.bytes, true
			e.run(r.core)
		}
	}
}

// raftEvent returns what the loop is to do with a message of raft, and the memory that its parts take besides their bytes, also those
// that the core refuses.
func (r *Replica) raftEvent(from uint64, body []byte) (event func(*core.Core), bytes int) {
	message := new(raftpb.Message)
	if err := proto.Unmarshal(body, message); err != nil {
		r.log.Warn("malformed raft message", "from", wire.MemberID(from), "error", err)
		return nil, 0
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
	}, entryOverhead*len(message.GetEntries()) + callOverhead*len(message.GetResponses()) + snapshotOverhead*proto.Size(message.GetSnapshot())
}

// Frame receives a frame of another member, on the goroutine that reads from it. It never blocks: see Enqueue.
func (r *Replica) Frame(from uint64, f *wire.Frame) {
	var event func(*core.Core)
	bytes := FrameBytes(f)
	switch body := f.GetBody().(type) {
	case *wire.Frame_Raft:
		var entries int
		event, entries = r.raftEvent(from, body.Raft)
		bytes += entries
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
		r.Enqueue(from, event, bytes)
	}
}

// Snapshot implements transport.Handler. It stages the snapshot beside the state, and
// raft decides whether to install it.
func (r *Replica) Snapshot(from uint64, received *transport.SnapshotReader) error {
	return r.receiver.receive(from, received)
}

// Enqueue queues an event of a member for the loop, which takes that many bytes of memory. It never blocks: while too many bytes of the member
// wait for the loop, the event is dropped. Its sender must send again.
func (r *Replica) Enqueue(from uint64, event func(*core.Core), bytes int) {
	if _, first := r.received.put(from, event, bytes); first {
		r.log.Warn("messages of a member dropped: the group is behind", "from", wire.MemberID(from))
	}
}

// PeerLost reports that the connection from a member was lost, on the goroutine that has read from it. The loop handles it
// behind the frames that came over the connection, within the time that those take: a heartbeat of a leader that has
// crashed must not restore it. It never blocks, and is never dropped: there is one for each connection.
func (r *Replica) PeerLost(member uint64) {
	r.received.put(member, func(c *core.Core) { c.PeerDisconnected(member) }, 0)
}
