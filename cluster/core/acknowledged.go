package core

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
)

// Position is how far a member's disk has come: its term, and the last entry of its log.
type Position struct{ Term, Index uint64 }

// Process is one run of a member.
type Process struct {
	Member      uint64
	Boot        uint64
	Incarnation wire.ID
}

// Acknowledged holds the entries that the others have acknowledged: to this member while it
// led, or to the group by their digests. A process whose disk has less has been started on
// a directory that was rolled back. It has a row for each member, and is not safe for
// concurrent use.
//
// Two facts bind a member for all time. An acknowledgment makes the leader's term durable,
// and the entries: they can be truncated only by a leader of a later term. And an entry
// that it has acknowledged to the leader that committed it is never truncated. What else
// it acknowledged, a later leader may have overwritten.
//
// A hello may be older than an acknowledgment that has overtaken it on another
// connection. So a process is compared with what earlier processes have acknowledged: it
// cannot forget what it acknowledged itself.
type Acknowledged struct {
	rows map[uint64]*acknowledgments
}

type acknowledgments struct {
	process Process
	former  acknowledgment // by earlier processes
	current acknowledgment // by process
	saved   Position
}

// acknowledgment: up to index in term, and of that up to committed for ever.
type acknowledgment struct{ term, index, committed uint64 }

func (a *acknowledgment) add(b acknowledgment) {
	if b.term > a.term {
		a.term, a.index = b.term, b.index
	} else if b.term == a.term {
		a.index = max(a.index, b.index)
	}
	a.committed = max(a.committed, b.committed)
}

func (k *Acknowledged) row(member uint64) *acknowledgments {
	if k.rows == nil {
		k.rows = make(map[uint64]*acknowledgments)
	}
	r := k.rows[member]
	if r == nil {
		r = new(acknowledgments)
		k.rows[member] = r
	}
	return r
}

// Load adds what an earlier process of this member has recorded: that the other one had
// acknowledged the committed entries up to p.Index in p.Term.
func (k *Acknowledged) Load(member uint64, p Position) {
	r := k.row(member)
	r.former.add(acknowledgment{term: p.Term, committed: p.Index})
	r.saved = p
}

// Add records that a process has acknowledged the entries up to p.Index to this member, the
// leader of p.Term.
func (k *Acknowledged) Add(from Process, p Position) {
	k.add(from, acknowledgment{term: p.Term, index: p.Index})
}

// AddApplied records that a process has applied the entries up to index, as its digest of
// the state there proves. Raft has a member apply only what is committed and durable.
func (k *Acknowledged) AddApplied(from Process, index uint64) {
	k.add(from, acknowledgment{committed: index})
}

func (k *Acknowledged) add(from Process, a acknowledgment) {
	r := k.row(from.Member)
	switch {
	case from.Incarnation == r.process.Incarnation:
		r.current.add(a)
	case from.Boot < r.process.Boot: // overtaken by that of a later process
		r.former.add(a)
	default:
		r.former.add(r.current)
		r.process, r.current = from, a
	}
}

// Commit records the commit index of this member, the leader of p.Term.
func (k *Acknowledged) Commit(p Position) {
	for _, r := range k.rows { // order: each on its own
		for _, a := range []*acknowledgment{&r.former, &r.current} {
			if a.term == p.Term {
				a.committed = max(a.committed, min(a.index, p.Index))
			}
		}
	}
}

// Check returns an error if the process, whose disk has come to p, has forgotten what the
// member acknowledged.
func (k *Acknowledged) Check(process Process, p Position) error {
	r := k.rows[process.Member]
	if r == nil {
		return nil
	}
	known := r.former
	if r.process.Incarnation != process.Incarnation {
		known.add(r.current)
	}
	switch {
	case p.Index < known.committed:
		return forgot(p.Index, known.committed)
	case p.Term == known.term && p.Index < known.index:
		return forgot(p.Index, known.index)
	case p.Term < known.term:
		return fmt.Errorf("forgot acknowledged entries (has term %d, acknowledged term %d)", p.Term, known.term)
	}
	return nil
}

func forgot(has, acknowledged uint64) error {
	return fmt.Errorf("forgot acknowledged entries (has %d, acknowledged %d)", has, acknowledged)
}

// Unsaved calls save with what has changed since the last call and must survive this
// process, member by member in any order.
func (k *Acknowledged) Unsaved(save func(member uint64, p Position)) {
	for member, r := range k.rows { // order: each is a record of its own
		all := r.former
		all.add(r.current)
		if p := (Position{all.term, all.committed}); p != r.saved && p.Index > 0 {
			r.saved = p
			save(member, p)
		}
	}
}

// Forget forgets a member that has been removed: its ID does not return.
func (k *Acknowledged) Forget(member uint64) { delete(k.rows, member) }

// Acknowledges returns what an admissible message acknowledges to this member, as the
// leader of the term.
func (n *raftNode) Acknowledges(m *raftpb.Message) (p Position, ok bool) {
	if m.GetType() != raftpb.MsgAppResp || m.GetReject() || m.GetTerm() != n.term || n.role.RaftState != raft.StateLeader {
		return Position{}, false
	}
	return Position{m.GetTerm(), m.GetIndex()}, true
}

// Durable returns how far this member's disk has come, as far as Stored has reported.
func (n *raftNode) Durable() (p Position) {
	p.Term, p.Index = n.log.Durable()
	return p
}
