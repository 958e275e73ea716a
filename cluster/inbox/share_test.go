package inbox

import (
	"slices"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// from makes a submission of a member with one command of a size.
func from(member byte, seq uint64, size int) *wire.Submission {
	id := wire.ID{member}
	return &wire.Submission{Member: uint64(member), Incarnation: id[:], Calls: []*wire.Call{{Seq: seq, Command: make([]byte, size)}}}
}

func urgently(s *wire.Submission) *wire.Submission {
	s.Urgent = true
	return s
}

// entry takes the next batch and returns the tickets in it, as pairs.
func (b *Inbox) entry(t *testing.T) (tickets [][2]uint64) {
	t.Helper()
	return b.entryUpTo(t, MaxBatchBytes)
}

// entryUpTo is entry with so many bytes of ordinary commands.
func (b *Inbox) entryUpTo(t *testing.T, ordinary int) (tickets [][2]uint64) {
	t.Helper()
	batch := b.batchUpTo(t, ordinary)
	for _, s := range batch.GetSubmissions() {
		if s.GetUrgent() || s.GetApplied() != 0 {
			t.Error("the log contains what is for the leader only")
		}
	}
	return ticketsOf(batch)
}

func ticketsOf(b *wire.Batch) (tickets [][2]uint64) {
	for _, s := range b.GetSubmissions() {
		for _, c := range s.GetCalls() {
			tickets = append(tickets, [2]uint64{uint64(s.GetIncarnation()[0]), c.GetSeq()})
		}
	}
	return tickets
}

func wantEntry(t *testing.T, what string, got [][2]uint64, want ...[2]uint64) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: member and ticket %v; want %v", what, got, want)
	}
}

// Urgent commands are in the next entry, before everything else, and the entry has few
// others, so that it commits soon. The entry after that has as many as fit.
func TestInbox_UrgentFirst(t *testing.T) {
	const size = 200 << 10
	var b Inbox
	for seq := range uint64(10) {
		b.Add(2, from(2, seq+1, size))
	}
	b.Add(3, from(3, 1, 100))
	b.Add(2, urgently(from(2, 11, 10)))
	b.Add(3, urgently(from(3, 2, 10)))
	b.Add(2, urgently(from(2, 12, 10)))
	wantEntry(t, "first", b.entry(t), [2]uint64{2, 11}, [2]uint64{3, 2}, [2]uint64{2, 12}, [2]uint64{3, 1})
	b.Add(2, urgently(from(2, 13, 10)))
	wantEntry(t, "second", b.entry(t), [2]uint64{2, 13}, [2]uint64{2, 1}, [2]uint64{2, 2}, [2]uint64{2, 3}, [2]uint64{2, 4}, [2]uint64{2, 5})
	b.Add(2, urgently(from(2, 14, 10)))
	wantEntry(t, "third", b.entry(t), [2]uint64{2, 14})
	wantEntry(t, "fourth", b.entry(t), [2]uint64{2, 6}, [2]uint64{2, 7}, [2]uint64{2, 8}, [2]uint64{2, 9}, [2]uint64{2, 10})
	if !b.Empty() || b.bytes != 0 {
		t.Errorf("%d bytes are left", b.bytes)
	}
}

// Urgent commands for whole entries, in every entry, starve no other command: not a small
// one, nor the largest that a caller can make. While no other waits, they fill the entry.
func TestInbox_UrgentFloodLeavesRoom(t *testing.T) {
	const size = 50 << 10
	var b Inbox
	seq := uint64(0)
	entry := func() (urgent int, others [][2]uint64) {
		for b.share(2, false).urgent.bytes < 2*MaxBatchBytes {
			seq++
			b.Add(2, urgently(from(2, seq, size)))
		}
		for _, ticket := range b.entry(t) {
			if ticket[0] == 2 {
				urgent += size
			} else {
				others = append(others, ticket)
			}
		}
		return urgent, others
	}
	if urgent, _ := entry(); urgent < MaxBatchBytes-2*size {
		t.Errorf("%d bytes of urgent commands in an entry, alone", urgent)
	}
	var got [][2]uint64
	b.Add(3, from(3, 1, 768<<10))
	b.Add(4, from(4, 1, 100))
	for i := range 3 {
		urgent, others := entry()
		if urgent == 0 || urgent > MaxBatchBytes*3/4 {
			t.Errorf("entry %d: %d bytes of urgent commands", i, urgent)
		}
		if got = append(got, others...); len(got) == 2 {
			break
		}
	}
	slices.SortFunc(got, func(a, b [2]uint64) int { return int(a[0]) - int(b[0]) })
	wantEntry(t, "of other members", got, [2]uint64{3, 1}, [2]uint64{4, 1})
}

