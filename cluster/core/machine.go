package core

import (
	"errors"
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// Machine is the replicated state machine. Only the driver's goroutine calls it.
type Machine interface {
	wire.Rechecker

	// Apply applies the entry at index. Empty data is raft's own first entry
	// of a term.
	Apply(index, term uint64, data []byte) fact.Result
	// Now is the largest group time applied.
	Now() int64
	// NextDeadline is the earliest group time at which an empty batch would
	// change the state.
	NextDeadline() (at int64, ok bool)
	// Size is the approximate size of the state in bytes. It is cheap.
	Size() uint64
	// Removed returns the removed members, ascending, all that ever were: see Includes. The
	// leader removes them from Raft's configuration. The slice is never changed.
	Removed() []uint64
	// Members returns the members that were not removed, by ID, and GroupConfig the group's
	// settings. The slice is never changed.
	Members() []fact.MemberRecord
	GroupConfig() fact.GroupConfig
	// Registered returns the incarnation of the last registered process of each member
	// that was not removed. The map is never changed.
	Registered() map[uint64]wire.ID
	// Level returns the group's feature level and the highest that this build
	// supports. Beyond that, the machine must not apply an entry.
	Level() (agreed, supported uint32)
	// NextLevel returns the feature level to which the group can be raised, 0 if to
	// none. members are those of Raft's configuration.
	NextLevel(members []uint64) uint32
	// Directory returns the further groups, if this is the machine of the default one, and Following what the machine of
	// a further group has of the default one: nil in that. Neither is ever changed.
	Directory() *fact.Directory
	Following() *fact.Following
	// Liveness returns the recorded liveness of each member's process.
	Liveness() []fact.MemberLiveness
}

// Call is a pending command.
type Call = tickets.Call

var (
	// ErrCorrupt: this member's state differs from the group's.
	ErrCorrupt = errors.New("state differs from the group's")
	// ErrUpgradeRequired: the group uses what this build does not know.
	ErrUpgradeRequired = errors.New("the group uses features that this build does not support: run a newer one")
	// ErrForgot: this member has forgotten entries that it acknowledged, so it must not
	// vote.
	ErrForgot = errors.New("its directory was rolled back, or replaced by an older copy: " +
		"stop this process and continue with the directory that it used last")
)

// Includes reports whether ascending IDs include one. Members that were removed become many in
// time, so no list of them is searched one by one.
func Includes(ids []uint64, id uint64) bool {
	_, found := slices.BinarySearch(ids, id)
	return found
}
