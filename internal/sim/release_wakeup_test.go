package sim

import (
	"maps"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
)

// No herd effect and no polling: a release wakes one waiter and costs the same with
// ten or a thousand of them, and waiters send nothing.
func TestRelease_WakesOneWaiter(t *testing.T) {
	const waiters = 1000
	sim := newScriptedSimulation(t, 1, 3, faults{})
	sc := &releaseScenario{simulation: sim}
	for n := range sim.members {
		sim.register(n)
		sim.openSession(n, waiterTTL, 0, wire.Behavior_RELEASE)
		sim.program(n).renewEvery(waiterTTL / 3)
	}
	fence := sim.mustInvoke(0, wire.Code_OK, lockCommand("lock", sim.program(0).session, 0, false)).GetFence()
	for n := range sim.members {
		sc.enqueue(sim.program(n), 1+uint64(n), waiters)
	}
	sim.await(time.Minute, "queue", func() bool { return sc.queued == waiters })
	sc.checkWaitersSendNothing()

	before, log := sim.traffic.clone(), sim.history.last()
	sim.mustInvoke(0, wire.Code_OK, unlockCommand("lock", sim.program(0).session, 0, fence))
	sim.await(5*time.Minute, "drained queue", func() bool { return sc.released == waiters })
	if sc.granted != waiters {
		t.Errorf("%d grants for %d releases", sc.granted, waiters)
	}
	if sc.newestFence != fence+waiters {
		t.Errorf("fences from %d to %d for %d grants", fence, sc.newestFence, waiters)
	}
	// A release is one submission and one entry. The entry goes to two members, then
	// its commit index; both acknowledge both. Renewals come on top.
	entries, sent := sim.history.last()-log, sim.traffic.since(before)
	t.Logf("%d releases: %d entries, %d submissions forwarded, %v", waiters+1, entries, sent.forwards, sent.messages)
	if most := uint64(waiters + 1 + waiters/10); entries > most {
		t.Errorf("%d entries, want at most %d", entries, most)
	}
	if most := waiters + 1 + waiters/10; sent.forwards > most {
		t.Errorf("%d submissions were forwarded, want at most %d", sent.forwards, most)
	}
	if appends, most := sent.messages[raftpb.MsgApp], 4*(waiters+1+waiters/10); appends > most {
		t.Errorf("%d appends, want at most %d", appends, most)
	}
}

const waiterTTL = 3 * time.Second

type releaseScenario struct {
	*simulation
	queued, granted, released int
	newestFence               uint64 // fence of the last grant
}

// enqueue has every third handle join the queue, one after the other.
func (sc *releaseScenario) enqueue(p *program, handle, last uint64) {
	if handle > last {
		return
	}
	p.call(lockCommand("lock", p.session, handle, true), false, func(_ wire.Ticket, r *wire.Reply, more bool) {
		switch {
		case more:
			sc.queued++
			sc.enqueue(p, handle+3, last)
		case r.GetCode() != wire.Code_OK:
			sc.fail("handle %d: %v", handle, r)
		default:
			sc.release(p, handle, r.GetFence())
		}
	})
}

func (sc *releaseScenario) release(p *program, handle, fence uint64) {
	sc.granted++
	if fence != sc.newestFence+1 && sc.newestFence != 0 {
		sc.fail("fence %d follows %d", fence, sc.newestFence)
	}
	sc.newestFence = fence
	p.submit(unlockCommand("lock", p.session, handle, fence), true, func(r *wire.Reply) {
		if r.GetCode() != wire.Code_OK {
			sc.fail("unlock by handle %d: %v", handle, r)
		}
		sc.released++
	})
}

// checkWaitersSendNothing checks that 10 s of waiting cost heartbeats and renewals
// only: at most one entry per renewal, and the messages that replicate it.
func (sc *releaseScenario) checkWaitersSendNothing() {
	sc.advance(time.Second) // until the last commit index is replicated
	before, log, renewals := sc.traffic.clone(), sc.history.last(), sc.renewals()
	sc.advance(10 * time.Second)
	sent := sc.traffic.since(before)
	entries, renewed := int(sc.history.last()-log), sc.renewals()-renewals
	sc.t.Logf("10 s of waiting: %d renewals, %d entries, %d submissions forwarded, %v", renewed, entries, sent.forwards, sent.messages)
	if entries > renewed || sent.forwards > renewed {
		sc.fail("%d entries and %d submissions for %d renewals", entries, sent.forwards, renewed)
	}
	for kind, n := range sent.messages {
		switch kind {
		case raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp:
		case raftpb.MsgApp, raftpb.MsgAppResp:
			if n > 4*entries {
				sc.fail("%d messages %v for %d entries", n, kind, entries)
			}
		default:
			sc.fail("%d messages %v in an idle group", n, kind)
		}
	}
}

func (sc *releaseScenario) renewals() (n int) {
	for _, m := range sc.members {
		n += m.process.program.renewals
	}
	return n
}

func (c traffic) clone() traffic { return traffic{maps.Clone(c.messages), c.forwards} }

func (c traffic) since(before traffic) traffic {
	since := traffic{maps.Clone(c.messages), c.forwards - before.forwards}
	for kind, n := range before.messages {
		since.messages[kind] -= n
	}
	maps.DeleteFunc(since.messages, func(_ raftpb.MessageType, n int) bool { return n == 0 })
	return since
}
