package inbox

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// all is what waits in a lane, one process after the other.
func (l *lane) all() (all []queued) {
	for _, at := range l.turns {
		all = append(all, at.waiting...)
	}
	return all
}

// fromClient makes a submission of a client with one command of a size.
func fromClient(client byte, seq uint64, size int) *wire.Submission {
	s := from(client, seq, size)
	s.Client = true
	return s
}

// Clients of one member that flood it keep no other client from the next entries, neither with
// ordinary commands nor with urgent ones.
func TestInbox_ClientsTakeTurns(t *testing.T) {
	for _, urgent := range []bool{false, true} {
		var b Inbox
		add := func(s *wire.Submission) {
			s.Urgent = urgent
			b.Add(9, s)
		}
		for seq := range uint64(100) {
			for _, flooding := range []byte{2, 3} {
				add(fromClient(flooding, seq+1, 400<<10))
			}
		}
		add(fromClient(4, 1, 100))
		add(fromClient(4, 2, 100))
		seen := map[uint64]int{}
		for range 4 { // entries, each of which has two of the floods'
			for _, ticket := range b.entry(t) {
				seen[ticket[0]]++
			}
		}
		if seen[4] != 2 || seen[2] < 3 || seen[3] < 3 {
			t.Errorf("urgent %t: of each client in four entries: %v", urgent, seen)
		}
	}
}

// An ordinary command and an urgent one that do not fit into one entry take turns, whatever their
// sizes are.
func TestInbox_LargeOnesTakeTurns(t *testing.T) {
	for _, ordinary := range []int{MaxBatchBytes, 1000} {
		var b Inbox
		for seq := range uint64(6) {
			b.Add(2, urgently(from(2, seq+1, MaxBatchBytes-1000)))
			b.Add(3, from(3, seq+1, MaxBatchBytes-1000))
		}
		var order []uint64
		for !b.Empty() {
			entry := b.entryUpTo(t, ordinary)
			if len(entry) != 1 {
				t.Fatalf("an entry has %v", entry)
			}
			order = append(order, entry[0][0])
		}
		if want := []uint64{2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3}; !slices.Equal(order, want) {
			t.Errorf("entries of %v, with up to %d ordinary bytes", order, ordinary)
		}
	}
}

// The ordinary commands of an entry can be bounded: it has as many as fit, or one, and all urgent ones.
func TestInbox_FewOrdinaryBytes(t *testing.T) {
	const ordinary = 100 << 10
	var b Inbox
	for seq := range uint64(5) {
		b.Add(2, from(2, seq+1, 40<<10))
	}
	b.Add(2, from(2, 6, 2*ordinary))
	b.Add(2, from(2, 7, 10))
	wantEntry(t, "first", b.entryUpTo(t, ordinary), [2]uint64{2, 1}, [2]uint64{2, 2})
	for seq := range uint64(4) {
		b.Add(3, urgently(from(3, seq+1, 60<<10)))
	}
	urgent := [][2]uint64{{3, 1}, {3, 2}, {3, 3}, {3, 4}}
	wantEntry(t, "curtailed by urgent ones", b.entryUpTo(t, ordinary), append(urgent, [2]uint64{2, 3}, [2]uint64{2, 4})...)
	wantEntry(t, "third", b.entryUpTo(t, ordinary), [2]uint64{2, 5})
	wantEntry(t, "fourth, larger", b.entryUpTo(t, ordinary), [2]uint64{2, 6})
	wantEntry(t, "fifth", b.entryUpTo(t, ordinary), [2]uint64{2, 7})
	if !b.Empty() {
		t.Errorf("%d bytes are left", b.Size())
	}
}

// What does not fit keeps no other member's commands from an entry, and has its turn.
func TestInbox_SmallBesideLarge(t *testing.T) {
	const ordinary, entries, small = 136 << 10, 12, 10
	var b Inbox
	for seq := range uint64(entries) {
		b.Add(2, from(2, seq+1, 128<<10))
		b.Add(3, from(3, seq+1, 250<<10))
	}
	count := make(map[uint64]int)
	for i := range uint64(entries) {
		for seq := range uint64(small) {
			b.Add(4, from(4, i*small+seq+1, 100))
		}
		for _, call := range b.entryUpTo(t, ordinary) {
			count[call[0]]++
		}
	}
	if count[4] < entries*small*2/3 || count[2] < entries/3 || count[3] < entries/3 {
		t.Errorf("%d entries have %d and %d large ones, and %d small ones of %d", entries, count[2], count[3], count[4], entries*small)
	}
}

