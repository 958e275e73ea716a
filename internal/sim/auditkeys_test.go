package sim

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"sort"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// keys: indexes only grow, nothing that an entry remembers goes backwards, and no
// sequencer ever comes true again.
func (a *audit) keys(changes []wire.KeyChange) {
	for _, c := range changes {
		e, old := c.Entry, a.entries[c.Entry.Key]
		if c.Index <= a.change {
			a.w.fail("key %s changes at %d, after a change at %d", e.Key, c.Index, a.change)
		}
		a.change = c.Index
		a.changes = append(a.changes, c)
		switch {
		case c.Deleted && !equalEntries(e, old):
			a.w.fail("key %s is deleted as %+v, and was %+v", e.Key, e, old)
		case c.Deleted:
			delete(a.entries, e.Key)
			continue
		case e.ModifyIndex != c.Index:
			a.w.fail("key %s changes at %d and says %d", e.Key, c.Index, e.ModifyIndex)
		case old == nil && e.CreateIndex != c.Index, old != nil && e.CreateIndex != old.CreateIndex:
			a.w.fail("key %s, changed at %d from %+v, was created at %d", e.Key, c.Index, old, e.CreateIndex)
		case old != nil && (e.LockIndex < old.LockIndex || e.Fence < old.Fence):
			a.w.fail("key %s goes from %+v back to %+v", e.Key, old, e)
		}
		if !e.Session.IsZero() && (old == nil || old.Session != e.Session) {
			a.locked(e, old)
		}
		a.entries[e.Key] = e
	}
}

func (a *audit) locked(e, old *wire.Entry) {
	a.free(thing{"key", e.Key})
	t := tenure{e.Key, e.LockIndex, e.Session}
	if a.tenures[t] || old != nil && e.LockIndex <= old.LockIndex {
		a.w.fail("%+v comes true again", t)
	}
	a.tenures[t] = true
	if old != nil && !old.Session.IsZero() {
		a.w.fail("key %s goes from session %s to %s without a release", e.Key, old.Session, e.Session)
	}
}

// compareKeys checks that the changes are all that has happened.
func (a *audit) compareKeys() {
	found := 0
	for _, e := range keysOf(a.m) {
		found++
		if !equalEntries(e, a.entries[e.Key]) {
			a.w.fail("key %s is %+v; its changes say %+v", e.Key, e, a.entries[e.Key])
		}
		if _, alive := liveSession(a.m, e.Session); !e.Session.IsZero() && !alive {
			a.w.fail("key %s is locked by session %s, which is over", e.Key, e.Session)
		}
	}
	if found != len(a.entries) || changesOf(a.m) != a.change {
		a.w.fail("%d keys, changed at %d; the changes say %d and %d", found, changesOf(a.m), len(a.entries), a.change)
	}
	for _, name := range elections {
		if l := leaderOf(a.m, name); !equalLeaders(l, a.leaders[name]) {
			a.w.fail("%s is led by %+v; the changes say %+v", name, l, a.leaders[name])
		}
	}
}

// leadership: a fence has one leader.
func (a *audit) leadership(changes []wire.LeaderChange) {
	for _, c := range changes {
		if c.Leader == nil && a.leaders[c.Election] == nil {
			a.w.fail("%s loses its leader twice", c.Election)
		}
		a.leaders[c.Election] = c.Leader
		if c.Leader == nil {
			continue
		}
		if other, led := a.led[c.Leader.Fence]; led && other != c.Leader.Session {
			a.w.fail("%s and %s lead with fence %d", other, c.Leader.Session, c.Leader.Fence)
		}
		a.led[c.Leader.Fence] = c.Leader.Session
	}
}

func equalEntries(a, b *wire.Entry) bool {
	return a == b || a != nil && b != nil && fmt.Sprintf("%+v", *a) == fmt.Sprintf("%+v", *b)
}

func equalLeaders(a, b *wire.Leader) bool {
	return a == b || a != nil && b != nil && bytes.Equal(a.Value, b.Value) && a.Fence == b.Fence && a.Session == b.Session && a.Member == b.Member
}

// told is a checksum of what an entry yields besides outcomes.
func told(r wire.Result) uint64 {
	if len(r.Ended)+len(r.Keys)+len(r.Leaders) == 0 {
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
	return h.Sum64()
}

// feed is what a process has been told of the keys since it started or took a
// snapshot: every change, once, in order. The state that it begins with may be ahead
// of what is told next.
type feed struct{ base, at uint64 }

func (f *feed) begins(m core.Machine) {
	f.base = changesOf(m.(*observed).Machine)
	f.at = f.base
}

func (a *audit) fed(l *life, changes []wire.KeyChange) {
	for _, c := range changes {
		if c.Index <= l.feed.base {
			continue
		}
		next := sort.Search(len(a.changes), func(i int) bool { return a.changes[i].Index > l.feed.at })
		if next == len(a.changes) || told(wire.Result{Keys: []wire.KeyChange{c}}) != told(wire.Result{Keys: a.changes[next:][:1]}) {
			a.w.fail("member %d is told of %+v after the change at %d", l.n, c, l.feed.at)
		}
		l.feed.at = c.Index
	}
}

// fedUp checks, at rest, that nothing is missing.
func (a *audit) fedUp(l *life) {
	if l.feed.at != a.change {
		a.w.fail("member %d was told of changes up to %d, and the last was at %d", l.n, l.feed.at, a.change)
	}
}
