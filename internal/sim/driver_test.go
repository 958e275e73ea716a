package sim

import (
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// driver does for a process what its core wants done, as the driver of a member
// does in production: over the world's network, and with the world's disk.
type driver struct{ *life }

func (d driver) Write(b core.Batch) {
	l := d.life
	l.busy = true
	l.at(l.w.diskDelay(), func() {
		var installed core.Machine
		breaks := l.sick.breaks()
		err := l.log.Write(b.Ops())
		switch {
		case breaks: // as Store.Go: not even a success is passed on
			l.crash("of its disk")
			l.w.faults.restartLater(l.simMember)
			return
		case err != nil:
			l.w.fail("member %d: writing: %v", l.n, err)
		}
		l.durable.wrote(b)
		if b.Installs() {
			installed = l.load()
		}
		if l.doomed(doomStored, "after the write") {
			return
		}
		l.at(l.w.between(0, time.Millisecond), func() {
			l.busy = false
			l.core.Stored(installed)
			l.step()
		})
	})
}

func (d driver) Send(m *raftpb.Message) {
	d.covers(m)
	body, err := proto.Marshal(m)
	if err != nil {
		d.w.fail("encoding a message: %v", err)
	}
	d.w.traffic.messages[m.GetType()]++
	from := d.id()
	carried := d.w.carry(d.n, int(m.GetTo()-1), func(to *life) {
		message := new(raftpb.Message)
		if err := proto.Unmarshal(body, message); err != nil {
			d.w.fail("decoding a message: %v", err)
		}
		to.event(func(c *core.Core) {
			// A leader that died before its own write was durable may be told
			// afterwards what others have of it; it does not lead any more.
			late := message.GetType() == raftpb.MsgAppResp && !c.Status().Leads
			if err := c.Receive(from, message); err != nil && !late {
				d.w.fail("member %d refuses what a correct member sent: %v: %v", to.n, err, message)
			}
		})
	})
	if !carried && d.w.chance(0.5) {
		d.core.Unreachable(m.GetTo())
	}
}

func (d driver) Forward(to uint64, s *wire.Submission) {
	body, err := proto.Marshal(s)
	if err != nil {
		d.w.fail("encoding a submission: %v", err)
	}
	d.w.traffic.forwards++
	d.w.carry(d.n, int(to-1), func(to *life) {
		submission := new(wire.Submission)
		if err := proto.Unmarshal(body, submission); err != nil {
			d.w.fail("decoding a submission: %v", err)
		}
		to.event(func(c *core.Core) { c.ReceiveSubmission(submission) })
	})
}

func (d driver) SendTransfer(to uint64, t *wire.LeadershipTransfer) {
	from := d.id()
	d.w.carry(d.n, int(to-1), func(to *life) {
		to.event(func(c *core.Core) { c.ReceiveTransfer(from, t) })
	})
}

func (d driver) Progressed() {}

func (d driver) Restored(m core.Machine) {
	d.w.say("%d is restored at %d", d.n, d.core.Status().Applied)
	d.feed.begins(m)
	d.program.restored(m)
}

func (d driver) Changed(keys []wire.KeyChange, leaders []wire.LeaderChange) {
	d.w.history.audit.fed(d.life, keys)
}

func (d driver) Ended(e wire.Ended) { d.program.ended(e) }

// MembershipChanged closes no connections: this world has none, see dial.
func (d driver) MembershipChanged(conf *raftpb.ConfState) { d.conf = conf }

func (d driver) LeaderChanged() {}
