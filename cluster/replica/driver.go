package replica

import (
	"fmt"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
)

// driver carries the effects of the core out, on the loop's goroutine.
type driver struct{ *Replica }

// Write passes a batch to the storage goroutine.
func (d driver) Write(b core.Batch) {
	asked := time.Now()
	stored := func(machine Machine) {
		d.metrics.Writes.ObserveDuration(time.Since(asked))
		d.post(event{run: func(c *core.Core) { c.Stored(machine) }})
	}
	d.cfg.Log.Submit(b.Ops(), func(err error) {
		switch {
		case err != nil:
			d.cfg.Fail(fmt.Errorf("write the log: %w", err))
		case b.Installs():
			d.post(event{run: func(*core.Core) { d.cfg.Routine("load", func() { d.loadInstalled(stored) }) }})
		default:
			stored(nil)
		}
	})
}

// loadInstalled loads the machine of a snapshot that is installed. The storage goroutine goes on meanwhile, with the writes of other groups:
// this one writes nothing before its batch is reported as stored.
func (d driver) loadInstalled(stored func(Machine)) {
	machine, err := raftlog.Load(d.cfg.Log, d.cfg.LoadMachine)
	if err != nil {
		d.cfg.Fail(fmt.Errorf("load the installed snapshot: %w", err))
		return
	}
	stored(machine)
}

func (d driver) Send(message *raftpb.Message) {
	body, err := proto.Marshal(message)
	if err != nil {
		d.cfg.Fail(fmt.Errorf("encode a raft message: %w", err))
		return
	}
	send := d.peers.Send
	if d.cfg.Number != 0 && isHeartbeat(message) {
		send = d.peers.SendLater
	}
	if !send(message.GetTo(), &wire.Frame{Body: &wire.Frame_Raft{Raft: body}}) {
		d.core.Unreachable(message.GetTo())
	}
}

// isHeartbeat reports whether a message is a heartbeat that no read waits for, or its answer. Those of all further groups in use have one write to each
// peer, at any moment of the interval, so that a group costs no system calls.
func isHeartbeat(m *raftpb.Message) bool {
	switch m.GetType() {
	case raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp:
		return len(m.GetContext()) == 0
	}
	return false
}

func (d driver) Forward(to uint64, s *wire.Submission) {
	d.peers.Send(to, &wire.Frame{Body: &wire.Frame_Submission{Submission: s}})
}

func (d driver) SendTransfer(to uint64, t *wire.LeadershipTransfer) {
	d.peers.Send(to, &wire.Frame{Body: &wire.Frame_LeadershipTransfer{LeadershipTransfer: t}})
}

func (d driver) SendDigest(to uint64, digest *wire.Digest) {
	d.peers.Send(to, &wire.Frame{Body: &wire.Frame_Digest{Digest: digest}})
}

func (d driver) SendQuiet(to uint64, quiet *wire.Quiet) {
	d.peers.Send(to, &wire.Frame{Body: &wire.Frame_Quiet{Quiet: quiet}})
}

func (d driver) SendSnapshot(message *raftpb.Message) { d.snapshots.start(message) }

func (d driver) CancelSnapshot(to uint64) { d.snapshots.cancel(to) }

func (d driver) Progressed() {
	d.publish()
	// The disk and the network begin before the callers that are woken next.
	if d.effects.Callers()+len(d.share.reads) > 0 {
		d.yielding.yield()
	}
}

func (d driver) Restored(machine Machine) {
	d.cfg.Restored(machine)
	d.cfg.Host.ListsChanged(d.applied())
	d.clients.Restored()
}

func (d driver) Resend() { d.clients.Resend() }

func (d driver) Changed(keys []fact.KeyChange, leaders []fact.LeaderChange) {
	d.cfg.Changed(keys, leaders)
}

func (d driver) ListsChanged() { d.cfg.Host.ListsChanged(d.applied()) }

func (d driver) Recalled(recalls []fact.Recall) {
	if d.cfg.Recalled != nil {
		d.cfg.Recalled(recalls)
	}
}

func (d driver) ShardsChanged(shards []fact.ShardChange) {
	if d.cfg.ShardsChanged != nil {
		d.cfg.ShardsChanged(shards)
	}
}

func (d driver) Ended(e fact.Ended) { d.cfg.Ended(e) }

func (d driver) MembershipChanged(conf *raftpb.ConfState) {
	d.cfg.Host.MembershipChanged(conf)
	d.cfg.Host.ListsChanged(d.applied())
}

func (d driver) LeaderChanged() {
	s := d.core.Status()
	d.leaderLog.note(d.cfg.Logger, s.Leader, s.Term)
	d.Leadership.Set()
	if s.Leader != 0 {
		d.metrics.Leaders.Add(1)
	}
	d.cfg.LeaderChanged(s.Leader, s.Term)
}
