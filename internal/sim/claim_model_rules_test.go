package sim

import (
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// What the model of one lock accepts of what a process left in a session without a TTL, when another one asks for it.
func TestLockModel_Claims(t *testing.T) {
	const ok, exclusively, shared = wire.Code_OK, false, true
	name := locks[0]
	left := &wire.LockSet{Names: []string{name, locks[1]}}
	reads := &wire.LockSet{Names: []string{locks[1]}, Shared: []string{name}}
	beside := &wire.LockSet{Names: []string{locks[2]}, Shared: []string{name}}
	for _, row := range []struct {
		name           string
		accepted       bool
		first          *wire.LockSet // by a process that ends; nil: the lock alone
		firstShared    bool
		asked          *wire.LockSet // by the next one, of a later time; nil: the lock alone
		next           *wire.LockSet // by the same or, if other is set, by another session
		nextShared     bool
		other          bool
		fence, nextOf  uint64
		share, nextsOf uint64
	}{
		{name: "the same set", accepted: true, first: left, asked: left, next: left, fence: 5, nextOf: 6},
		{name: "the same set with the old fence", first: left, asked: left, next: left, fence: 5, nextOf: 5},
		{name: "the lock alone", accepted: true, first: left, next: nil, asked: nil, fence: 5, nextOf: 6},
		{name: "another session, of what was not asked for", first: left, asked: left, next: nil, other: true, fence: 5, nextOf: 6},
		{name: "another session, of what was in the way", accepted: true, first: left, asked: reads, next: nil, other: true, fence: 5, nextOf: 6},
		{name: "the same phase", accepted: true, first: reads, firstShared: shared, asked: reads, next: reads, nextShared: shared, fence: 6, share: 5, nextOf: 6, nextsOf: 7},
		{name: "another phase", first: reads, firstShared: shared, asked: reads, next: reads, nextShared: shared, fence: 6, share: 5, nextOf: 8, nextsOf: 7},
		{name: "another set beside", accepted: true, first: reads, firstShared: shared, asked: beside, next: beside, nextShared: shared, fence: 6, share: 5, nextOf: 6, nextsOf: 7},
		{name: "a writer beside", first: reads, firstShared: shared, asked: beside, next: nil, nextShared: exclusively, other: true, fence: 6, share: 5, nextOf: 8},
		{name: "a writer after a request for another of the names", accepted: true, first: reads, firstShared: shared, asked: left, next: nil, other: true, fence: 6, share: 5, nextOf: 8},
	} {
		kept := &sessionSpan{id: wire.ID{10}, noTTL: true, endRequested: forever, gracefulEndRequested: forever, endReported: never}
		others := &sessionSpan{id: wire.ID{11}, endRequested: forever, gracefulEndRequested: forever, endReported: never}
		op := func(of *wire.LockSet, by *sessionSpan, process byte, shared bool, fence, share uint64) *operation {
			return &operation{
				command: &wire.Command{Op: &wire.Command_Lock{Lock: &wire.Lock{Name: name, Handle: 1, Shared: shared}}}, of: of,
				session: by, incarnation: wire.ID{process}, invokedAt: int64(process), returnedAt: 3, returnedTime: 3,
				reply: &wire.Reply{Code: ok, Fence: fence, Holds: 1, Share: share},
			}
		}
		first := op(row.first, kept, 1, row.firstShared, row.fence, row.share)
		next := op(row.next, kept, 2, row.nextShared, row.nextOf, row.nextsOf)
		if row.other {
			next = op(row.next, others, 2, row.nextShared, row.nextOf, row.nextsOf)
		}
		asked := wanted{names: []string{name}}
		if row.asked != nil {
			asked = wanted{row.asked.Names, row.asked.Shared}
		}
		kept.claims = []claim{{process: wire.ID{2}, at: 2, wants: asked, ofSet: row.asked != nil}}
		if states := lockStatesAfter([]*operation{first, next}); (len(states) > 0) != row.accepted {
			t.Errorf("%s: accepted %t, want %t: %v", row.name, len(states) > 0, row.accepted, states)
		}
	}
}
