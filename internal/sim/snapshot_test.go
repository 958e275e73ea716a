package sim

import (
	"errors"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
)

// keyValue is a pair of the streamed state.
type keyValue struct{ key, value []byte }

// SendSnapshot streams the durable state to the peer and reports the result to
// raft.
func (d driver) SendSnapshot(m *raftpb.Message) {
	proc := d.process
	reported := false
	report := func(ok bool) {
		proc.post(func(c *core.Core) {
			if !reported {
				reported = true
				c.SnapshotSent(m.GetTo(), ok)
			}
		})
	}
	view, err := proc.log.View()
	if err != nil {
		proc.sim.fail("member %d: open a view: %v", proc.n, err)
	}
	body, err := proto.Marshal(core.Snapshot(m, view))
	if err != nil {
		proc.sim.fail("encode a snapshot: %v", err)
	}
	var state []keyValue
	err = view.Each(func(key, value []byte) error {
		state = append(state, keyValue{append([]byte{}, key...), append([]byte{}, value...)})
		return nil
	})
	if err != nil || view.Close() != nil {
		proc.sim.fail("member %d: read a view: %v", proc.n, err)
	}
	digest := view.Digest
	send := func() {
		proc.sim.trace("member %d sends member %d a snapshot of %d", proc.n, m.GetTo()-1, view.Index)
		proc.after(time.Second, func() { report(false) }) // the connection would fail
		proc.sim.deliver(proc.n, int(m.GetTo()-1), func(to *process) {
			to.runIfAlive(func() {
				to.receiveSnapshot(proc, body, digest, state, func(err error) {
					proc.sim.deliver(to.n, proc.n, func(back *process) {
						if back == proc {
							report(err == nil)
						}
					})
				})
			})
		})
	}
	asked := proc.sim.now
	proc.after(0, func() {
		proc.post(func(c *core.Core) {
			c.ConfirmSnapshot(m.GetTo(), view.Index, func(err error) {
				if err == nil && proc.tainted && proc.sim.history.differs(view.Index, digest) && proc.differs() { // the digest of the view may be unknown
					err = proc.lateConfirmation(asked, view.Index, digest)
				}
				if err != nil {
					proc.sim.trace("member %d sends member %d no snapshot of %d: %v", proc.n, m.GetTo()-1, view.Index, err)
					proc.after(0, func() { report(false) })
					return
				}
				proc.after(0, send)
			})
		})
	})
}

var errUnanswered = errors.New("no voter has answered, and the state is wrong")

// lateConfirmation fails the test if a state that is known to be wrong was confirmed by an agreement. It was
// confirmed without one if no majority has answered for some election timeouts: then the
// state spreads (docs/ARCHITECTURE.md), and the simulator stops that, as it models the
// group with one state. What an agreement has confirmed and is not known to be wrong is right, or the digest of the member
// that installs it will differ from the group's, which fails the test.
func (proc *process) lateConfirmation(asked time.Duration, index, digest uint64) error {
	switch {
	case proc.sim.now-asked >= electionTicks*tick && proc.sim.script == nil:
		return errUnanswered
	case proc.sim.history.isWrong(index, digest):
		proc.sim.fail("member %d sends a wrong state", proc.n)
	}
	return nil
}

// CancelSnapshot has no effect: a simulated stream ends within a second.
func (d driver) CancelSnapshot(uint64) {}

// receiveSnapshot does what Member.Snapshot does.
func (proc *process) receiveSnapshot(from *process, body []byte, digest uint64, state []keyValue, done func(error)) {
	if proc.staging {
		done(core.ErrInadmissible)
		return
	}
	stage, err := proc.log.Stage()
	if err != nil {
		proc.sim.fail("member %d: stage: %v", proc.n, err)
	}
	for i, p := range state {
		if i == len(state)/2 && proc.crashesAt(crashWhileStaging, "while staging") {
			return
		}
		if err := stage.Put(p.key, p.value); err != nil {
			proc.sim.fail("member %d: stage: %v", proc.n, err)
		}
	}
	generation, err := stage.Finish()
	if err != nil {
		proc.sim.fail("member %d: stage: %v", proc.n, err)
	}
	message := new(raftpb.Message)
	if err := proto.Unmarshal(body, message); err != nil {
		proc.sim.fail("decode a snapshot: %v", err)
	}
	proc.staging = true
	proc.post(func(c *core.Core) {
		c.ReceiveSnapshot(from.id(), message, core.Staged{Generation: generation, Digest: digest, Done: func(err error) {
			proc.staging = false
			proc.sim.trace("member %d: snapshot: %v", proc.n, err)
			done(err)
		}})
	})
}
