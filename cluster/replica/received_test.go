package replica

import (
	"math"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// fillUp queues events of a member until one is dropped, and returns their bytes.
func fillUp(t *testing.T, q *received, member uint64, size int) (bytes int) {
	t.Helper()
	for {
		queued, first := q.put(member, func(*core.Core) {}, size)
		if !queued {
			if !first {
				t.Error("the first one that is dropped is not reported")
			}
			return bytes
		}
		bytes += size
	}
}

// A group that is behind loses what a member sends it, and leaves room for the other groups and for the other members. What counts nothing is
// never lost.
func TestReceived_GroupIsBehind(t *testing.T) {
	const member, other, size = 2, 3, 1 << 20
	shared := new(ReceivedBytes)
	behind, further := newReceived(shared), newReceived(shared)
	if n := fillUp(t, behind, member, size); n < maxReceived/2 || n > maxReceived/2+size {
		t.Errorf("one group has %d bytes of %d", n, maxReceived)
	}
	if queued, first := behind.put(member, nil, size); queued || first {
		t.Errorf("queued %t, reported again %t", queued, first)
	}
	if queued, _ := behind.put(member, func(*core.Core) {}, 0); !queued {
		t.Error("what counts nothing is dropped")
	}
	if n := fillUp(t, further, member, size); n < maxReceived/5 {
		t.Errorf("the second group has %d bytes of %d", n, maxReceived)
	}
	if n := fillUp(t, behind, other, size); n < maxReceived/2 {
		t.Errorf("of the other member the group has %d bytes", n)
	}
	behind.close()
	if queued, _ := behind.put(member, nil, 1); queued {
		t.Error("queued in a group that has ended")
	}
	further.take(nil, 1<<20, math.MaxInt)
	for id, n := range shared.of {
		if n.Load() != 0 {
			t.Errorf("of member %d %d bytes are counted, and nothing waits", id, n.Load())
		}
	}
	if n := fillUp(t, further, member, size); n < maxReceived/2 {
		t.Errorf("when nothing waits any more one group has %d bytes", n)
	}
}

// However many groups are behind, each further one has room for what is small.
func TestReceived_ManyGroupsAreBehind(t *testing.T) {
	const member, groups = 2, 2000
	shared := new(ReceivedBytes)
	for range groups {
		if n := fillUp(t, newReceived(shared), member, groupReceived/64); n < groupReceived {
			t.Fatalf("a group has %d bytes", n)
		}
	}
	if n := shared.of[member].Load(); n > maxReceived+groups*groupReceived {
		t.Errorf("%d bytes wait", n)
	}
}

// The members take turns, and what one has sent is handled in its order.
func TestReceived_Order(t *testing.T) {
	q := newReceived(new(ReceivedBytes))
	var handled []int
	put := func(member uint64, number int) {
		q.put(member, func(*core.Core) { handled = append(handled, number) }, 1)
	}
	for i := range 3 {
		put(2, 20+i)
	}
	put(3, 30)
	put(4, 40)
	put(3, 31)
	for left := true; left; {
		var taken []receivedEvent
		taken, left = q.take(nil, 2, 10)
		for _, e := range taken {
			e.run(nil)
		}
	}
	if want := []int{20, 30, 40, 21, 31, 22}; !slices.Equal(handled, want) {
		t.Errorf("handled %v, want %v", handled, want)
	}
}

// A queue that is never empty takes no more memory for what has been taken.
func TestReceived_NeverEmpty(t *testing.T) {
	q := newReceived(new(ReceivedBytes))
	sent, handled := 0, 0
	put := func() {
		number := sent
		sent++
		q.put(2, func(*core.Core) {
			if number != handled {
				t.Fatalf("%d is handled, want %d", number, handled)
			}
			handled++
		}, 1)
	}
	put()
	for range 10_000 {
		for range 3 {
			put()
		}
		taken, _ := q.take(nil, 3, math.MaxInt)
		for _, e := range taken {
			e.run(nil)
		}
	}
	if n := cap(q.sender(2).events); n > 64 {
		t.Errorf("room for %d events where one waits", n)
	}
}

// Between large frames the loop comes back to its callers.
func TestDrain_Bounded(t *testing.T) {
	for _, c := range []struct{ frames, bytes, most int }{{4 * drainFrames, 1, drainFrames}, {40, drainBytes / 4, 4}} {
		r := &Replica{received: newReceived(new(ReceivedBytes))}
		handled := 0
		for range c.frames {
			r.received.put(2, func(*core.Core) { handled++ }, c.bytes)
		}
		for before := 0; handled < c.frames; before = handled {
			select {
			case <-r.received.ready:
			default:
				t.Fatalf("%d of %d frames are handled, and no signal is set", handled, c.frames)
			}
			if !r.drain() || handled-before > c.most {
				t.Fatalf("%d frames at once, want at most %d", handled-before, c.most)
			}
		}
		if r.drain() {
			t.Error("an empty queue had something")
		}
	}
}

func TestFrameBytes(t *testing.T) {
	calls := func(n, size int) *wire.Frame {
		s := new(wire.Submission)
		for range n {
			s.Calls = append(s.Calls, &wire.Call{Command: make([]byte, size)})
		}
		return &wire.Frame{Body: &wire.Frame_Submission{Submission: s}}
	}
	evidence := &wire.CrashEvidence{Processes: make([]*wire.CrashedProcess, 2000)}
	for name, row := range map[string]struct {
		f    *wire.Frame
		want int // at least
	}{
		"raft":             {&wire.Frame{Body: &wire.Frame_Raft{Raft: make([]byte, 1000)}}, 1000},
		"calls":            {calls(256, 100), 256 * 100},
		"many empty calls": {calls(2000, 0), 2000 * 100},
		"many processes":   {&wire.Frame{Body: &wire.Frame_CrashEvidence{CrashEvidence: evidence}}, 2000 * 50},
		"a digest":         {&wire.Frame{Body: &wire.Frame_Digest{}}, 100},
	} {
		if got := FrameBytes(row.f); got < row.want || got > 6*row.want {
			t.Errorf("%s takes %d bytes, want about %d", name, got, row.want)
		}
	}
}

// Fields of a later version are kept with a frame, so they count.
func TestFrameBytes_UnknownFields(t *testing.T) {
	digest := new(wire.Digest)
	digest.ProtoReflect().SetUnknown(append(protowire.AppendTag(nil, 1000, protowire.BytesType), protowire.AppendBytes(nil, make([]byte, 1<<20))...))
	if n := FrameBytes(&wire.Frame{Body: &wire.Frame_Digest{Digest: digest}}); n < 1<<20 {
		t.Errorf("a frame of 1 MiB counts %d bytes", n)
	}
}

// A peer that connects again and again while a loop stands still has one loss in its queue, behind each frame at most.
func TestReceived_LossesOfOnePeer(t *testing.T) {
	q := newReceived(new(ReceivedBytes))
	for range 3 {
		q.put(2, func(*core.Core) {}, 0)
		q.put(2, func(*core.Core) {}, 0)
		q.put(2, func(*core.Core) {}, 100)
	}
	if taken, _ := q.take(nil, 100, 1<<20); len(taken) != 6 {
		t.Errorf("%d events of 3 frames", len(taken))
	}
}

// Members that come and go leave nothing behind, in any group, once the losses of their connections are handled.
func TestReceived_FormerMembers(t *testing.T) {
	shared := new(ReceivedBytes)
	groups := []*received{newReceived(shared), newReceived(shared)}
	const stays = 1
	for member := uint64(2); member < 1000; member++ {
		for _, q := range groups {
			q.put(stays, func(*core.Core) {}, 1)
			q.put(member, func(*core.Core) {}, 1)
			q.put(member, func(*core.Core) {}, 0) // the loss of its connection
			if taken, left := q.take(nil, 10, math.MaxInt); len(taken) != 3 || left {
				t.Fatalf("%d events of 3 taken, others left: %t", len(taken), left)
			}
		}
	}
	for _, q := range groups {
		if n := len(q.senders); n != 1 {
			t.Errorf("a group has %d senders, and one member is connected", n)
		}
	}
	if n := len(shared.of); n != 1 {
		t.Errorf("the bytes of %d members are counted, and one is connected", n)
	}
	for _, q := range groups {
		q.close()
	}
	if n := len(shared.of); n != 0 {
		t.Errorf("the bytes of %d members are counted, and no group is left", n)
	}
}
