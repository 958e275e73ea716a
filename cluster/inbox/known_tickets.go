package inbox

import (
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// sentTicket is a ticket and the member that has sent it. A member that sends the tickets of
// another one keeps none of its commands from the log.
type sentTicket struct {
	member uint64
	wire.Ticket
}

func sentBy(s *wire.Submission, seq uint64) sentTicket {
	return sentTicket{s.GetMember(), wire.Ticket{Incarnation: wire.ID(s.GetIncarnation()), Seq: seq}}
}

// maxRecent bounds the tickets that are remembered after they were applied. The
// machine recognizes the duplicates of the others.
const maxRecent = 16384

// knownTickets recognizes commands that the leader has already. It saves the log from
// duplicates; that no command is applied twice is the machine's promise.
type knownTickets struct {
	at       map[sentTicket]uint64 // 0: waits or is in flight; otherwise the index at which it was applied
	inFlight [][]sentTicket        // of each entry, in order
	recent   []appliedTicket       // a ring of maxRecent
	oldest   int                   // in recent
}

type appliedTicket struct {
	ticket sentTicket
	index  uint64
}

// duplicates reports whether a ticket is known, and notes that it waits if it is not.
// applied is the index up to which its sender has applied without an outcome: if the
// command was applied up to there, a snapshot has skipped the outcome, and only
// another application brings it.
func (k *knownTickets) duplicates(t sentTicket, applied uint64) bool {
	if index, ok := k.at[t]; ok && (index == 0 || index > applied) {
		return true
	}
	if k.at == nil {
		k.at = make(map[sentTicket]uint64)
	}
	k.at[t] = 0
	return false
}

// forget forgets what was dropped, so that it can be sent again.
func (k *knownTickets) forget(s *wire.Submission) {
	for _, c := range s.GetCalls() {
		delete(k.at, sentBy(s, c.GetSeq()))
	}
}

// begin begins another entry.
func (k *knownTickets) begin() { k.inFlight = append(k.inFlight, nil) }

// proposed adds a submission to the last entry.
func (k *knownTickets) proposed(s *wire.Submission) {
	last := &k.inFlight[len(k.inFlight)-1]
	*last = slices.Grow(*last, len(s.GetCalls()))
	for _, c := range s.GetCalls() {
		*last = append(*last, sentBy(s, c.GetSeq()))
	}
}

// lastCommands returns how many commands the last entry has.
func (k *knownTickets) lastCommands() int {
	if len(k.inFlight) == 0 {
		return 0
	}
	return len(k.inFlight[len(k.inFlight)-1])
}

// applied reports that the first entry in flight was applied at an index.
func (k *knownTickets) applied(index uint64) {
	if len(k.inFlight) == 0 {
		return // another member has proposed it
	}
	first := k.inFlight[0]
	k.inFlight[0] = nil
	k.inFlight = k.inFlight[1:]
	for _, t := range first {
		k.at[t] = index
		if len(k.recent) < maxRecent {
			k.recent = append(k.recent, appliedTicket{t, index})
			continue
		}
		old := &k.recent[k.oldest]
		if k.at[old.ticket] == old.index { // not sent again since
			delete(k.at, old.ticket)
		}
		*old = appliedTicket{t, index}
		k.oldest = (k.oldest + 1) % maxRecent
	}
}

// refused forgets the last entry.
func (k *knownTickets) refused() {
	last := len(k.inFlight) - 1
	for _, t := range k.inFlight[last] {
		delete(k.at, t)
	}
	k.inFlight = k.inFlight[:last]
}

// dropped forgets what is in flight.
func (k *knownTickets) dropped() {
	for _, entry := range k.inFlight {
		for _, t := range entry {
			delete(k.at, t)
		}
	}
	k.inFlight = nil
}
