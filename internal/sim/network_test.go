package sim

import (
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
)

// network carries encoded messages between members.
type network struct {
	loss, duplicate    float64
	minDelay, maxDelay time.Duration
	cut                [][]bool          // from, to
	stalledUntil       [][]time.Duration // from, to
}

func healthyNetwork(n int) network {
	net := network{minDelay: 100 * time.Microsecond, maxDelay: time.Millisecond, cut: make([][]bool, n), stalledUntil: make([][]time.Duration, n)}
	for i := range net.cut {
		net.stalledUntil[i] = make([]time.Duration, n)
		net.cut[i] = make([]bool, n)
	}
	return net
}

// deliver schedules the arrival at a process, if one runs by then. It returns false
// for a loss that the sender could notice.
func (sim *simulation) deliver(from, to int, arrive func(*process)) bool {
	if sim.network.cut[from][to] || sim.members[to].process == nil {
		return false
	}
	if sim.chance(sim.network.loss) {
		return true
	}
	copies := 1
	if sim.chance(sim.network.duplicate) {
		copies = 2
	}
	for range copies {
		held := max(0, sim.network.stalledUntil[from][to]-sim.now)
		sim.schedule(held+sim.between(sim.network.minDelay, sim.network.maxDelay), func() {
			switch proc := sim.members[to].process; {
			case proc == nil:
			case proc.isMember(from):
				arrive(proc)
			}
		})
	}
	return true
}

// isolate partitions a member from all others.
func (sim *simulation) isolate(n int) {
	for other := range sim.members {
		sim.network.cut[n][other], sim.network.cut[other][n] = other != n, other != n
	}
}

func (sim *simulation) diskDelay() time.Duration {
	switch {
	case sim.disks.slow && sim.chance(0.01): // it hangs
		return sim.between(time.Second, 3*time.Second)
	case sim.disks.slow:
		return sim.between(0, 300*time.Millisecond)
	}
	return sim.between(0, 3*time.Millisecond)
}

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
	proc.after(time.Second, func() { report(false) }) // the connection would fail
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
	proc.sim.trace("member %d sends member %d a snapshot of %d", proc.n, m.GetTo()-1, view.Index)
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
