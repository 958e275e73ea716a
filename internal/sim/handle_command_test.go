package sim

import (
	"fmt"

	"github.com/conclave-go/conclave/internal/wire"
)

// resizable is the semaphore whose limit changes.
const resizable = "sem-1"

func semaphoreLimits() map[string]uint32 {
	return map[string]uint32{"sem-0": 3, resizable: 5, "sem-kept": 2}
}

// command acquires what the handle is for.
func (h *handle) command(wait bool) *wire.Command {
	if h.isSet() {
		return h.setCommand(wait)
	}
	switch h.space {
	case wire.Space_SEMAPHORE:
		c := acquireCommand(h.lock, h.session, h.limit, h.permits, wait)
		c.GetAcquire().MaxHold = int64(h.maxHold)
		return c
	case wire.Space_ELECTION:
		return campaignCommand(h.lock, h.session, h.n, wait, h.value())
	}
	c := &wire.Lock{Name: h.lock, Session: h.session.id[:], Handle: h.n, Reentrant: h.reentrant, Limit: limit, Wait: wait, Fence: h.fence, MaxHold: int64(h.maxHold), RefuseDeadlock: h.refuses}
	if h.shared {
		c.Shared, c.Share, c.Fence, c.Lingering = true, h.share, 0, h.n%3 == 0 && h.maxHold == 0 && !h.refuses
	}
	if h.n%2 == 1 { // below the level for it, it means nothing
		c.Label = fmt.Append(nil, "handle ", h.n)
	}
	return &wire.Command{Op: &wire.Command_Lock{Lock: c}}
}

// unlock releases one hold.
func (h *handle) unlock() *wire.Command {
	if h.isSet() {
		return h.unlockSet()
	}
	var trace []byte
	if h.n%2 == 1 { // as with the label
		trace = fmt.Append(nil, "release of ", h.fence)
	}
	if h.space == wire.Space_SEMAPHORE {
		c := releaseCommand(h.lock, h.session, h.fence)
		c.GetRelease().Trace = trace
		return c
	}
	return &wire.Command{Op: &wire.Command_Unlock{Unlock: &wire.Unlock{
		Name: h.lock, Session: h.session.id[:], Handle: h.n, Fence: h.fence, Election: h.space == wire.Space_ELECTION, Trace: trace, Share: h.share,
	}}}
}

// wantHolds is the number of holds in the reply to a grant.
func (h *handle) wantHolds() uint32 {
	if h.space == wire.Space_SEMAPHORE {
		return h.permits
	}
	return 1
}

func (h *handle) value() string {
	return string([]byte{byte('a' + h.session.program.sim.rng.IntN(26))})
}

// proclaim changes the leader's value.
func (h *handle) proclaim() {
	h.state = inFlight
	h.session.program.submit(&wire.Command{Op: &wire.Command_Proclaim{Proclaim: &wire.Proclaim{
		Name: h.lock, Session: h.session.id[:], Handle: h.n, Fence: h.fence, Value: []byte(h.value()),
	}}}, false, func(r *wire.Reply) {
		h.state = held
		switch {
		case r == nil:
		case r.GetCode() != wire.Code_OK:
			h.checkRefusal(r)
			h.state = idle
		case r.GetFence() != h.fence || r.GetHolds() != h.holds:
			h.session.program.sim.fail("member %d leads %s with fence %d, but the reply is %v", h.session.program.n, h.lock, h.fence, r)
		}
	})
}

// learnLimit takes over the limit that is in force.
func (h *handle) learnLimit(r *wire.Reply) {
	sim := h.session.program.sim
	if h.lock != resizable || r.GetLimit() == h.limit {
		sim.fail("member %d: %s with the limit %d: %v", h.session.program.n, h.lock, h.limit, r)
	}
	sim.limits[h.lock] = r.GetLimit()
}
