package inbox

import (
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"
)

// Whatever the sizes are, and however much waits: each member that waits with ordinary commands, or with urgent ones, has one in an entry before
// all others had a few, and no entry exceeds its bound.
func TestInbox_NoneStarves(t *testing.T) {
	sizes := []int{0, 0, 10, 1 << 10, 50 << 10, 140 << 10, 250 << 10, 500 << 10} // 0: none
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		members := byte(2 + r.IntN(5))
		ordinary := []int{136 << 10, MaxBatchBytes}[r.IntN(2)]
		var b Inbox
		type lane struct {
			size, sent, taken int
			last              int // the entry that has had one
		}
		lanes := make(map[[2]byte]*lane) // by member, and 1 for urgent ones
		for m := range members {
			for urgent := range byte(2) {
				lanes[[2]byte{m, urgent}] = &lane{size: sizes[r.IntN(len(sizes))]}
			}
		}
		for entry := 1; entry <= 100; entry++ {
			for m := range members {
				for urgent := range byte(2) {
					l := lanes[[2]byte{m, urgent}]
					for l.size > 0 && l.sent < l.taken+4 {
						l.sent++
						s := from(m, uint64(2*l.sent)+uint64(urgent), l.size)
						s.Urgent = urgent == 1
						b.Add(uint64(m), s)
					}
				}
			}
			batch := b.batchUpTo(t, ordinary)
			if size := proto.Size(batch); size > MaxBatchBytes+100 {
				t.Fatalf("seed %d: an entry of %d bytes", seed, size)
			}
			for _, call := range ticketsOf(batch) {
				l := lanes[[2]byte{byte(call[0]), byte(call[1] % 2)}]
				l.taken, l.last = l.taken+1, entry
			}
			for of, l := range lanes {
				if l.size > 0 && entry-l.last > 4*int(members) {
					t.Fatalf("seed %d: entry %d: member %d (urgent: %d) with commands of %d bytes had none since %d", seed, entry, of[0], of[1], l.size, l.last)
				}
			}
		}
	}
}