// Every member has as much room in an entry as any other, however much it sends.
func TestInbox_MembersShareEntries(t *testing.T) {
	var b Inbox
	for seq := range uint64(60) {
		b.Add(2, from(2, seq+1, 250<<10))
	}
	for seq := range uint64(100) {
		b.Add(3, from(3, seq+1, 1000))
	}
	b.Add(4, from(4, 1, 250<<10))
	b.Add(4, from(4, 2, 250<<10))
	of := make(map[uint64]int)
	for _, ticket := range b.entry(t) {
		of[ticket[0]]++
	}
	if of[3] != 100 || of[2]+of[4] != 3 || of[4] == 0 || of[2] == 0 {
		t.Errorf("commands by member: %v; want all 100 of member 3 and some of the others", of)
	}
}

// Beyond its limit the Inbox drops what the member with most has sent last. What was
// dropped is accepted when it is sent again.
func TestInbox_DropsOfMemberWithMost(t *testing.T) {
	const size = 1000 << 10
	var b Inbox
	for seq := range uint64(2 * maxInbox / size) {
		b.Add(2, from(2, seq+1, size))
	}
	kept := uint64(len(b.shares[0].ordinary.all()))
	if b.bytes > maxInbox || b.bytes < maxInbox-2*size {
		t.Fatalf("%d bytes wait, the limit is %d", b.bytes, maxInbox)
	}
	for seq := range uint64(5) {
		b.Add(3, from(3, seq+1, size))
	}
	if n := len(b.shares[1].ordinary.all()); n != 5 {
		t.Errorf("%d of 5 submissions of the other member are kept", n)
	}
	if n := uint64(len(b.shares[0].ordinary.all())); n != kept-5 || b.bytes > maxInbox {
		t.Errorf("%d of %d submissions are left of the member with most; %d bytes", n, kept, b.bytes)
	}
	for !b.Empty() {
		b.entry(t)
	}
	b.Add(2, from(2, kept, size))
	wantEntry(t, "sent again", b.entry(t), [2]uint64{2, kept})
}

// Urgent commands of one member have a limit of their own, beyond which they are dropped.
func TestInbox_UrgentShare(t *testing.T) {
	var b Inbox
	for seq := range uint64(2 * maxUrgentShare >> 20) {
		b.Add(2, urgently(from(2, seq+1, 1<<20)))
	}
	b.Add(3, urgently(from(3, 1, 1<<20)))
	if n := b.shares[0].urgent.bytes; n > maxUrgentShare || n < maxUrgentShare/2 || len(b.shares) != 2 {
		t.Errorf("%d bytes of %d members wait", n, len(b.shares))
	}
	b.Clear()
	b.Add(2, urgently(from(2, 1, maxUrgentShare)))
	if !b.Empty() {
		t.Error("a share without commands is kept")
	}
}

// A command that waits, is in flight or was applied after its sender's position is a
// duplicate. Once a snapshot has skipped its outcome, it is not.
func TestInbox_DropsDuplicates(t *testing.T) {
	var b Inbox
	again := func(applied uint64) *wire.Submission {
		s := from(2, 1, 10)
		s.Calls = append(s.Calls, &wire.Call{Seq: 1}) // twice in one submission
		s.Applied = applied
		return s
	}
	b.Add(2, again(0))
	b.Add(2, again(0))
	wantEntry(t, "waiting", b.entry(t), [2]uint64{2, 1})
	b.Add(2, again(99))
	wantEntry(t, "in flight", b.entry(t))
	b.Applied(100)
	b.Add(2, again(99))
	wantEntry(t, "applied", b.entry(t))
	b.Add(2, again(100))
	wantEntry(t, "the sender applied it without an outcome", b.entry(t), [2]uint64{2, 1})
	b.Dropped()
	b.Add(2, again(99))
	wantEntry(t, "dropped by raft", b.entry(t), [2]uint64{2, 1})
}

