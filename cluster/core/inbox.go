package core

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

const (
	// maxInbox bounds the bytes of ordinary commands that wait at the leader. Beyond it
	// the member that has most is the one that loses its latest; it retries.
	maxInbox = 32 << 20
	// maxUrgentShare bounds the bytes of urgent commands of one member there.
	maxUrgentShare = 8 << 20
	// maxCurtailed bounds the bytes of ordinary commands in an entry with urgent
	// ones, which commits the earlier the smaller it is. It applies to every other
	// entry at most, so that a stream of urgent commands does not starve the others.
	maxCurtailed = 128 << 10
	callOverhead = 128 // approximate memory of a call without its command
)

// inbox gathers the submissions that the leader has not proposed yet, and drops what
// duplicates a command that waits, is in flight, or was applied so recently that its
// member cannot have the outcome yet.
//
// Each member has a share. An entry is filled from all shares alike, so that a member
// with much to write delays no other, and within each lane in order of arrival.
type inbox struct {
	shares    []*share // of members of which something waits, in turn
	bytes     int      // of all of them
	tickets   knownTickets
	curtailed bool // the last entry had few ordinary commands for the sake of urgent ones
}

// share is what waits of one member, or of the clients that are connected to it: what they
// send keeps none of the member's own renewals from the log.
type share struct {
	member   uint64
	clients  bool
	urgent   lane
	ordinary lane
	taken    int // bytes in the entry that is being filled
}

// lane is a queue of submissions.
type lane struct {
	queue []queued
	bytes int // encoded, and callOverhead for each call
}

type queued struct {
	*wire.Submission
	size int // encoded
}

func (q queued) bytes() int { return q.size + len(q.GetCalls())*callOverhead }

func (b *inbox) empty() bool { return len(b.shares) == 0 }

// add adds a submission that an authenticated member has sent. It keeps a copy: the
// sender may send the same one again, and what waits must not change after its size was
// taken.
func (b *inbox) add(from uint64, s *wire.Submission) {
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
	if urgent && h.urgent.bytes+q.bytes() > maxUrgentShare {
		b.tickets.forget(s)
		b.prune()
		return
	}
	to := &h.ordinary
	if urgent {
		to = &h.urgent
	}
	to.queue = append(to.queue, q)
	to.bytes += q.bytes()
	b.bytes += q.bytes()
	if !urgent {
		b.limit()
	}
}

// share returns the share of a member or of its clients.
func (b *inbox) share(member uint64, clients bool) *share {
	for _, h := range b.shares {
		if h.member == member && h.clients == clients {
			return h
		}
	}
	h := &share{member: member, clients: clients}
	b.shares = append(b.shares, h)
	return h
}

// limit drops the latest ordinary submissions of the members that have most.
func (b *inbox) limit() {
	total := 0
	for _, h := range b.shares {
		total += h.ordinary.bytes
	}
	for total > maxInbox {
		most := b.shares[0]
		for _, h := range b.shares {
			if h.ordinary.bytes > most.ordinary.bytes {
				most = h
			}
		}
		last := len(most.ordinary.queue) - 1
		q := most.ordinary.queue[last]
		most.ordinary.queue[last] = queued{}
		most.ordinary.queue = most.ordinary.queue[:last]
		most.ordinary.bytes -= q.bytes()
		b.bytes -= q.bytes()
		total -= q.bytes()
		b.tickets.forget(q.Submission)
	}
	b.prune()
}

// prune removes the shares of which nothing waits.
func (b *inbox) prune() {
	b.shares = slices.DeleteFunc(b.shares, func(h *share) bool { return len(h.urgent.queue)+len(h.ordinary.queue) == 0 })
}

func (b *inbox) clear() { *b = inbox{} }

// appendBatch appends an encoded Batch with submissions: as many as fit into an entry,
// and at least one if there is any.
func (b *inbox) appendBatch(data []byte, level uint32, time int64) ([]byte, error) {
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
	limit := start + maxBatchBytes
	data = b.fill(data, limit-b.besideUrgent(), urgentLane)
	if b.curtailed {
		limit = min(limit, len(data)+maxCurtailed)
	}
	data = b.fill(data, limit, ordinaryLane)
	b.curtailed = b.curtailed && b.waits(ordinaryLane)
	b.prune()
	if len(b.shares) > 1 { // another share is first next time
		b.shares = append(b.shares[1:], b.shares[0])
	}
	return data, nil
}

// besideUrgent returns the bytes of an entry that urgent commands leave to ordinary ones,
// if any wait: a quarter, and enough for each that is next of its member unless the entry
// is curtailed. So a stream of urgent commands starves no other.
func (b *inbox) besideUrgent() (room int) {
	for _, h := range b.shares {
		if len(h.ordinary.queue) == 0 {
			continue
		}
		if room = max(room, maxBatchBytes/4); !b.curtailed {
			room = max(room, h.ordinary.queue[0].size)
		}
	}
	return room
}

func urgentLane(h *share) *lane   { return &h.urgent }
func ordinaryLane(h *share) *lane { return &h.ordinary }

func (b *inbox) waits(of func(*share) *lane) bool {
	return slices.ContainsFunc(b.shares, func(h *share) bool { return len(of(h).queue) > 0 })
}

// fill appends submissions of one lane, each time from the share of which least is in
// the entry, until the next one would exceed the limit. What alone exceeds it is
// appended if the entry is empty.
func (b *inbox) fill(data []byte, limit int, of func(*share) *lane) []byte {
	for {
		var next *share
		for _, h := range b.shares {
			if len(of(h).queue) > 0 && (next == nil || h.taken < next.taken) {
				next = h
			}
		}
		if next == nil {
			return data
		}
		from := of(next)
		q := from.queue[0]
		if len(data)+q.size > limit && b.taken() > 0 {
			return data
		}
		from.queue[0] = queued{}
		if from.queue = from.queue[1:]; len(from.queue) == 0 {
			from.queue = nil // frees the array
		}
		from.bytes -= q.bytes()
		b.bytes -= q.bytes()
		next.taken += q.size
		b.tickets.proposed(q.Submission)
		data = wire.AppendSubmission(data, q.Submission, q.size)
	}
}

func (b *inbox) taken() (sum int) {
	for _, h := range b.shares {
		sum += h.taken
	}
	return sum
}

// applied reports that the first entry in flight was applied at an index.
func (b *inbox) applied(index uint64) { b.tickets.applied(index) }

// refused reports that the last batch was not proposed.
func (b *inbox) refused() { b.tickets.refused() }

// dropped reports that what is in flight will not be applied, as far as this leader knows.
func (b *inbox) dropped() { b.tickets.dropped() }
