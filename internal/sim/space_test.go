package sim

import (
	"github.com/conclave-go/conclave/internal/wire"
)

// What differs between a lock, an election and a semaphore for their handles.

// resizable is the semaphore whose limit is changed now and then.
const resizable = "sem-1"

func semaphoreLimits() map[string]uint32 {
	return map[string]uint32{"sem-0": 3, resizable: 5, "sem-kept": 2}
}

// command takes what the handle is after.
func (h *handle) command(wait bool) *wire.Command {
	switch h.space {
	case wire.Space_SEMAPHORE:
		return acquireCommand(h.lock, h.session, h.limit, h.permits, wait)
	case wire.Space_ELECTION:
		return campaignCommand(h.lock, h.session, h.n, wait, h.value())
	}
	return &wire.Command{Op: &wire.Command_Lock{Lock: &wire.Lock{
		Name: h.lock, Session: h.session.id[:], Handle: h.n, Reentrant: h.reentrant, Limit: limit, Wait: wait, Fence: h.fence,
	}}}
}

// unlock gives one hold back.
func (h *handle) unlock() *wire.Command {
	if h.space == wire.Space_SEMAPHORE {
		return releaseCommand(h.lock, h.session, h.fence)
	}
	return &wire.Command{Op: &wire.Command_Unlock{Unlock: &wire.Unlock{
		Name: h.lock, Session: h.session.id[:], Handle: h.n, Fence: h.fence, Election: h.space == wire.Space_ELECTION,
	}}}
}

// weight is what the reply to a grant counts.
func (h *handle) weight() uint32 {
	if h.space == wire.Space_SEMAPHORE {
		return h.permits
	}
	return 1
}

func (h *handle) value() string { return string([]byte{byte('a' + h.session.program.w.rng.IntN(26))}) }

// proclaim says something else as the leader.
func (h *handle) proclaim() {
	h.state = busy
	h.session.program.submit(&wire.Command{Op: &wire.Command_Proclaim{Proclaim: &wire.Proclaim{
		Name: h.lock, Session: h.session.id[:], Handle: h.n, Fence: h.fence, Value: []byte(h.value()),
	}}}, false, func(r *wire.Reply) {
		h.state = held
		switch {
		case r == nil:
		case r.GetCode() != wire.Code_OK:
			h.refused(r)
			h.state = idle
		case r.GetFence() != h.fence || r.GetHolds() != h.holds:
			h.session.program.w.fail("member %d leads %s with fence %d, and the log says %v", h.session.program.n, h.lock, h.fence, r)
		}
	})
}

// disagrees learns the limit that is in force.
func (h *handle) disagrees(r *wire.Reply) {
	w := h.session.program.w
	if h.lock != resizable || r.GetLimit() == h.limit {
		w.fail("member %d: %s with the limit %d: %v", h.session.program.n, h.lock, h.limit, r)
	}
	w.limits[h.lock] = r.GetLimit()
}
