package machine

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// disk is what storage would hold: all changes written so far.
type disk map[string][]byte

func (d disk) write(changes []wire.Change) error {
	seen := make(map[string]bool)
	for _, c := range changes {
		if seen[string(c.Key)] {
			return fmt.Errorf("key %q changed twice in one entry", c.Key)
		}
		seen[string(c.Key)] = true
		if _, exists := d[string(c.Key)]; exists && c.Created {
			return fmt.Errorf("key %q exists, but is reported as created", c.Key)
		}
		if c.Value == nil {
			delete(d, string(c.Key))
		} else {
			d[string(c.Key)] = c.Value
		}
	}
	return nil
}

func (d disk) pairs() iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		for _, k := range slices.Sorted(maps.Keys(d)) {
			if !yield([]byte(k), d[k]) {
				return
			}
		}
	}
}

// dump encodes the whole state from memory, not from the changes written.
func dump(m *Machine) disk {
	d := disk{}
	eachRecord(m, func(key string, r record) { // as package proto encodes it, so that this checks encode
		d[key] = must(proto.MarshalOptions{Deterministic: true}.MarshalAppend([]byte{}, r.state()))
	})
	return d
}

// eachRecord calls put with all that the machine holds.
func eachRecord(m *Machine, put func(key string, r record)) {
	put(machineKey, m)
	eachOfMembers(m, put)
	for _, t := range m.tombstones.byID {
		put(t.key(), t)
	}
	for inc := range m.registry.all() {
		put(inc.key(), inc)
		for seq := inc.window.floor + 1; seq <= inc.window.floor+uint64(len(inc.window.ring)); seq++ {
			if a := inc.window.at(seq); a != nil {
				put(string(appendTicketKey(nil, &inc.id, seq)), a)
			}
		}
	}
	eachOfSessions(m, put)
	queue := func(first *waiter) {
		for w := first; w != nil; w = w.inQueue.Next() {
			put(w.key(), w)
		}
	}
	for _, space := range []space{m.locks, m.elections, m.jobs.locks} {
		for _, l := range space.byName {
			if l.owner != nil && l.set() == nil || l.delayUntil != 0 {
				put(l.key, l)
			}
			for _, sh := range m.sharesOf(l) {
				if sh.set() == nil {
					put(sh.key(), sh)
				}
			}
			queue(l.head())
		}
	}
	eachOfJobs(m, put)
	eachOfShardSets(m, put)
	for _, s := range m.semaphores.byName {
		put(s.key, s)
		queue(s.queue.First())
		for _, p := range s.all() {
			put(p.key(), p)
		}
		for f := range s.numbers.Former() {
			put(formerSlot{f}.key(), formerSlot{f})
		}
	}
	for _, e := range m.allKeys() {
		put(entryKey(e.Key), entry{e})
	}
	for _, x := range m.keys.delays {
		put(x.durable(), x)
	}
}

// eachOfMembers calls put with the members, their checks and the further groups.
func eachOfMembers(m *Machine, put func(key string, r record)) {
	for _, g := range m.groups.byNumber {
		put(g.key(), g)
	}
	for _, k := range m.former.byID {
		put(k.key(), k)
	}
	for _, k := range m.members {
		put(k.key(), k)
		for _, c := range k.checks {
			put(c.key(), c)
		}
	}
}

// eachOfSessions calls put with the sessions, and the sets that they hold or await.
func eachOfSessions(m *Machine, put func(key string, r record)) {
	for _, s := range m.sessions {
		put(s.key(), s)
		for set := s.sets.First(); set != nil; set = set.inSession.Next() {
			put(set.key(), set)
		}
		for set := s.waitingSets.First(); set != nil; set = set.inSession.Next() {
			if put(set.key(), set); set.passed > 0 {
				put(passing{set}.key(), passing{set})
			}
		}
	}
}

// allKeys returns the keys as they are stored.
func (m *Machine) allKeys() (all []*fact.Entry) {
	m.keys.tree.Ascend(func(e *fact.Entry) bool {
		all = append(all, e)
		return true
	})
	return all
}

// all returns the permits of a semaphore, held or delayed, by fence.
func (s *semaphore) all() []*permit {
	permits := s.back.all()
	s.held.Ascend(func(p *permit) bool {
		permits = append(permits, p)
		return true
	})
	slices.SortFunc(permits, func(a, b *permit) int { return cmp.Compare(a.fence, b.fence) })
	return permits
}

func (d disk) equal(o disk) bool { return maps.EqualFunc(d, o, bytes.Equal) }
