// Package inbox is what the leader has received and not proposed yet: it fills entries from all members alike, and
// drops duplicates.
//
// It is a seam, not an API: only package cluster/core uses it.
package inbox

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/budget"
	"github.com/conclave-go/conclave/internal/wire"
)

const (
	// MaxBatchBytes bounds the submissions of one entry, and so a submission.
	MaxBatchBytes = 1 << 20
	// maxInbox bounds the bytes of ordinary commands that wait at the leader. Beyond it
	// the member that has most is the one that loses its latest; it retries.
	maxInbox = 32 << 20
	// maxUrgentShare bounds the bytes of urgent commands of one member there.
	maxUrgentShare = 8 << 20
	// maxCurtailed bounds the bytes of ordinary commands in an entry with urgent
	// ones, which commits the earlier the smaller it is. It applies to every other
	// entry at most, so that a stream of urgent commands does not starve the others.
	maxCurtailed = 128 << 10
	// maxInboxes bounds the bytes that wait in all inboxes that share a budget, but for leastInbox of each. An inbox alone gets maxInbox of them.
	maxInboxes = 2 * maxInbox
	// leastInbox is what an inbox, and the urgent commands of a member there, may have in any case: a submission.
	leastInbox   = MaxBatchBytes
	callOverhead = 128 // approximate memory of a call without its command
)

// Inbox gathers the submissions that the leader has not proposed yet, and drops what
// duplicates a command that waits, is in flight, or was applied so recently that its
// member cannot have the outcome yet.
//
// Each member has a share, and the clients of each one. An entry is filled from all shares
// alike, so that a member with much to write delays no other, and from the clients of one in turn;
// what one process has sent goes in order of arrival.
type Inbox struct {
	budget    *budget.Budget // nil: it shares none
	shares    []*share       // of members of which something waits, in turn
	bytes     int            // of all of them
	tickets   knownTickets
	curtailed bool // the last entry had few ordinary commands for the sake of urgent ones
}

// NewBudget returns what several inboxes share: each has bounds of its own, and of a thousand groups that one process leads they
// would be more memory than it has.
func NewBudget() *budget.Budget { return budget.New(maxInboxes, leastInbox) }

// New returns an inbox that shares a budget with others, unless that is nil.
func New(budget *budget.Budget) Inbox { return Inbox{budget: budget} }

// count counts bytes that wait from now on, or do no more.
func (b *Inbox) count(bytes int) {
	b.bytes += bytes
	b.budget.Take(bytes)
}

// share is what waits of one member, or of the clients that are connected to it: what they
// send keeps none of the member's own renewals from the log.
type share struct {
	member   uint64
	clients  bool
	urgent   lane
	ordinary lane
	taken    int  // bytes in the entry that is being filled
	full     bool // what is next does not fit into it
}

// Empty reports whether nothing waits.
func (b *Inbox) Empty() bool { return len(b.shares) == 0 }

// Size returns how much memory takes what waits, in bytes.
func (b *Inbox) Size() int { return b.bytes }

// LastCommands returns how many commands the last entry has.
func (b *Inbox) LastCommands() int { return b.tickets.lastCommands() }

// Add adds a submission that an authenticated member has sent. It keeps a copy: the
// sender may send the same one again, and what waits must not change after its size was
// taken.
func (b *Inbox) Add(from uint64, s *wire.Submission) {
	if _, ok := wire.IDFrom(s.GetIncarnation()); !ok {
		return // the machine would ignore it
	}
	applied, urgent := s.GetApplied(), s.GetUrgent()
	calls := slices.DeleteFunc(slices.Clone(s.GetCalls()), func(c *wire.Call) bool {
		return b.tickets.duplicates(sentBy(s, c.GetSeq()), applied)
	})
	// What else it contains, also of a newer version, is not for the log, and not counted.
	for i, c := range calls {
		if len(c.ProtoReflect().GetUnknown()) > 0 {
			calls[i] = &wire.Call{Seq: c.GetSeq(), Command: c.GetCommand()}
		}
	}
	s = &wire.Submission{Incarnation: s.GetIncarnation(), Floor: s.GetFloor(), Calls: calls, Member: s.GetMember(), Client: s.GetClient()}
	if len(s.GetCalls()) == 0 {
		return
	}
	q := queued{s, wire.SubmissionSize(s)}
	h := b.share(from, s.GetClient())
	b.count(q.bytes())
	if !urgent {
		h.ordinary.push(s.GetMember(), q)
		b.limit(s.GetMember())
		return
	}
	h.urgent.push(s.GetMember(), q)
	for h.urgent.bytes > b.budget.Allowed(maxUrgentShare) {
		b.drop(&h.urgent, s.GetMember())
	}
	b.prune()
}

// share returns the share of a member or of its clients.
func (b *Inbox) share(member uint64, clients bool) *share {
	for _, h := range b.shares {
		if h.member == member && h.clients == clients {
			return h
		}
	}
	h := &share{member: member, clients: clients}
	b.shares = append(b.shares, h)
	return h
}

// limit drops the latest ordinary submissions of the members that have most, and of the clients
// of a member that have most there. added is the process that has added one.
func (b *Inbox) limit(added uint64) {
	total := 0
	for _, h := range b.shares {
		total += h.ordinary.bytes
	}
	for total > b.budget.Allowed(maxInbox) {
		most := b.shares[0]
		for _, h := range b.shares {
			if h.ordinary.bytes > most.ordinary.bytes {
				most = h
			}
		}
		total -= b.drop(&most.ordinary, added)
	}
	b.prune()
}

