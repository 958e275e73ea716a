package machine

import "github.com/conclave-go/conclave/internal/wire"

// Numbers of the repeated fields in records.
const (
	checksOfSession = 8  // SessionState
	keysOfReply     = 10 // Reply
	checksOfReply   = 12
	slotsOfReply    = 17
	cycleOfReply    = 19
	waitsOfCycle    = 2 // Cycle
	slotsOfPermit   = 7 // PermitState
	setOfReply      = 20
	fencesOfSet     = 1 // SetReply
	takenOfSet      = 3
	namesOfSet      = 3 // SetState, SetWaiterState
	sharedOfSet     = 4
	phasesOfSet     = 5 // SetState
	membersOfGroup  = 9 // GroupState
)

// bounded reports whether a record has no more elements in its repeated fields than the
// machine can have written. It looks before the record is decoded: an element takes two
// bytes there and more than a hundred in memory. All else takes about what it has.
func bounded(kind byte, record []byte) bool {
	switch kind {
	case sessionKind:
		return wire.Occurrences(record, checksOfSession) <= MaxSessionChecks
	case ticketKind:
		return wire.Occurrences(record, keysOfReply) <= MaxOps && wire.Occurrences(record, checksOfReply) <= MaxSessionChecks &&
			wire.Occurrences(record, slotsOfReply) <= MaxSlots && wire.OccurrencesWithin(record, cycleOfReply, waitsOfCycle) <= wire.MaxWaits &&
			wire.OccurrencesWithin(record, setOfReply, fencesOfSet) <= MaxSet && wire.OccurrencesWithin(record, setOfReply, takenOfSet) <= MaxSet
	case permitKind:
		return wire.Occurrences(record, slotsOfPermit) <= MaxSlots
	case groupKind:
		return wire.Occurrences(record, membersOfGroup) <= MaxMembers
	case setKind, setWaiterKind:
		return wire.Occurrences(record, namesOfSet)+wire.Occurrences(record, sharedOfSet) <= MaxSet &&
			(kind == setWaiterKind || wire.Occurrences(record, phasesOfSet) <= MaxSet)
	}
	return true
}
