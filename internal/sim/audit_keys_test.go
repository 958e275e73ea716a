package sim

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"sort"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/fact"
)

// checkKeys: indexes increase, no entry goes back to an earlier lock index or
// fence, and no sequencer becomes valid twice.
func (a *audit) checkKeys(changes []fact.KeyChange) {
	for _, c := range changes {
		e, old := c.Entry, a.entries[c.Entry.Key]
		if c.Index <= a.lastChange {
			a.sim.fail("key %s changes at %d, not after the last change at %d", e.Key, c.Index, a.lastChange)
		}
		a.lastChange = c.Index
		a.changes = append(a.changes, c)
		switch {
		case c.Deleted && !equalEntries(e, old):
			a.sim.fail("key %s is deleted as %+v, but was %+v", e.Key, e, old)
		case c.Deleted:
			delete(a.entries, e.Key)
			continue
		case e.ModifyIndex != c.Index:
			a.sim.fail("key %s changes at %d, but its modify index is %d", e.Key, c.Index, e.ModifyIndex)
		case old == nil && e.CreateIndex != c.Index, old != nil && e.CreateIndex != old.CreateIndex:
			a.sim.fail("key %s, changed at %d from %+v, has create index %d", e.Key, c.Index, old, e.CreateIndex)
		case old != nil && (e.LockIndex < old.LockIndex || e.Fence < old.Fence):
			a.sim.fail("key %s goes back from %+v to %+v", e.Key, old, e)
		}
		if !e.Session.IsZero() && (old == nil || old.Session != e.Session) {
			a.keyLocked(e, old)
		}
		a.entries[e.Key] = e
	}
}

func (a *audit) keyLocked(e, old *fact.Entry) {
	a.checkDelay(resource{"key", e.Key})
	t := sequencer{e.Key, e.LockIndex, e.Session}
	if a.sequencers[t] || old != nil && e.LockIndex <= old.LockIndex {
		a.sim.fail("%+v becomes valid a second time", t)
	}
	a.sequencers[t] = true
	if old != nil && !old.Session.IsZero() {
		a.sim.fail("key %s passes from session %s to %s without a release", e.Key, old.Session, e.Session)
	}
}

// compareKeys checks that the reported changes account for the whole state.
func (a *audit) compareKeys() {
	found := 0
	for _, e := range keysOf(a.m) {
		found++
		if !equalEntries(e, a.entries[e.Key]) {
			a.sim.fail("key %s is %+v; by its changes it is %+v", e.Key, e, a.entries[e.Key])
		}
		if _, alive := liveSession(a.m, e.Session); !e.Session.IsZero() && !alive {
			a.sim.fail("key %s is locked by session %s, which has ended", e.Key, e.Session)
		}
	}
	if found != len(a.entries) || changesOf(a.m) != a.lastChange {
		a.sim.fail("%d keys, last change %d; by their changes %d keys, last change %d", found, changesOf(a.m), len(a.entries), a.lastChange)
	}
	for _, name := range elections {
		if l := leaderOf(a.m, name); !equalLeaders(l, a.leaders[name]) {
			a.sim.fail("%s is led by %+v; by its changes by %+v", name, l, a.leaders[name])
		}
	}
}

// checkLeaders: a fence has one leader.
func (a *audit) checkLeaders(changes []fact.LeaderChange) {
	for _, c := range changes {
		if c.Leader == nil && a.leaders[c.Election] == nil {
			a.sim.fail("%s loses its leader twice", c.Election)
		}
		a.leaders[c.Election] = c.Leader
		if c.Leader == nil {
			continue
		}
		if other, led := a.leaderOf[c.Leader.Fence]; led && other != c.Leader.Session {
			a.sim.fail("%s and %s lead with fence %d", other, c.Leader.Session, c.Leader.Fence)
		}
		a.leaderOf[c.Leader.Fence] = c.Leader.Session
	}
}

func equalEntries(a, b *fact.Entry) bool {
	return a == b || a != nil && b != nil && fmt.Sprintf("%+v", *a) == fmt.Sprintf("%+v", *b)
}

func equalLeaders(a, b *fact.Leader) bool {
	return a == b || a != nil && b != nil && bytes.Equal(a.Value, b.Value) && a.Fence == b.Fence && a.Session == b.Session && a.Member == b.Member
}

// notificationSum is a checksum of what an entry yields besides outcomes.
func notificationSum(r fact.Result) uint64 {
	if len(r.Ended)+len(r.Keys)+len(r.Leaders)+len(r.Shards) == 0 {
		return 0
	}
	h := fnv.New64a()
	for _, e := range r.Ended {
		fmt.Fprintf(h, "%s %s %t\n", e.Session, e.Incarnation, e.Unbound)
	}
	for _, c := range r.Keys {
		fmt.Fprintf(h, "%d %t %+v\n", c.Index, c.Deleted, *c.Entry)
	}
	for _, c := range r.Leaders {
		fmt.Fprintf(h, "%s %+v\n", c.Election, c.Leader)
	}
	for _, c := range r.Shards {
		fmt.Fprintf(h, "%+v\n", c)
	}
	return h.Sum64()
}

// feed is the position of a process in the sequence of key changes. Since its start
// or its last snapshot it must receive every change once, in order. The state that
// it starts from may be ahead of the next change that it receives.
type feed struct{ base, at uint64 }

func (f *feed) reset(m core.Machine) {
	f.base = changesOf(m.(*observed).Machine)
	f.at = f.base
}

func (a *audit) checkFeed(proc *process, changes []fact.KeyChange) {
	for _, c := range changes {
		if c.Index <= proc.feed.base {
			continue
		}
		next := sort.Search(len(a.changes), func(i int) bool { return a.changes[i].Index > proc.feed.at })
		if next == len(a.changes) || notificationSum(fact.Result{Keys: []fact.KeyChange{c}}) != notificationSum(fact.Result{Keys: a.changes[next:][:1]}) {
			a.sim.fail("member %d receives change %+v after the change at %d", proc.n, c, proc.feed.at)
		}
		proc.feed.at = c.Index
	}
}

// checkFeedComplete checks, in a converged group, that no change is missing.
func (a *audit) checkFeedComplete(proc *process) {
	if proc.feed.at != a.lastChange {
		a.sim.fail("member %d has received changes up to %d, and the last is at %d", proc.n, proc.feed.at, a.lastChange)
	}
}