// drop drops a submission of a lane, and returns its bytes.
func (b *Inbox) drop(from *lane, added uint64) int {
	q := from.drop(added)
	b.count(-q.bytes())
	b.tickets.forget(q.Submission)
	return q.bytes()
}

// prune removes the shares of which nothing waits.
func (b *Inbox) prune() {
	b.shares = slices.DeleteFunc(b.shares, func(h *share) bool { return h.urgent.empty() && h.ordinary.empty() })
}

// Clear drops all that waits, and forgets what is in flight.
func (b *Inbox) Clear() {
	b.count(-b.bytes)
	*b = New(b.budget)
}

// AppendBatch appends an encoded Batch with submissions: as many as fit into an entry, and at least one if there is any. Of ordinary ones it
// has one of the member whose turn it is, whatever its size, and others up to so many bytes.
func (b *Inbox) AppendBatch(data []byte, level uint32, time int64, ordinary int) ([]byte, error) {
	data, err := proto.MarshalOptions{}.MarshalAppend(data, &wire.Batch{Version: level, Time: time})
	if err != nil {
		return nil, err
	}
	for _, h := range b.shares {
		h.taken = 0
	}
	b.tickets.begin()
	start := len(data)
	b.curtailed = b.waits(urgentLane) && !b.curtailed
	limit := start + MaxBatchBytes
	// Of two that do not fit into one entry each second entry has the ordinary one.
	data = b.fill(data, limit-b.besideUrgent(), urgentLane, b.curtailed || !b.waits(ordinaryLane))
	if b.curtailed {
		ordinary = min(ordinary, maxCurtailed)
		limit = min(limit, len(data)+ordinary)
	}
	ordinary = min(limit, len(data)+ordinary)
	data = b.serveTurn(data, limit)
	data = b.fill(data, ordinary, ordinaryLane, true)
	b.curtailed = b.curtailed && b.waits(ordinaryLane)
	b.prune()
	return data, nil
}

// serveTurn appends what is next of the first share of which something ordinary waits, if that does not exceed the limit, and gives the next share its turn.
// Else it has its turn in the next entry, which is not curtailed and has room for it: so no share waits for more than one turn of each other one,
// whatever the sizes are.
func (b *Inbox) serveTurn(data []byte, limit int) []byte {
	i := slices.IndexFunc(b.shares, func(h *share) bool { return !h.ordinary.empty() })
	if i >= 0 {
		h := b.shares[i]
		if len(data)+h.ordinary.front().size > limit {
			return data
		}
		data = b.take(data, h, &h.ordinary)
		b.toBack(i)
	}
	if i != 0 {
		b.toBack(0) // nothing ordinary waits of it: the urgent ones take turns as well
	}
	return data
}

// toBack gives a share the last turn.
func (b *Inbox) toBack(i int) {
	if i < len(b.shares) {
		h := b.shares[i]
		b.shares = append(slices.Delete(b.shares, i, i+1), h)
	}
}

// besideUrgent returns the bytes of an entry that urgent commands leave to ordinary ones,
// if any wait: a quarter, and enough for each that is next of its member unless the entry
// is curtailed. So a stream of urgent commands starves no other.
func (b *Inbox) besideUrgent() (room int) {
	for _, h := range b.shares {
		if h.ordinary.empty() {
			continue
		}
		if room = max(room, MaxBatchBytes/4); !b.curtailed {
			room = max(room, h.ordinary.front().size)
		}
	}
	return room
}

func urgentLane(h *share) *lane   { return &h.urgent }
func ordinaryLane(h *share) *lane { return &h.ordinary }

func (b *Inbox) waits(of func(*share) *lane) bool {
	return slices.ContainsFunc(b.shares, func(h *share) bool { return !of(h).empty() })
}

// fill appends submissions of one lane, each time from the share of which least is in
// the entry, while they do not exceed the limit. A share whose next one would is left to the entry of its turn, and
// keeps nothing of the others from this one. With alone, what exceeds the limit by itself is appended if the entry is empty.
func (b *Inbox) fill(data []byte, limit int, of func(*share) *lane, alone bool) []byte {
	for _, h := range b.shares {
		h.full = false
	}
	for {
		var next *share
		for _, h := range b.shares {
			if !of(h).empty() && !h.full && (next == nil || h.taken < next.taken) {
				next = h
			}
		}
		if next == nil {
			return data
		}
		from := of(next)
		if len(data)+from.front().size > limit && (!alone || b.taken() > 0) {
			next.full = true
			continue
		}
		data = b.take(data, next, from)
	}
}

func (b *Inbox) take(data []byte, h *share, from *lane) []byte {
	q := from.pop()
	b.count(-q.bytes())
	h.taken += q.size
	b.tickets.proposed(q.Submission)
	return wire.AppendSubmission(data, q.Submission, q.size)
}

func (b *Inbox) taken() (sum int) {
	for _, h := range b.shares {
		sum += h.taken
	}
	return sum
}

// Applied reports that the first entry in flight was applied at an index.
func (b *Inbox) Applied(index uint64) { b.tickets.applied(index) }

// Refused reports that the last batch was not proposed.
func (b *Inbox) Refused() { b.tickets.refused() }

// Dropped reports that what is in flight will not be applied, as far as this leader knows.
func (b *Inbox) Dropped() { b.tickets.dropped() }
