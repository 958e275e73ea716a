package machine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// link joins the records read into a machine, and refuses those that contradict
// each other: a state that breaks an invariant would go on to break promises.
func (ld *loader) link() error {
	if ld.version == 0 && ld.pairs > 0 {
		return errAbsent
	}
	for _, join := range []func() error{
		ld.linkIncarnations, ld.linkChecks, ld.linkSessions, shardLoader{ld}.linkWorkers, shardLoader{ld}.linkAssigned, ld.linkJobs, ld.linkLocks, ld.linkSlots, ld.linkPermits, ld.linkShares,
		ld.linkSets, ld.linkWaiters, ld.linkSetWaiters, ld.linkQueues, ld.checkSetWaiters, ld.checkSemaphores, ld.checkJobs, ld.linkGroups, shardLoader{ld}.check, ld.linkKeys, ld.linkOutcomes,
	} {
		if err := join(); err != nil {
			return err
		}
	}
	return nil
}

func (ld *loader) linkIncarnations() error {
	for inc := range ld.m.registry.all() {
		switch {
		case inc.client && !ld.m.hasClients(), inc.barred > 0 && !ld.m.hasBounds():
			return fmt.Errorf("incarnation %s: %w", inc.id, errRange)
		case !inc.client && ld.m.members[inc.member] == nil:
			return fmt.Errorf("incarnation %s: %w", inc.id, errLoose)
		}
	}
	for id, t := range ld.m.tombstones.byID { // order: shows in an error only
		switch {
		case !ld.m.hasClients(), t.until > after(ld.m.now, MaxRegistering):
			return fmt.Errorf("ended client %s: %w", id, errRange)
		case ld.m.incarnation(id) != nil && ld.m.incarnation(id).client: // below level 6 a member's may be registered
			return fmt.Errorf("ended client %s: %w", id, errTwice)
		}
	}
	return nil
}

func (ld *loader) linkChecks() error {
	for _, p := range ld.checks {
		c := p.of
		if c.member = ld.m.members[p.state]; c.member == nil {
			return fmt.Errorf("check %q: %w", c.name, errLoose)
		}
		if c.forClient && !ld.m.hasBounds() {
			return fmt.Errorf("check %q: %w", c.name, errRange)
		}
		ld.m.addCheck(c)
		ld.m.schedule(c)
	}
	for id, k := range ld.m.members { // order: each by itself
		if k.crashed && (ld.m.levels.agreed < wire.LevelProcess || !k.isRegistered()) {
			return fmt.Errorf("member %v: %w", wire.MemberID(id), errRange)
		}
		k.listBuiltIn(ld.m) // the level and the registered checks are read
	}
	return nil
}

func (ld *loader) linkSessions() error {
	slices.SortFunc(ld.sessions, func(a, b pending[session, *wire.SessionState]) int { return byCreation(a.of, b.of) })
	for _, p := range ld.sessions {
		switch {
		case p.of.client && (!ld.m.hasClients() || len(p.of.checks) > 0):
			return fmt.Errorf("session %s: %w", p.of.id, errRange)
		case p.of.standalone && !ld.m.hasStandalone():
			return fmt.Errorf("session %s: %w", p.of.id, errRange)
		case !p.of.client && ld.m.members[p.of.member] == nil && (!p.of.dead() || ld.m.known(p.of.member) == nil):
			return fmt.Errorf("session %s: %w", p.of.id, errLoose)
		}
		if p.of.attached > ld.m.fence() {
			return fmt.Errorf("session %s: %w", p.of.id, errFence)
		}
		if p.of.dead() {
			continue
		}
		ld.m.belong(p.of, p.of.member, p.of.client)
		if p.of.standalone {
			ld.m.standAlone(p.of)
			continue
		}
		if len(p.state.Incarnation) == 0 && p.of.ttl == 0 {
			continue // unbound
		}
		id, _ := wire.IDFrom(p.state.Incarnation)
		inc := ld.m.incarnation(id)
		if inc == nil || inc.member != p.of.member || inc.client != p.of.client {
			return fmt.Errorf("session %s: %w", p.of.id, errLoose)
		}
		ld.m.bind(inc, p.of)
	}
	return ld.linkEnded()
}

// linkEnded lists the ended sessions in the order in which they have ended.
func (ld *loader) linkEnded() error {
	slices.SortFunc(ld.sessions, func(a, b pending[session, *wire.SessionState]) int { return cmp.Compare(a.of.ended, b.of.ended) })
	last := uint64(0)
	for _, p := range ld.sessions {
		if !p.of.dead() {
			continue
		}
		if p.of.ended == last || p.of.ended > ld.m.endings {
			return fmt.Errorf("session %s: %w", p.of.id, errRange)
		}
		last = p.of.ended
		ld.m.ending.Push(p.of)
	}
	return nil
}

// linkKeys gives sessions the keys that they have locked.
func (ld *loader) linkKeys() (err error) {
	m := ld.m
	indexes := make([]uint64, 0, m.keys.tree.Len())
	m.keys.tree.Ascend(func(e *fact.Entry) bool {
		indexes = append(indexes, e.ModifyIndex)
		locked := !e.Session.IsZero()
		switch {
		case e.ModifyIndex > m.keys.changes, e.CreateIndex > e.ModifyIndex, e.CreateIndex == 0:
			err = fmt.Errorf("key %q: %w: an index beyond the last one", e.Key, errRange)
		case locked && m.sessions[e.Session] == nil:
			err = fmt.Errorf("key %q: %w", e.Key, errLoose)
		case locked && (e.LockIndex == 0 || m.keys.delays[e.Key] != nil):
			err = fmt.Errorf("key %q: %w: locked without a lock index or under a lock-delay", e.Key, errRange)
		default:
			m.bindKey(nil, e)
		}
		return err == nil
	})
	slices.Sort(indexes)
	if err == nil && len(slices.Compact(indexes)) < m.keys.tree.Len() {
		err = errors.New("two keys have the same modify index")
	}
	for s := range m.ending.All(&m.visits) {
		m.unlist(s)
	}
	return err
}

func (ld *loader) linkOutcomes() error {
	for _, p := range ld.tickets {
		inc := ld.m.incarnation(p.of.Incarnation)
		if inc == nil {
			return fmt.Errorf("ticket %s %d: %w", p.of.Incarnation, p.of.Seq, errLoose)
		}
		if floor := inc.window.floor; p.of.Seq <= floor || p.of.Seq-floor > MaxInFlight {
			return fmt.Errorf("ticket %s %d: %w", p.of.Incarnation, p.of.Seq, errRange)
		}
		ld.m.keep(inc, p.of.Seq, p.state)
	}
	return nil
}