// Urgent commands in each entry, of another member or of the same one, do not keep large ordinary ones from their turn.
func TestInbox_LargeBesideUrgent(t *testing.T) {
	const ordinary, entries = 136 << 10, 24
	for name, urgentFrom := range map[string]byte{"of another member": 4, "of the same member": 2} {
		var b Inbox
		count := make(map[uint64]int)
		for i := range uint64(entries) {
			b.Add(2, from(2, 2*i+1, 200<<10))
			b.Add(3, from(3, i+1, 200<<10))
			b.Add(5, from(5, i+1, 1<<10))
			b.Add(uint64(urgentFrom), urgently(from(urgentFrom, 2*i+2, 100)))
			for _, call := range b.entryUpTo(t, ordinary) {
				count[call[0]]++
			}
		}
		if urgentFrom == 2 {
			count[2] -= entries
		}
		if least := entries/2/3 - 1; min(count[2], count[3]) < least || count[5] < entries-6 {
			t.Errorf("urgent ones %s: %d entries have %d and %d large ones, want %d each, and %d small ones", name, entries, count[2], count[3], least, count[5])
		}
	}
}

// Large urgent commands take turns, also if none of their members has ordinary ones.
func TestInbox_UrgentTakeTurns(t *testing.T) {
	const entries = 12
	var b Inbox
	count := make(map[uint64]int)
	for i := range uint64(entries) {
		for member := byte(2); member <= 5; member++ {
			b.Add(uint64(member), urgently(from(member, i+1, 240<<10)))
		}
		b.Add(6, from(6, i+1, 100))
		for _, call := range b.entryUpTo(t, 136<<10) {
			count[call[0]]++
		}
	}
	for member := uint64(2); member <= 5; member++ {
		if count[member] < entries/2 {
			t.Errorf("%d entries have %d urgent commands of member %d: %v", entries, count[member], member, count)
		}
	}
	if count[6] < entries-2 {
		t.Errorf("%d entries have %d ordinary commands", entries, count[6])
	}
}

// The limit drops what the process with most has sent last, also if another one has added.
func TestLane_DropsFromLargest(t *testing.T) {
	var l lane
	push := func(process uint64, seq uint64, size int) {
		l.push(process, queued{&wire.Submission{Calls: []*wire.Call{{Seq: seq}}}, size})
	}
	for seq := range uint64(10) {
		push(1, seq, 1000)
	}
	push(2, 100, 100)
	push(3, 200, 8000)
	if q := l.drop(2); q.GetCalls()[0].GetSeq() != 9 {
		t.Errorf("dropped %v, want the last one of 1", q)
	}
	if q := l.drop(3); q.GetCalls()[0].GetSeq() != 200 {
		t.Errorf("dropped %v, want that of 3, which has its part", q)
	}
	if len(l.turns) != 2 || len(l.of) != 2 {
		t.Errorf("%d processes take turns, %d are known", len(l.turns), len(l.of))
	}
}

// Whatever is added, taken and dropped: each process's come out in order, the sums are right, and
// an empty lane keeps nothing.
func TestLane_Random(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var l lane
		next, last := map[uint64]uint64{}, map[uint64]uint64{}
		for range 200 {
			process := random.Uint64N(5)
			switch random.IntN(3) {
			case 0, 1:
				next[process]++
				l.push(process, queued{&wire.Submission{Member: process, Calls: []*wire.Call{{Seq: next[process]}}}, random.IntN(1000)})
			case 2:
				if l.empty() {
					continue
				}
				if random.IntN(2) == 0 {
					l.drop(process)
					continue
				}
				front := l.front()
				q := l.pop()
				if seq := q.GetCalls()[0].GetSeq(); q.Submission != front.Submission || seq <= last[q.GetMember()] {
					t.Fatalf("%d of %d after %d", seq, q.GetMember(), last[q.GetMember()])
				}
				last[q.GetMember()] = q.GetCalls()[0].GetSeq()
			}
			sum := 0
			for _, q := range l.all() {
				sum += q.bytes()
			}
			if sum != l.bytes || len(l.of) != len(l.turns) || slices.ContainsFunc(l.turns, func(at *queue) bool { return len(at.waiting) == 0 || l.of[at.process] != at }) {
				t.Fatalf("%d bytes counted of %d; %d turns, %d processes", l.bytes, sum, len(l.turns), len(l.of))
			}
		}
		for !l.empty() {
			l.pop()
		}
		if l.bytes != 0 || len(l.of) != 0 {
			t.Fatalf("%d bytes of %d processes are left", l.bytes, len(l.of))
		}
	}
}
