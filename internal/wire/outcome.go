package wire

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
)

// The group keeps the outcome of a command until the process that has submitted it
// acknowledges it, so that a retry gets the same one. What a process may leave unacknowledged
// is bounded by bytes from level 6 on. They are counted by these rules, which depend on nothing
// that differs between builds, such as the texts for people.

const (
	// MaxSlots is the most permits of one acquisition that get numbers.
	MaxSlots = 128

	// MaxSet is the most names of a LockSet.
	MaxSet = 128

	// MaxCycleBytes bounds what the listed steps of a cycle count, which two with the longest names do not exceed. MaxWaits
	// is how many there can be.
	MaxCycleBytes = 4 << 10
	MaxWaits      = MaxCycleBytes / waitBytes

	// MaxRunDetail is the most bytes of the text for people in the result of a run.
	MaxRunDetail = 128

	// TicketBytes is what a ticket above the floor counts, with an outcome or without.
	TicketBytes = 32

	outcomeBytes    = 160 // of any outcome
	keyMetaBytes    = 80
	checkTermsBytes = 40  // without the check's name
	slotBytes       = 5   // of a permit's number
	waitBytes       = 256 // of a step of a cycle, without texts
	fenceBytes      = 10  // of a shared name of a set
	takenBytes      = 80  // of a name that is not available to a set
	runBytes        = 80 + MaxRunDetail
	// maxOutcomeBytes is more than any outcome counts: of a Write with 128 operations, or of a
	// session with 16 checks.
	maxOutcomeBytes = outcomeBytes + 128*keyMetaBytes
	// opGrowth is how much larger an outcome of a Write can be than the command, whose
	// operations have 5 bytes at least.
	opGrowth = keyMetaBytes / 5
)

// Operations of Command whose outcomes can be large.
const (
	opOpenSession   protowire.Number = 4
	opLock          protowire.Number = 6
	opAttachSession protowire.Number = 9
	opSetCheck      protowire.Number = 10
	opDropCheck     protowire.Number = 11
	opAcquire       protowire.Number = 13
	opWrite         protowire.Number = 17
	opCreateSession protowire.Number = 25
	opRenewSession  protowire.Number = 26
	opLockSet       protowire.Number = 29
	opRunJob        protowire.Number = 32
)

// OutcomeBytes returns what an outcome counts while it is kept. That of a request for permits or for a set that is
// queued counts the numbers and the fences of the grant which will replace it.
func OutcomeBytes(r *Reply) int {
	n := outcomeBytes + keyMetaBytes*len(r.GetKeys())
	for _, c := range r.GetChecks() {
		n += checkTermsBytes + len(c.GetName())
	}
	n += slotBytes * len(r.GetSlots())
	if r.GetSet() != nil || r.GetCycle() != nil || r.GetRun() != nil {
		n += rareBytes(r)
	}
	switch r.GetCode() {
	case Code_QUEUED:
		if permits := r.GetHolds(); permits <= MaxSlots {
			n += slotBytes * int(permits)
		}
	case Code_CHECK_UNKNOWN, Code_CHECK_CRITICAL:
		n += len(r.GetDetail()) // a name
	}
	return n
}

// rareBytes is apart, as nearly every outcome counts without.
func rareBytes(r *Reply) int {
	n := SetBytes(r.GetSet())
	for _, w := range r.GetCycle().GetWaits() {
		n += WaitBytes(w)
	}
	if r.GetRun() != nil {
		n += runBytes // also of one that is queued: the text may follow with its second outcome
	}
	return n
}

// SetBytes returns what a reply to a LockSet counts besides; nil: 0.
func SetBytes(r *SetReply) int {
	return fenceBytes*max(len(r.GetFences()), int(min(r.GetShared(), MaxSet))) + takenBytes*len(r.GetTaken())
}

// WaitBytes returns what a step of a cycle counts.
func WaitBytes(w *Wait) int {
	a, b := w.GetWaiter(), w.GetHolder()
	return waitBytes + len(w.GetName()) + len(a.GetName()) + len(a.GetLabel()) + len(b.GetName()) + len(b.GetLabel())
}

// OutcomeBound returns an upper bound of what the ticket and the outcome of an encoded command
// count, from its first bytes and its size. It must not be called for malformed commands.
func OutcomeBound(command []byte) int {
	switch number, _, _ := protowire.ConsumeTag(command); number {
	case opWrite:
		return TicketBytes + min(outcomeBytes+opGrowth*len(command), maxOutcomeBytes)
	case opOpenSession, opAttachSession, opSetCheck, opDropCheck, opCreateSession, opRenewSession:
		return TicketBytes + maxOutcomeBytes // they return the terms or the name of checks
	case opLock:
		if refusesDeadlock(command) {
			return TicketBytes + outcomeBytes + MaxCycleBytes
		}
	case opAcquire:
		return TicketBytes + outcomeBytes + slotBytes*MaxSlots
	case opRunJob:
		return TicketBytes + outcomeBytes + runBytes
	case opLockSet:
		return TicketBytes + outcomeBytes + max(takenBytes*MaxSet, MaxCycleBytes)
	}
	return TicketBytes + outcomeBytes
}

// refusesDeadlock reports whether an encoded Lock may have refuse_deadlock. Nearly none has the byte of its tag.
func refusesDeadlock(command []byte) bool {
	const field protowire.Number = 15
	if bytes.IndexByte(command, byte(field<<3)) < 0 {
		return false
	}
	for len(command) > 0 {
		number, kind, n := protowire.ConsumeTag(command)
		if n < 0 {
			return false
		}
		if command = command[n:]; number == opLock && kind == protowire.BytesType {
			lock, size := protowire.ConsumeBytes(command)
			if size < 0 {
				return false
			}
			if has(lock, field) {
				return true
			}
		}
		if n = protowire.ConsumeFieldValue(number, kind, command); n < 0 {
			return false
		}
		command = command[n:]
	}
	return false
}

// has reports whether an encoded message has the field.
func has(message []byte, field protowire.Number) bool {
	for len(message) > 0 {
		number, _, n := protowire.ConsumeField(message)
		if n < 0 || number == field {
			return n >= 0
		}
		message = message[n:]
	}
	return false
}
