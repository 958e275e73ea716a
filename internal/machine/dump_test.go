package machine

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

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

// dump encodes the whole state anew, from memory and not from the changes.
func dump(m *Machine) disk {
	d := disk{}
	put := func(key string, r record) { d[key] = encode([]byte{}, r) }
	put(machineKey, m)
	for _, k := range m.members {
		put(k.key(), k)
	}
	for _, inc := range m.incarnations {
		put(inc.key(), inc)
		for seq := inc.window.floor + 1; seq <= inc.window.floor+uint64(len(inc.window.ring)); seq++ {
			if r := inc.window.get(seq); r != nil {
				put(ticketKey(wire.Ticket{Incarnation: inc.id, Seq: seq}), stored{r})
			}
		}
	}
	for _, s := range m.sessions {
		put(s.key(), s)
	}
	for _, l := range m.locks {
		put(l.key, l)
		for _, w := range l.queue.appendTo(nil) {
			put(w.key(), w)
		}
	}
	return d
}

func (d disk) equal(o disk) bool { return maps.EqualFunc(d, o, bytes.Equal) }

// audit checks what must be true of any machine between two entries.
func audit(m *Machine) error {
	holds, waiters, waiting, bound, delayed := 0, 0, 0, 0, 0
	fences := make(map[uint64]bool)
	for name, l := range m.locks {
		switch {
		case l.name() != name:
			return fmt.Errorf("lock %q is kept under %q", l.name(), name)
		case l.owner == nil && l.delayUntil == 0:
			return fmt.Errorf("lock %q is idle with %d waiting", name, l.queue.len)
		case l.owner != nil && (l.delayUntil != 0 || l.holds == 0 || m.sessions[l.owner.id] != l.owner):
			return fmt.Errorf("lock %q has an owner that cannot own it", name)
		case l.owner != nil && (fences[l.fence] || l.fence > m.fence()):
			return fmt.Errorf("lock %q has fence %d that is not its own", name, l.fence)
		}
		if l.owner != nil {
			fences[l.fence] = true
			holds++
		} else {
			delayed++
		}
		last := uint64(0)
		for _, w := range l.queue.appendTo(nil) {
			if w.lock != l || w.position <= last || w.incarnation.waiting[w.seq] != w || m.sessions[w.session.id] != w.session {
				return fmt.Errorf("lock %q: the queue is broken at %d", name, w.position)
			}
			last = w.position
			waiters++
		}
	}
	for _, inc := range m.incarnations {
		waiting += len(inc.waiting)
		n := 0
		for _, c := range inc.classes {
			n += c.sessions.len
		}
		if n != inc.count {
			return fmt.Errorf("incarnation %s counts %d sessions and has %d", inc.id, inc.count, n)
		}
		bound += n
	}
	for _, s := range m.sessions {
		holds -= s.holds.len
		waiters -= s.waiters.len
		waiting -= s.waiters.len
		bound--
	}
	if holds != 0 || waiters != 0 || waiting != 0 || bound != 0 || delayed != len(m.delays) {
		return errors.New("the two sides of a relation differ")
	}
	return nil
}
