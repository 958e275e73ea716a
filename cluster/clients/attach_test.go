package clients

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// A client that asks about as many requests as one can have gets all of their outcomes, also if these are as large as those of
// permits can be: what one frame has no room for follows.
func TestClients_AttachedOutcomesLarge(t *testing.T) {
	slots := slices.Repeat([]uint32{math.MaxInt32 - 1}, wire.MaxSlots)
	for name, reply := range map[string]*wire.Reply{
		"with numbers": {Code: wire.Code_OK, Fence: math.MaxUint64, Holds: wire.MaxSlots, Trace: bytes.Repeat([]byte("t"), 64), Slots: slots},
		"without":      {Code: wire.Code_OK, Fence: math.MaxUint64, Holds: math.MaxInt32, Trace: bytes.Repeat([]byte("t"), 64)},
	} {
		t.Run(name, func(t *testing.T) {
			m := serving(t, func(m *member, _ *Handlers) { m.fake.recheck = reply })
			c := m.dial(t)
			seen := make(map[uint64]bool)
			for n := 0; n < wire.MaxAttached; n += 1024 {
				part := &wire.Attach{More: n+1024 < wire.MaxAttached}
				for i := range uint64(1024) {
					part.Awaiting = append(part.Awaiting, &wire.Awaiting{Seq: uint64(n) + i + 1, Session: make([]byte, 16), Semaphore: "x"})
				}
				c.Send(&wire.ClientFrame{Body: &wire.ClientFrame_Attach{Attach: part}}, 0)
			}
			frames := 0
			for ; len(seen) < wire.MaxAttached; frames++ {
				f := new(wire.MemberFrame)
				if err := c.Read(f); err != nil {
					t.Fatalf("after %d outcomes: %v", len(seen), err)
				}
				if (f.GetAttached() != nil) != (frames == 0) || max(f.GetAttached().GetApplied(), f.GetDelivery().GetApplied()) != 1 {
					t.Fatalf("frame %d: %T", frames, f.GetBody())
				}
				for _, o := range f.GetAttached().GetOutcomes() {
					seen[o.GetSeq()] = true
				}
				for _, n := range f.GetDelivery().GetNotices() {
					seen[n.GetOutcome().GetSeq()] = true
				}
			}
			if reply.Slots == nil && frames != 1 {
				t.Errorf("%d frames", frames)
			}
		})
	}
}
