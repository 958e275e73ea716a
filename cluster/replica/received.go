package replica

import (
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wait"
	"github.com/conclave-go/conclave/internal/wire"
)

// A member sends the frames of all groups over one connection, on whose reader this process receives them. If that waited for one loop, the
// frames of all other groups would wait too, and after some seconds the connection would break. So it never waits: what a loop does not
// handle in time is kept, within bounds, and beyond them dropped. Raft and the senders of commands send again.

const (
	// maxReceived bounds the bytes that one member has sent and that no loop has handled yet, of all groups. A group gets half of
	// it if the others have nothing there, twice of what raft and one process have on their way: see core.maxInflightBytes.
	maxReceived = 64 << 20
	// groupReceived is what each group may have besides: many heartbeats and small entries.
	groupReceived = 64 << 10
	// frameOverhead, entryOverhead and callOverhead are about the memory of a frame, of an entry of raft, and of a call or another
	// element of a list, without their bytes.
	frameOverhead = 512
	entryOverhead = 128
	callOverhead  = 256
	// snapshotOverhead is how many times its bytes a snapshot in a message takes, whose configuration is a list of numbers.
	snapshotOverhead = 8
)

// ReceivedBytes counts, for each other member, the bytes that the loops of this process have not handled yet. It may be used on any goroutine.
type ReceivedBytes struct {
	mu sync.Mutex
	of map[uint64]*receivedBytes // guarded by mu; by member, of those that a group has a sender of
}

// receivedBytes are those of one member.
type receivedBytes struct {
	atomic.Int64
	groups int // that have a sender of it; guarded by ReceivedBytes.mu
}

func (b *ReceivedBytes) from(member uint64) *receivedBytes {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.of = make(map[uint64]*receivedBytes)
	}
	if b.of[member] == nil {
		b.of[member] = new(receivedBytes)
	}
	b.of[member].groups++
	return b.of[member]
}

// leave notes that one group less has a sender of a member.
func (b *ReceivedBytes) leave(member uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of[member].groups--; b.of[member].groups == 0 {
		delete(b.of, member)
	}
}

// received is what the other members have sent to one group and its loop has not handled yet. The members take turns, and the frames of one
// are handled in their order.
type received struct {
	bytes *ReceivedBytes
	ready wait.Signal // set while something waits

	mu      sync.Mutex // guards what follows
	closed  bool
	senders []*sender // that have sent anything over a connection whose loss is not handled yet
	waiting int       // events, of all of them
	turn    int       // the sender that is next
}

// sender is what waits of one member.
type sender struct {
	member uint64
	events []receivedEvent
	first  int            // of events; those before have been taken
	bytes  int            // of the others
	all    *receivedBytes // in all groups
	behind bool           // something was dropped since nothing waited
}

type receivedEvent struct {
	run   func(*core.Core)
	bytes int
}

func newReceived(bytes *ReceivedBytes) *received {
	return &received{bytes: bytes, ready: wait.NewSignal()}
}

// sender returns that of a member.
func (q *received) sender(member uint64) *sender {
	for _, s := range q.senders {
		if s.member == member {
			return s
		}
	}
	s := &sender{member: member, all: q.bytes.from(member)}
	q.senders = append(q.senders, s)
	return s
}

// admits reports whether the group may have further bytes of the member: in all as many as are free for every other group (Choudhury and Hahne,
// Dynamic Queue Length Thresholds). So each group that is behind has an equal part, and leaves as much to those that are not.
func (s *sender) admits(bytes int) bool {
	return s.bytes+bytes <= max(maxReceived-int(s.all.Load()), groupReceived)
}

// put queues an event of a member, on the goroutine that reads from it, unless that takes too many bytes; what takes none is always queued. It
// never blocks. first reports that this is the first one dropped since nothing waited.
func (q *received) put(member uint64, run func(*core.Core), bytes int) (queued, first bool) {
	queued, alone := q.add(member, receivedEvent{run, bytes})
	if queued && alone {
		q.ready.Set() // without the lock, which the loop acquires first
	}
	return queued, !queued && alone
}

// add is put without the signal. alone: nothing waited before, or nothing was dropped before.
func (q *received) add(member uint64, e receivedEvent) (queued, alone bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false, false
	}
	s := q.sender(member)
	if e.bytes == 0 && s.lossIsLast() {
		return true, false // a peer that only connects must not fill the memory
	}
	if e.bytes > 0 && !s.admits(e.bytes) {
		alone, s.behind = !s.behind, true
		return false, alone
	}
	s.count(e.bytes)
	s.append(e)
	q.waiting++
	return true, q.waiting == 1
}

// lossIsLast reports whether the last event that waits takes no bytes, as the loss of a connection does: another one changes nothing.
func (s *sender) lossIsLast() bool {
	return s.first < len(s.events) && s.events[len(s.events)-1].bytes == 0
}

// append reuses the room of what has been taken: a queue that is never empty must not grow for it.
func (s *sender) append(e receivedEvent) {
	if len(s.events) == cap(s.events) && s.first > len(s.events)/2 {
		n := copy(s.events, s.events[s.first:])
		clear(s.events[n:])
		s.events, s.first = s.events[:n], 0
	}
	s.events = append(s.events, e)
}

func (s *sender) count(bytes int) {
	s.bytes += bytes
	s.all.Add(int64(bytes))
}

// take appends events to a list, one of each member in turn, until there are most of them or they have limit bytes, and reports whether it has
// left some.
func (q *received) take(to []receivedEvent, most, limit int) (taken []receivedEvent, left bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for bytes := 0; q.waiting > 0 && len(to) < most && bytes < limit; q.turn++ {
		at := q.turn % len(q.senders)
		s := q.senders[at]
		if s.first == len(s.events) {
			continue
		}
		e := s.next()
		to = append(to, e)
		bytes += e.bytes
		q.waiting--
		if e.bytes == 0 && len(s.events) == 0 {
			// Its connection is lost, and it may have been removed: members that come and go would add up in each group.
			q.senders = slices.Delete(q.senders, at, at+1)
			q.bytes.leave(s.member)
		}
	}
	return to, q.waiting > 0
}

func (s *sender) next() receivedEvent {
	e := s.events[s.first]
	s.events[s.first] = receivedEvent{}
	s.count(-e.bytes)
	if s.first++; s.first < len(s.events) {
		return e
	}
	s.events, s.first, s.behind = s.events[:0], 0, false
	if cap(s.events) > 4*drainFrames {
		s.events = nil // do not keep the memory of a burst
	}
	return e
}

// close drops what waits. What is put afterwards is dropped too: the bytes are also those of groups that go on.
func (q *received) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.senders {
		s.count(-s.bytes)
		q.bytes.leave(s.member)
	}
	q.closed, q.senders, q.waiting = true, nil, 0
}

// FrameBytes returns about how much memory a frame takes, with the fields of a later version that it has.
func FrameBytes(f *wire.Frame) int {
	if raft, ok := f.GetBody().(*wire.Frame_Raft); ok {
		return frameOverhead + len(raft.Raft)
	}
	return frameOverhead + proto.Size(f) + callOverhead*(len(f.GetSubmission().GetCalls())+len(f.GetCrashEvidence().GetProcesses()))
}
