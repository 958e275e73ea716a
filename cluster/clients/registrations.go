package clients

import (
	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// A registration outlives its connection by its TTL, so a host that connects again and again
// under new keys could register as many clients as a group may have. So a member counts for
// each host the registrations that it has passed on, and refuses another one to a host that
// has as many as are left in the whole group. What one host takes by way of n members leaves
// one part of n+1 to others.

// registrations are those that this member has passed on, as far as they are in force. The
// loop's goroutine owns it.
type registrations struct {
	byID  map[wire.ID]registration
	count map[string]int // by host
	queue []wire.ID      // those of byID, the one to be looked at next in front
}

type registration struct {
	host  string
	since uint64 // tick
}

// registeringTicks is for how long a registration counts that is not in force yet: it may be on
// its way.
const registeringTicks = 100

// looked is how many registrations are looked at for each new one, whether they are still in
// force. With two or more none stays in the queue that is not.
const looked = 64

// host returns the host that the connection comes from.
func (c *conn) host() string { return transport.HostOf(c.conn.Peer().Remote) }

// submit passes on what a client submits.
func (s *Server) submit(c *conn, submission *wire.Submission) {
	r := &s.registrations
	if !r.admit(c.incarnation, c.host(), s.ticks, s.core.Machine(), &s.cfg.Handlers) {
		for _, call := range submission.GetCalls() {
			reply := &wire.Reply{Code: wire.Code_UNKNOWN_INCARNATION, Detail: "the incarnation is not registered; register a new one"}
			if call.GetSeq() == 1 { // the first command of a client registers it
				reply = &wire.Reply{Code: wire.Code_BUSY, Detail: "too many clients of this host are registered; wait until some expire"}
			}
			c.Notify(&wire.Notice{Body: &wire.Notice_Outcome{Outcome: &wire.DeliveredOutcome{Seq: call.GetSeq(), Reply: reply}}})
		}
		return
	}
	s.core.SubmitForClient(submission)
}

// admit counts the registration of a client, and reports whether its host may have it.
func (r *registrations) admit(id wire.ID, host string, tick uint64, m core.Machine, cfg *Handlers) bool {
	if _, known := r.byID[id]; known {
		return true
	}
	if r.byID == nil {
		r.byID, r.count = make(map[wire.ID]registration), make(map[string]int)
	}
	r.drop(tick, m, cfg)
	if !cfg.Occupied(m, id) && r.count[host] >= cfg.Free(m) {
		return false
	}
	r.byID[id] = registration{host, tick}
	r.count[host]++
	r.queue = append(r.queue, id)
	return true
}

// drop drops registrations that are not in force any more.
func (r *registrations) drop(tick uint64, m core.Machine, cfg *Handlers) {
	for range min(looked, len(r.queue)) {
		id := r.queue[0]
		r.queue = r.queue[1:]
		known := r.byID[id]
		if tick < known.since+registeringTicks || cfg.Occupied(m, id) {
			r.queue = append(r.queue, id)
			continue
		}
		delete(r.byID, id)
		if r.count[known.host]--; r.count[known.host] == 0 {
			delete(r.count, known.host)
		}
	}
}
