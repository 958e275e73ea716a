package cluster

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
)

// driver does for a member what its core wants done, on the loop's goroutine.
type driver struct{ *Member }

// Write hands a batch to the storage goroutine.
func (d driver) Write(b core.Batch) {
	d.raftLog.Submit(b.Ops(), func(err error) {
		var machine Machine
		if err == nil && b.Installs() {
			machine, err = raftlog.Load(d.raftLog, d.cfg.LoadMachine)
		}
		if err != nil {
			d.fail(fmt.Errorf("writing the log: %w", err))
			return
		}
		d.mailbox.post(event{run: func(c *core.Core) { c.Stored(machine) }})
	})
}

func (d driver) Send(m *raftpb.Message) {
	body, err := proto.Marshal(m)
	if err != nil {
		d.fail(fmt.Errorf("encoding a message: %w", err))
		return
	}
	frame := &wire.Frame{Body: &wire.Frame_Raft{Raft: body}}
	if !d.port.Send(m.GetTo(), frame) {
		d.core.Unreachable(m.GetTo())
	}
}

// Forward hands commands to the leader. When they do not get there, they are sent
// again like any whose outcome does not come.
func (d driver) Forward(to uint64, s *wire.Submission) {
	frame := &wire.Frame{Body: &wire.Frame_Submission{Submission: s}}
	d.port.Send(to, frame)
	if duplicate := d.seams.DuplicateForward; duplicate != nil && duplicate() {
		d.port.Send(to, frame)
	}
}

func (d driver) SendSnapshot(m *raftpb.Message) {
	d.routine("snapshot", func() { d.sendSnapshot(m) })
}

// Moved lets the world see how far the loop is.
func (d driver) Moved() { d.publish() }

func (d driver) Restored(machine Machine) { d.cfg.Restored(machine) }

func (d driver) Changed(keys []wire.KeyChange, leaders []wire.LeaderChange) {
	d.cfg.Changed(keys, leaders)
}

func (d driver) Ended(e wire.Ended) { d.cfg.Ended(e) }

func (d driver) Regrouped(conf *raftpb.ConfState) { d.regroup(conf) }

func (d driver) LeaderChanged() {
	s := d.core.Status()
	d.cfg.LeaderChanged(s.Leader, s.Term)
}
