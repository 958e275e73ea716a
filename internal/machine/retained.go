package machine

import "github.com/conclave-go/conclave/internal/wire"

// What a process leaves unacknowledged every member keeps in memory and on disk. From level 6
// on it is bounded by bytes, besides the count: for each process, and for all clients and all
// members together, apart from each other. What is left of the sum bounds each process as well,
// so that n processes that keep as much as they can leave one part of n+1 to the next one
// (Choudhury and Hahne, Dynamic queue length thresholds, 1998).

// retention is what may be kept, and what is.
type retention struct {
	most, all, least int // MaxOutcomeBytes, MaxAllOutcomeBytes, MinOutcomeBytes; smaller ones in tests
	members, clients int // bytes
}

// of returns the sum that an incarnation counts in.
func (x *retention) of(inc *incarnation) *int {
	if inc.client {
		return &x.clients
	}
	return &x.members
}

// mayRetain reports whether a command may be applied whose outcome will be kept. The last
// quarter is for what renews and releases: a process that acknowledges too little should not
// lose its locks by that.
func (m *Machine) mayRetain(inc *incarnation, seq uint64, c *wire.Command) bool {
	if !m.hasBounds() {
		return true
	}
	x := &m.retention
	limit := min(x.most, max(x.least, x.all-*x.of(inc)))
	switch c.GetOp().(type) {
	case *wire.Command_Deregister:
		return true // its outcome is not kept
	case *wire.Command_Renew, *wire.Command_RenewClients, *wire.Command_RenewSession, *wire.Command_CloseSession,
		*wire.Command_Unlock, *wire.Command_UnlockSet, *wire.Command_EndRun, *wire.Command_LeaveShards, *wire.Command_ReleaseShards,
		*wire.Command_Downgrade, *wire.Command_Extend, *wire.Command_Release, *wire.Command_Withdraw:
	default:
		limit -= limit / 4
	}
	return inc.window.size(seq) < limit
}

// bar refuses a ticket without keeping an outcome. So that a duplicate of it is not applied
// later, all tickets up to it that have no outcome are refused from now on.
func (m *Machine) bar(inc *incarnation, t wire.Ticket, detail string) {
	if m.hasBounds() && t.Seq > inc.barred {
		inc.barred = t.Seq
		m.dirty.put(inc.key(), inc)
	}
	m.emit(t, inc.member, m.refuse(wire.Code_BUSY, detail), false)
}

const notAcknowledged = "outcomes not acknowledged: the process leaves too many with the group; retry after other calls have returned"

// hasBounds reports whether the group is at the level of the bounds by bytes.
func (m *Machine) hasBounds() bool { return m.levels.agreed >= wire.LevelBounds }

// limit returns a limit of the group as it applies to the command that is applied.
func (m *Machine) limit(all, reserved int) int {
	if m.hasBounds() && !m.forClient {
		return all + reserved
	}
	return all
}

// keep keeps an outcome.
func (m *Machine) keep(inc *incarnation, seq uint64, r *wire.Reply) *answer {
	m.encoder.Buf = m.encoder.Buf[:0]
	appendState(&m.encoder, stored{r})
	before := inc.window.size(0)
	a := inc.window.put(seq, r, m.encoder.Buf)
	*m.retention.of(inc) += inc.window.size(0) - before
	return a
}
