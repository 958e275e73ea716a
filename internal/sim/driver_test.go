package sim

import (
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// driver carries out the effects of a core, as a member's driver does in
// production, over the simulated network and disk.
type driver struct{ *process }

func (d driver) Write(b core.Batch) {
	proc := d.process
	proc.diskBusy = true
	proc.writes = append(proc.writes, diskWrite{proc, b})
	if !proc.writing {
		proc.beginWriting()
	}
}

func (d driver) Send(m *raftpb.Message) {
	d.checkDurable(m)
	body, err := proto.Marshal(m)
	if err != nil {
		d.sim.fail("encode a message: %v", err)
	}
	d.sim.traffic.messages[m.GetType()]++
	from, sender := d.id(), d.identity()
	if d.isLiar() && !d.sim.draining && d.sim.extraRNG.IntN(20) == 0 {
		d.lie(int(m.GetTo() - 1))
	}
	carried := d.sim.deliver(d.n, int(m.GetTo()-1), func(to *process) {
		message := new(raftpb.Message)
		if err := proto.Unmarshal(body, message); err != nil {
			d.sim.fail("decode a message: %v", err)
		}
		to.post(func(c *core.Core) {
			// A leader that crashed before its own write was durable may receive an
			// acknowledgement beyond its log afterwards; it is no longer the leader.
			late := message.GetType() == raftpb.MsgAppResp && !c.Status().Leads
			err := c.Receive(from, message)
			if err != nil && !late {
				d.sim.fail("member %d refuses a message of a correct member: %v: %v", to.n, err, message)
			}
			if p, ok := c.Acknowledges(message); ok && err == nil {
				to.learn(sender, p)
			}
		})
	})
	if !carried && d.sim.chance(0.5) {
		d.core.Unreachable(m.GetTo())
	}
}

func (d driver) Forward(to uint64, s *wire.Submission) {
	body, err := proto.Marshal(s)
	if err != nil {
		d.sim.fail("encode a submission: %v", err)
	}
	d.sim.traffic.forwards++
	from := d.id()
	d.sim.deliver(d.n, int(to-1), func(to *process) {
		submission := new(wire.Submission)
		if err := proto.Unmarshal(body, submission); err != nil {
			d.sim.fail("decode a submission: %v", err)
		}
		to.post(func(c *core.Core) {
			err := c.ReceiveSubmission(from, submission)
			if level, _ := c.Machine().Level(); submission.Client && level < wire.LevelClient {
				return // it has not applied the entry yet that raised the level; the client retries
			}
			if err != nil {
				to.sim.fail("member %d: %v", to.n, err)
			}
		})
	})
}

func (d driver) SendTransfer(to uint64, t *wire.LeadershipTransfer) {
	from := d.id()
	d.sim.deliver(d.n, int(to-1), func(to *process) {
		to.post(func(c *core.Core) { c.ReceiveTransfer(from, t) })
	})
}

func (d driver) SendDigest(to uint64, digest *wire.Digest) {
	from, sender := d.id(), d.identity()
	d.sim.deliver(d.n, int(to-1), func(to *process) {
		to.acknowledged.AddApplied(sender, digest.GetIndex())
		to.post(func(c *core.Core) { c.ReceiveDigest(from, digest) })
	})
}

func (d driver) SendQuiet(to uint64, quiet *wire.Quiet) {
	m := quietMessage{d.process, to, quiet}
	d.sim.quiet.sent(m)
	if !d.sim.answerByEarlier(m) {
		d.deliverQuiet(m)
	}
}

func (proc *process) deliverQuiet(m quietMessage) {
	proc.sim.deliver(proc.n, int(m.to-1), func(to *process) {
		to.post(func(c *core.Core) { c.ReceiveQuiet(proc.id(), m.quiet) })
	})
}

func (d driver) Progressed() {}

func (d driver) Restored(m core.Machine) {
	if d.tainted {
		return
	}
	d.sim.trace("member %d restored a snapshot at %d", d.n, d.core.Status().Applied)
	d.feed.reset(m)
	d.program.restored(m)
	d.serving.restored()
}

func (d driver) Changed(keys []fact.KeyChange, leaders []fact.LeaderChange) {
	if d.tainted {
		return
	}
	d.sim.history.audit.checkFeed(d.process, keys)
}

func (d driver) ListsChanged() {}

func (d driver) ShardsChanged([]fact.ShardChange) {}

func (d driver) Recalled(recalls []fact.Recall) {
	if !d.tainted {
		d.program.recalled(recalls)
	}
}

func (d driver) Ended(e fact.Ended) {
	if !d.tainted {
		d.program.sessionEnded(e)
	}
}

// MembershipChanged closes no connections: the simulated network has none, see
// connect.
func (d driver) MembershipChanged(conf *raftpb.ConfState) { d.conf = conf }

func (d driver) LeaderChanged() {}
func (d driver) Resend()        { d.serving.resend() }
