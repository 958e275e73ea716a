package machine

import "github.com/conclave-go/conclave/internal/wire"

func (a *auditor) incarnations() {
	for id, inc := range a.m.gone {
		if a.m.incarnation(id) != nil || inc.idle() || len(inc.window.ring) > 0 {
			a.fail("the incarnation %s is kept after its end", id)
		}
		a.waiting += inc.waiters.Len()
		a.obtained(&inc.acquisitions)
	}
	retained := a.m.retention
	retained.members, retained.clients = 0, 0
	defer func() {
		if retained != a.m.retention {
			a.fail("outcomes count %+v, and are %+v", a.m.retention, retained)
		}
	}()
	for inc := range a.m.registry.all() {
		a.waiting += inc.waiters.Len()
		a.obtained(&inc.acquisitions)
		bytes := a.window(inc)
		if inc.client {
			retained.clients += bytes
		} else {
			retained.members += bytes
		}
		n := 0
		timed := 0
		inc.classes.Ascend(func(c *class) bool {
			if n += c.sessions.Len(); c.ttl != never {
				timed += c.sessions.Len()
			}
			return true
		})
		if n != inc.count || timed != inc.timed {
			a.fail("incarnation %s counts %d sessions, %d timed, and has %d and %d", inc.id, inc.count, inc.timed, n, timed)
		}
		a.bound += n
	}
}

// obtained counts what the tickets of an incarnation have obtained.
func (a *auditor) obtained(got *acquisitions) {
	a.tickets -= got.holds.Len() + got.shares.Len() + got.permits.Len() + got.sets.Len()
	a.waitingSets -= got.waitingSets.Len()
	names := 0
	got.waitingSets.Ascend(func(s *set) bool {
		names += len(s.parts)
		return true
	})
	if names != got.inSets {
		a.fail("an incarnation counts %d names of sets that wait, and has %d", got.inSets, names)
	}
}

// window returns the bytes that the outcomes of an incarnation count.
func (a *auditor) window(inc *incarnation) int {
	outcomes, top, bytes := 0, inc.window.floor, 0
	for seq := inc.window.floor + 1; seq <= inc.window.floor+uint64(len(inc.window.ring)); seq++ {
		if stored := inc.window.at(seq); stored != nil {
			outcomes, top, bytes = outcomes+1, seq, bytes+wire.OutcomeBytes(stored.reply())
		}
	}
	bytes += int(top-inc.window.floor) * wire.TicketBytes
	switch {
	case outcomes != inc.window.count:
		a.fail("incarnation %s counts %d outcomes and has %d", inc.id, inc.window.count, outcomes)
	case bytes != inc.window.size(0):
		a.fail("incarnation %s counts %d bytes of outcomes and has %d", inc.id, inc.window.size(0), bytes)
	case inc.barred != 0 && inc.barred <= inc.window.floor:
		a.fail("incarnation %s is barred below its floor", inc.id)
	}
	return bytes
}

func waiterOf(t ticket) *waiter { return t.by.obtained(t.seq).waiter }
func heldBy(t ticket) *lock     { return t.by.obtained(t.seq).hold }
func permitOf(t ticket) *permit { return t.by.obtained(t.seq).permit }
