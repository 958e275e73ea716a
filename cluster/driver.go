package cluster

import (
	"fmt"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
)

// driver carries the effects of a member's core out, on the loop's goroutine.
type driver struct{ *Member }

// Write passes a batch to the storage goroutine.
func (d driver) Write(b core.Batch) {
	asked := time.Now()
	d.raftLog.Submit(b.Ops(), func(err error) {
		var machine Machine
		if err == nil && b.Installs() {
			machine, err = raftlog.Load(d.raftLog, d.cfg.LoadMachine)
		}
		if err != nil {
			d.fail(fmt.Errorf("write the log: %w", err))
			return
		}
		d.metrics.Writes.ObserveDuration(time.Since(asked))
		d.post(event{run: func(c *core.Core) { c.Stored(machine) }})
	})
}

func (d driver) Send(m *raftpb.Message) {
	body, err := proto.Marshal(m)
	if err != nil {
		d.fail(fmt.Errorf("encode a raft message: %w", err))
		return
	}
	if !d.port.Send(m.GetTo(), &wire.Frame{Body: &wire.Frame_Raft{Raft: body}}) {
		d.core.Unreachable(m.GetTo())
	}
}

func (d driver) Forward(to uint64, s *wire.Submission) {
	d.port.Send(to, &wire.Frame{Body: &wire.Frame_Submission{Submission: s}})
}

func (d driver) SendTransfer(to uint64, t *wire.LeadershipTransfer) {
	d.port.Send(to, &wire.Frame{Body: &wire.Frame_LeadershipTransfer{LeadershipTransfer: t}})
}

func (d driver) SendDigest(to uint64, digest *wire.Digest) {
	d.port.Send(to, &wire.Frame{Body: &wire.Frame_Digest{Digest: digest}})
}

func (d driver) SendSnapshot(m *raftpb.Message) { d.startSnapshot(m) }

func (d driver) CancelSnapshot(to uint64) { d.cancelSnapshot(to) }

func (d driver) Progressed() {
	d.publish()
	// The disk and the network begin before the callers that are woken next.
	if d.effects.Callers()+len(d.share.reads) > 0 {
		d.yielding.yield()
	}
}

func (d driver) Restored(machine Machine) {
	d.cfg.Restored(machine)
	d.listsChanged()
	d.clients.Restored()
}

func (d driver) Resend() { d.clients.Resend() }

func (d driver) Changed(keys []wire.KeyChange, leaders []wire.LeaderChange) {
	d.cfg.Changed(keys, leaders)
}

func (d driver) ListsChanged() { d.listsChanged() }

func (d driver) Recalled(recalls []wire.Recall) {
	if d.cfg.Recalled != nil {
		d.cfg.Recalled(recalls)
	}
}

func (d driver) Ended(e wire.Ended) { d.cfg.Ended(e) }

func (d driver) MembershipChanged(conf *raftpb.ConfState) {
	d.membershipChanged(conf)
	d.listsChanged()
}

func (d driver) LeaderChanged() {
	s := d.core.Status()
	d.leaderLog.note(d.log, s.Leader, s.Term)
	d.leadership.Set()
	if s.Leader != 0 {
		d.metrics.Leaders.Add(1)
	}
	d.cfg.LeaderChanged(s.Leader, s.Term)
}
