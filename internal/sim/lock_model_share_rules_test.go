package sim

import (
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// What the model of locks accepts of shared holds, one operation after the other: a checker that accepts too much shows nothing.
func TestLockModel_Shared(t *testing.T) {
	process, other := wire.ID{1}, wire.ID{2}
	a := &sessionSpan{id: wire.ID{10}, endRequested: forever, gracefulEndRequested: forever, endReported: never}
	b := &sessionSpan{id: wire.ID{11}, endRequested: forever, gracefulEndRequested: forever, endReported: never}
	op := func(by *sessionSpan, c *wire.Command, code wire.Code, fence uint64, holds uint32, share uint64) *operation {
		process := process
		if by == b {
			process = other
		}
		return &operation{
			command: c, session: by, incarnation: process, returnedAt: 1, returnedTime: 1,
			reply: &wire.Reply{Code: code, Fence: fence, Holds: holds, Share: share},
		}
	}
	lock := func(handle, share uint64, shared bool) *wire.Command {
		return &wire.Command{Op: &wire.Command_Lock{Lock: &wire.Lock{Handle: handle, Shared: shared, Share: share, Reentrant: share != 0, Limit: 2}}}
	}
	unlock := func(handle, fence, share uint64) *wire.Command {
		return &wire.Command{Op: &wire.Command_Unlock{Unlock: &wire.Unlock{Handle: handle, Fence: fence, Share: share}}}
	}
	downgrade := &wire.Command{Op: &wire.Command_Downgrade{Downgrade: &wire.Downgrade{Handle: 1, Fence: 5}}}
	const ok = wire.Code_OK
	reader, second := op(a, lock(1, 0, true), ok, 5, 1, 5), op(b, lock(1, 0, true), ok, 5, 1, 6)
	writer := op(a, lock(1, 0, false), ok, 5, 1, 0)
	for _, row := range []struct {
		name     string
		accepted bool
		ops      []*operation
	}{
		{"two shares of a phase", true, []*operation{reader, second}},
		{"two fences in a phase", false, []*operation{reader, op(b, lock(1, 0, true), ok, 6, 1, 6)}},
		{"a number twice", false, []*operation{reader, op(b, lock(1, 0, true), ok, 5, 1, 5)}},
		{"a share that is older than its phase", false, []*operation{op(a, lock(1, 0, true), ok, 5, 1, 4)}},
		{"exclusive beside a share", false, []*operation{reader, op(b, lock(1, 0, false), ok, 6, 1, 0)}},
		{"a share beside an exclusive owner", false, []*operation{writer, op(b, lock(1, 0, true), ok, 6, 1, 6)}},
		{"refused beside a share", true, []*operation{reader, op(b, lock(1, 0, false), wire.Code_LOCKED, 0, 0, 0)}},
		{"refused a share beside shares alone", false, []*operation{reader, op(b, lock(1, 0, true), wire.Code_LOCKED, 0, 0, 0)}},
		{"refused where there is nothing", false, []*operation{op(b, lock(1, 0, false), wire.Code_LOCKED, 0, 0, 0)}},
		{"exclusive after the last release", true, []*operation{
			reader, second, op(a, unlock(1, 5, 5), ok, 5, 0, 5), op(b, unlock(1, 5, 6), ok, 5, 0, 6), op(b, lock(1, 0, false), ok, 7, 1, 0),
		}},
		{"exclusive before the last release", false, []*operation{reader, second, op(a, unlock(1, 5, 5), ok, 5, 0, 5), op(a, lock(1, 0, false), ok, 7, 1, 0)}},
		{"a smaller fence after shares", false, []*operation{
			reader, second, op(a, unlock(1, 5, 5), ok, 5, 0, 5), op(b, unlock(1, 5, 6), ok, 5, 0, 6), op(b, lock(1, 0, false), ok, 6, 1, 0),
		}},
		{"the next phase with the same fence", false, []*operation{reader, op(a, unlock(1, 5, 5), ok, 5, 0, 5), op(b, lock(1, 0, true), ok, 5, 1, 6)}},
		{"the share of another", false, []*operation{reader, op(b, unlock(1, 5, 5), ok, 5, 0, 5)}},
		{"again", true, []*operation{reader, op(a, lock(1, 5, true), ok, 5, 2, 5), op(a, unlock(1, 5, 5), ok, 5, 1, 5), op(b, lock(1, 0, false), wire.Code_LOCKED, 0, 0, 0)}},
		{"again beyond the limit", false, []*operation{reader, op(a, lock(1, 5, true), ok, 5, 2, 5), op(a, lock(1, 5, true), ok, 5, 3, 5)}},
		{"a downgrade, and a second reader", true, []*operation{writer, op(a, downgrade, ok, 6, 1, 6), op(b, lock(1, 0, true), ok, 6, 1, 7)}},
		{"a downgrade, and a writer", false, []*operation{writer, op(a, downgrade, ok, 6, 1, 6), op(b, lock(1, 0, false), ok, 7, 1, 0)}},
		{"a downgrade with the old fence", false, []*operation{writer, op(a, downgrade, ok, 5, 1, 6)}},
		{"a downgrade of another's hold", false, []*operation{op(b, lock(1, 0, false), ok, 5, 1, 0), op(a, downgrade, ok, 6, 1, 6)}},
	} {
		if states := lockStatesAfter(row.ops); (len(states) > 0) != row.accepted {
			t.Errorf("%s: accepted %t, want %t: %v", row.name, len(states) > 0, row.accepted, states)
		}
	}
}

// lockStatesAfter returns the states in which a lock may be after operations, one after the other; none: the model refuses one.
func lockStatesAfter(ops []*operation) []lockState {
	states := []lockState{{}}
	for _, op := range ops {
		var next []lockState
		for _, s := range states {
			next = append(next, lockModel().next(s, op)...)
		}
		states = next
	}
	return states
}
