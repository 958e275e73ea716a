package sim

import (
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// history is what the group has agreed on, as whoever applied an entry first
// saw it, replayed by a machine that has never crashed and never taken a
// snapshot. Everybody else is held against it.
type history struct {
	w        *world
	oracle   *machine.Machine
	entries  []applied // from index 2 on: a new log is truncated at 1
	outcomes map[wire.Ticket][]*wire.Reply
	state    map[string][]byte // what a disk has to hold
	sessions map[wire.ID]*simSession
	fence    uint64
	answered uint64 // largest index of an outcome that a program has seen
	leaders  map[uint64]int
	office   time.Duration // when the last of them was first seen to lead
	names    []string
	each     func() // runs after each entry that is new
	audit    *audit
	twin     *twin
}

type applied struct {
	term    uint64
	data    uint32
	changes uint32
	told    uint64
	digest  uint64
	known   bool // the digest
}

func newHistory(w *world) *history {
	return &history{
		w: w, oracle: machine.New(), audit: newAudit(w), twin: newTwin(w),
		outcomes: make(map[wire.Ticket][]*wire.Reply),
		state:    make(map[string][]byte),
		sessions: make(map[wire.ID]*simSession),
		leaders:  make(map[uint64]int),
	}
}

func (h *history) last() uint64 { return uint64(len(h.entries)) + 1 }

// observed is a member's machine under observation.
type observed struct {
	*machine.Machine
	life *life
}

func (o *observed) Apply(index, term uint64, data []byte) wire.Result {
	r := o.Machine.Apply(index, term, data)
	o.life.w.history.applied(o.life, index, term, data, r)
	r.Outcomes = o.life.missSome(r.Outcomes)
	return r
}

// missSome drops first outcomes of this process at random, as if they had been lost:
// the process repeats the command, and gets the same outcome.
func (l *life) missSome(outcomes []wire.Outcome) (seen []wire.Outcome) {
	for _, o := range outcomes {
		if o.Ticket.Incarnation != l.core.Incarnation() {
			continue
		}
		if !l.answered[o.Ticket] && l.w.faults.drop() {
			continue
		}
		l.answered[o.Ticket] = true
		seen = append(seen, o)
	}
	return seen
}

func (h *history) applied(l *life, index, term uint64, data []byte, r wire.Result) {
	got := applied{term: term, data: checksum(data), changes: sum(r.Changes), told: told(r)}
	if index <= h.last() {
		want := h.entries[index-2]
		if want.term != got.term || want.data != got.data {
			h.w.fail("member %d applies another entry %d than others did", l.n, index)
		}
		if want.changes != got.changes || want.told != got.told {
			h.w.fail("member %d: entry %d has another effect than elsewhere", l.n, index)
		}
		h.twin.yielded(l, index, r)
		return
	}
	h.membership(index - 1)
	if index != h.last()+1 {
		h.w.fail("member %d applies entry %d, and nobody has applied %d", l.n, index, h.last()+1)
	}
	h.entries = append(h.entries, got)
	h.twin.entry(index, term, data)
	h.twin.yielded(l, index, r)
	h.replay(l, index, term, data, got.changes)
}

// membership notes the entries up to index that nobody's machine has seen: they
// are about the membership, and there are some only where members leave.
func (h *history) membership(index uint64) {
	for h.w.faults.leaves && h.last() < index {
		h.entries = append(h.entries, applied{})
		h.twin.results = append(h.twin.results, 0)
	}
}

func (h *history) replay(l *life, index, term uint64, data []byte, changes uint32) {
	r := h.oracle.Apply(index, term, data)
	if sum(r.Changes) != changes {
		h.w.fail("member %d: entry %d has another effect than on a machine that replayed the whole log", l.n, index)
	}
	for _, c := range r.Changes {
		if c.Value == nil {
			delete(h.state, string(c.Key))
		} else {
			h.state[string(c.Key)] = c.Value
		}
	}
	for _, o := range r.Outcomes {
		if known := h.outcomes[o.Ticket]; len(known) == 0 || !proto.Equal(known[len(known)-1], o.Reply) {
			h.outcomes[o.Ticket] = append(known, o.Reply)
		}
	}
	for _, e := range r.Ended {
		if !e.Unbound {
			h.ended(e, index)
		}
	}
	h.grants()
	h.audit.entry(index, term, data, r)
	if h.each != nil {
		h.each()
	}
}

// ended checks that time has not run faster than a holder may count on.
func (h *history) ended(e wire.Ended, index uint64) {
	s := h.sessions[e.Session]
	if s == nil || s.program.over || s.closing || len(s.checks) > 0 || s.program.quitting || s.incarnation != s.program.incarnation {
		return // ended by intent: closed, by a check, or its process replaced
	}
	h.w.say("session %s of %d ends at entry %d", s.id, s.program.n, index)
	s.ended = h.w.now
	if clock := s.program.clock(); clock < s.deadline && !h.w.faults.coarse {
		h.w.fail("session %s of member %d ends at %v of its clock, and its holder may count on it until %v", s.id, s.program.n, clock, s.deadline)
	}
}

// grants checks that each new hold has a larger fence than all before. At most
// one can be new per lock.
func (h *history) grants() {
	largest := h.fence
	for _, v := range locksOf(h.oracle) {
		if v.Fence <= h.fence && v.Held && !slices.Contains(h.names, fenced(v)) {
			h.w.fail("lock %s is granted with fence %d, after %d was given out", v.Name, v.Fence, h.fence)
		}
		if !v.Held && v.Delay <= 0 {
			h.w.fail("lock %s is free and has %d waiting", v.Name, v.Waiters)
		}
		largest = max(largest, v.Fence)
	}
	h.fence = largest
	h.names = h.names[:0]
	for _, v := range locksOf(h.oracle) {
		if v.Held {
			h.names = append(h.names, fenced(v))
		}
	}
}

func fenced(v machine.LockView) string {
	return fmt.Sprintf("%s/%s/%d/%d", v.Name, v.Session, v.Handle, v.Fence)
}

// vouch checks that an outcome is what the log says.
func (h *history) vouch(l *life, t wire.Ticket, r *wire.Reply) {
	h.answered = max(h.answered, r.GetIndex())
	h.twin.vouch(l, t, r)
	for _, known := range h.outcomes[t] {
		if proto.Equal(known, r) {
			return
		}
	}
	h.w.fail("member %d: ticket %v: outcome %v; the log says %v", l.n, t.Seq, r, h.outcomes[t])
}

// rechecked checks what a call found in the state after a snapshot.
func (h *history) rechecked(l *life, t wire.Ticket, r *wire.Reply) {
	known := h.outcomes[t]
	if len(known) == 0 || known[len(known)-1].GetCode() == wire.Code_QUEUED {
		h.w.fail("member %d: ticket %v: found %v in the state; the log has not decided yet", l.n, t.Seq, r)
	}
	said := func(k *wire.Reply) bool { return k.GetCode() == wire.Code_OK && k.GetFence() == r.GetFence() }
	if r.GetCode() == wire.Code_OK && !slices.ContainsFunc(known, said) { // the state may be older than the log's last word
		h.w.fail("member %d: ticket %v: found %v in the state; the log says %v", l.n, t.Seq, r, known)
	}
}

// leads checks that a term has one leader.
func (h *history) leads(term uint64, n int) {
	if other, ok := h.leaders[term]; ok && other != n {
		h.w.fail("members %d and %d lead in term %d", other, n, term)
	}
	if _, ok := h.leaders[term]; !ok {
		h.office = h.w.now
		h.w.say("%d leads in term %d", n, term)
	}
	h.leaders[term] = n
}

// digest checks that the state's digests are equal at equal indexes.
func (h *history) digest(l *life) {
	index, digest := l.core.Digest()
	if index < 2 {
		return
	}
	h.membership(index)
	e := &h.entries[index-2]
	if e.known && e.digest != digest {
		h.w.fail("member %d: digest %x at entry %d, others have %x", l.n, digest, index, e.digest)
	}
	e.digest, e.known = digest, true
}

// compareDisks checks, at the end, that every disk holds the agreed state and
// that it comes back from there.
func (w *world) compareDisks() {
	for _, m := range w.present() {
		m.stop()
		m.start()
		found := 0
		err := m.life.log.State(func(key, value []byte) error {
			found++
			if want, ok := w.history.state[string(key)]; !ok || string(want) != string(value) {
				w.fail("member %d: the disk has %x at %q", m.n, value, key)
			}
			return nil
		})
		if err != nil {
			w.fail("member %d: %v", m.n, err)
		}
		if at := m.life.core.Status().Applied; at != w.history.last() || found != len(w.history.state) {
			w.fail("member %d: %d pairs of entry %d on disk, want %d of %d", m.n, found, at, len(w.history.state), w.history.last())
		}
	}
}

var table = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, table) }

func sum(changes []wire.Change) uint32 {
	var s uint32
	for _, c := range changes {
		s = crc32.Update(s, table, c.Key)
		s = crc32.Update(s, table, []byte{byte(len(c.Key)), byte(len(c.Value))})
		s = crc32.Update(s, table, c.Value)
	}
	return s
}
