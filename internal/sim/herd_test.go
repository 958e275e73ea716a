package sim

import (
	"maps"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
)

// Promise: no herd and no polling. A release wakes one waiter, whoever else
// waits, and costs the same whether ten or a thousand do; who waits sends
// nothing.
func TestHerd(t *testing.T) {
	const waiters = 1000
	w := scriptedWorld(t, 1, 3, faults{})
	h := &herd{world: w}
	for n := range w.members {
		w.register(n)
		w.openSession(n, herdTTL, 0, wire.Behavior_RELEASE)
		w.program(n).keepRenewing(herdTTL / 3)
	}
	first := w.must(0, wire.Code_OK, lockCommand("lock", w.program(0).session, 0, false)).GetFence()
	for n := range w.members {
		h.queue(w.program(n), 1+uint64(n), waiters)
	}
	w.await(time.Minute, "queue", func() bool { return h.queued == waiters })
	h.waitsInSilence()

	before, log := w.traffic.clone(), w.history.last()
	w.must(0, wire.Code_OK, unlockCommand("lock", w.program(0).session, 0, first))
	w.await(5*time.Minute, "end of the queue", func() bool { return h.released == waiters })
	if h.granted != waiters {
		t.Errorf("%d grants for %d releases", h.granted, waiters)
	}
	if h.last != first+waiters {
		t.Errorf("fences from %d to %d for %d grants", first, h.last, waiters)
	}
	// A release is one entry and one submission, and an entry goes to two
	// members, then word that it is committed; both answer both times. Renewals
	// are what comes on top.
	entries, sent := w.history.last()-log, w.traffic.since(before)
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

const herdTTL = 3 * time.Second

type herd struct {
	*world
	queued, granted, released int
	last                      uint64 // fence
}

// queue has every third handle join the queue, one after the other.
func (h *herd) queue(p *program, handle, last uint64) {
	if handle > last {
		return
	}
	p.call(lockCommand("lock", p.session, handle, true), false, func(_ wire.Ticket, r *wire.Reply, more bool) {
		switch {
		case more:
			h.queued++
			h.queue(p, handle+3, last)
		case r.GetCode() != wire.Code_OK:
			h.fail("handle %d: %v", handle, r)
		default:
			h.release(p, handle, r.GetFence())
		}
	})
}

func (h *herd) release(p *program, handle, fence uint64) {
	h.granted++
	if fence != h.last+1 && h.last != 0 {
		h.fail("fence %d follows %d", fence, h.last)
	}
	h.last = fence
	p.submit(unlockCommand("lock", p.session, handle, fence), true, func(r *wire.Reply) {
		if r.GetCode() != wire.Code_OK {
			h.fail("unlock by handle %d: %v", handle, r)
		}
		h.released++
	})
}

// waitsInSilence shows that 10 s of waiting are heartbeats and renewals: an
// entry for each renewal at most, and what it takes to agree on those.
func (h *herd) waitsInSilence() {
	h.pass(time.Second) // the commits of the last entries get around
	before, log, renewals := h.traffic.clone(), h.history.last(), h.renewals()
	h.pass(10 * time.Second)
	sent := h.traffic.since(before)
	entries, renewed := int(h.history.last()-log), h.renewals()-renewals
	h.t.Logf("10 s of waiting: %d renewals, %d entries, %d submissions forwarded, %v", renewed, entries, sent.forwards, sent.messages)
	if entries > renewed || sent.forwards > renewed {
		h.fail("%d entries and %d submissions for %d renewals", entries, sent.forwards, renewed)
	}
	for kind, n := range sent.messages {
		switch kind {
		case raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp:
		case raftpb.MsgApp, raftpb.MsgAppResp:
			if n > 4*entries {
				h.fail("%d messages %v for %d entries", n, kind, entries)
			}
		default:
			h.fail("%d messages %v while nothing happens", n, kind)
		}
	}
}

func (h *herd) renewals() (n int) {
	for _, m := range h.members {
		n += m.life.program.renewals
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