// A member that sends the tickets of another one keeps none of its commands from the log.
func TestInbox_ForeignTicketIsNoDuplicate(t *testing.T) {
	var b Inbox
	forged, own := from(3, 1, 10), from(2, 1, 10)
	forged.Incarnation = own.Incarnation
	b.Add(3, forged)
	b.Add(2, own)
	if got := b.entry(t); len(got) != 2 {
		t.Errorf("the entry has %v, want the forged command and the own one", got)
	}
}

// The memory for duplicates is bounded, and forgets the oldest first.
func TestInbox_ForgetsOldTickets(t *testing.T) {
	var b Inbox
	for seq := range uint64(3 * maxRecent / 2) {
		b.Add(2, from(2, seq+1, 1))
		b.entry(t)
		b.Applied(seq + 10)
	}
	if n := len(b.tickets.at); n != maxRecent || len(b.tickets.recent) != maxRecent {
		t.Errorf("remembers %d and %d tickets; want %d", n, len(b.tickets.recent), maxRecent)
	}
	b.Add(2, from(2, maxRecent/2+1, 1))
	wantEntry(t, "remembered", b.entry(t))
	b.Add(2, from(2, maxRecent/2, 1))
	wantEntry(t, "forgotten", b.entry(t), [2]uint64{2, maxRecent / 2})
}

// What has no ticket or no command would cost memory for nothing.
func TestInbox_EmptySubmissionDropped(t *testing.T) {
	var b Inbox
	id := wire.ID{1}
	b.Add(1, new(wire.Submission))
	b.Add(1, &wire.Submission{Incarnation: id[:]})
	b.Add(1, &wire.Submission{Incarnation: id[:3], Calls: []*wire.Call{{Seq: 1}}})
	if !b.Empty() {
		t.Error("a submission without commands is kept")
	}
}

// The inboxes of many groups share a bound. What one has leaves as much to every other one, and the room is free again for others when
// a leader has proposed or forgotten what it had.
func TestInbox_SharedBudget(t *testing.T) {
	const inboxes, size = 50, 512 << 10
	shared := NewBudget()
	command := make([]byte, size)
	flood := func(b *Inbox, urgent bool) {
		for seq := range uint64(2 * maxInbox / size) {
			s := from(1, 2*seq, 0)
			if urgent {
				s = urgently(from(2, 2*seq+1, 0))
			}
			s.Calls[0].Command = command
			b.Add(s.GetMember(), s)
		}
	}
	all := make([]Inbox, inboxes)
	for i := range all {
		all[i] = New(shared)
		flood(&all[i], false)
		flood(&all[i], true)
	}
	sum := 0
	for i := range all {
		sum += all[i].bytes
	}
	if n := all[0].bytes; n < maxInbox || n > maxInbox+maxUrgentShare {
		t.Errorf("the first inbox has %d bytes", n)
	}
	if most := maxInboxes + 2*inboxes*leastInbox; sum > most || sum != shared.Taken() {
		t.Errorf("%d bytes wait in all inboxes, at most %d may; %d are counted", sum, most, shared.Taken())
	}
	last := New(shared)
	if last.Add(1, from(1, 1, size)); last.Empty() {
		t.Error("an inbox without anything has no room beside the others")
	}
	for !last.Empty() {
		last.batch(t)
	}
	for i := range all {
		all[i].Clear()
	}
	if n := shared.Taken(); n != 0 {
		t.Errorf("%d bytes are counted, and nothing waits", n)
	}
	if flood(&last, false); last.bytes < maxInbox-size || last.bytes > maxInbox {
		t.Errorf("%d bytes wait in an inbox alone", last.bytes)
	}
	var own Inbox
	if flood(&own, false); own.bytes < maxInbox-size {
		t.Errorf("%d bytes wait in an inbox without a budget", own.bytes)
	}
}
