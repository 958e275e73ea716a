package sim

import (
	"fmt"

	"github.com/conclave-go/conclave/internal/wire"
)

// modes counts what handles have held of locks, exclusively and shared: a run in which no handle wrote, or no two read
// together, would show nothing.
type modes struct {
	exclusive, shared  int // holds that a handle trusted
	together           int // of the shared ones, those that began while another handle trusted one of the same lock
	after              int // of the exclusive ones, those of a lock that was held shared before
	downgrades, queued int // of these, those that let waiting handles in

	tenures, local, recalled int // shared tenures that began; the shared holds in them; recalls that a process has got
}

func (m *modes) add(o modes) {
	m.exclusive += o.exclusive
	m.shared += o.shared
	m.together += o.together
	m.after += o.after
	m.downgrades += o.downgrades
	m.queued += o.queued
	m.tenures += o.tenures
	m.local += o.local
	m.recalled += o.recalled
}

// occurred reports whether there was some of each.
func (m modes) occurred() bool {
	return m.exclusive > 0 && m.shared > 0 && m.together > 0 && m.after > 0 && m.downgrades > 0 && m.queued > 0 &&
		m.tenures > 0 && m.local > m.tenures && m.recalled > 0
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// mayShare reports whether the handle may ask for shares: of locks, at the level for them. Tenures are exclusive.
func (h *handle) mayShare() bool {
	return h.space == wire.Space_LOCK && h.keeper == nil && h.set == nil && h.session.program.gateway.level() >= wire.LevelShared
}

func (h *handle) mayDowngrade() bool {
	return !h.shared && h.mayShare() && h.session.program.sim.extraRNG.IntN(4) == 0
}

// downgrade makes a share of an exclusive hold.
func (h *handle) downgrade() {
	h.state = downgrading
	p := h.session.program
	waiting := lockOf(p.sim.history.oracle, h.lock).Waiters
	p.submit(&wire.Command{Op: &wire.Command_Downgrade{Downgrade: &wire.Downgrade{
		Name: h.lock, Session: h.session.id[:], Handle: h.n, Fence: h.fence, Trace: fmt.Append(nil, "downgrade of ", h.fence),
	}}}, true, func(r *wire.Reply) {
		switch {
		case r == nil:
			h.state = idle
		case r.GetCode() != wire.Code_OK:
			h.checkRefusal(r)
			h.state = idle
		case r.GetHolds() != h.holds || r.GetFence() <= h.fence || r.GetShare() == 0:
			p.sim.fail("member %d: %d holds of %s with fence %d are downgraded: %v", p.n, h.holds, h.lock, h.fence, r)
		default:
			h.shared, h.fence, h.share, h.state = true, r.GetFence(), r.GetShare(), held
			p.sim.modes.downgrades++
			p.sim.modes.queued += btoi(waiting > lockOf(p.sim.history.oracle, h.lock).Waiters)
			p.sim.checkExclusive(h)
		}
	})
}

// checkShared runs when a handle begins to hold a share: other handles that trust a hold of the lock, by their own
// clocks, have shares of the same phase.
func (sim *simulation) checkShared(h *handle) {
	if sim.fences[h.grant()] && !sim.phases[h.grant()] {
		sim.fail("%d.%d has a share of %s with fence %d, which was granted before", h.session.program.n, h.n, h.lock, h.fence)
	}
	if h.fence < sim.lastFence[h.lock] {
		sim.fail("%d.%d has a share of %s with fence %d, below %d", h.session.program.n, h.n, h.lock, h.fence, sim.lastFence[h.lock])
	}
	sim.fences[h.grant()], sim.phases[h.grant()], sim.lastFence[h.lock] = true, true, h.fence
	sim.trace("%d.%d has share %d of %s, fence %d", h.session.program.n, h.n, h.share, h.lock, h.fence)
	sim.modes.shared++
	for _, m := range sim.allHosts() {
		for _, other := range m.handles() {
			switch {
			case other == h || other.lock != h.lock || other.space != h.space || !other.trustsHold():
			case h.sharing != nil && other.sharing == h.sharing && other.fence == h.fence: // both have one share
			case !other.shared || other.fence != h.fence || other.share == h.share:
				sim.fail("%d.%d has a share of %s with fence %d, and %d.%d holds it with fence %d, shared %t",
					h.session.program.n, h.n, h.lock, h.fence, m.n, other.n, other.fence, other.shared)
			default:
				sim.modes.together++
			}
		}
	}
}
