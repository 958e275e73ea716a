package clients

import (
	"slices"

	"github.com/conclave-go/conclave/internal/wire"
)

// What a notice takes, and a key in the outcome of a Write, about: 128 of these are in one notice.
const (
	noticeBytes = 128
	keyBytes    = 48
	slotBytes   = 5
)

// replyBytes is about what an outcome takes in a queue.
func replyBytes(r *wire.Reply) int {
	n := noticeBytes + keyBytes*len(r.GetKeys()) + noticeBytes*len(r.GetChecks()) + len(r.GetDetail()) + len(r.GetTrace()) + slotBytes*len(r.GetSlots()) +
		wire.SetBytes(r.GetSet())
	for _, w := range r.GetCycle().GetWaits() {
		n += wire.WaitBytes(w)
	}
	return n
}

// sizeOf is about what notices take in a queue.
func sizeOf(notices []*wire.Notice) (n int) {
	for _, notice := range notices {
		n += replyBytes(notice.GetOutcome().GetReply()) + len(notice.GetRecall().GetLock())
	}
	return n
}

// attachedSize is about what the answer to an Attach takes in a queue.
func attachedSize(a *wire.Attached) int {
	n := noticeBytes * (len(a.GetSessions()) + len(a.GetElsewhere()) + len(a.GetMembers()))
	for _, o := range a.GetOutcomes() {
		n += replyBytes(o.GetReply())
	}
	return n
}

// maxAttachedOutcomes bounds what the outcomes in the answer to an Attach take, about: the frame has at most 4 MiB, and sessions
// and addresses as well. Without numbers of permits those of as many requests as a client has always fit.
const maxAttachedOutcomes = 3 << 20

// cutAttached returns what the answer to an Attach has no room for, and takes it out.
func cutAttached(a *wire.Attached) (rest []*wire.Notice) {
	left := maxAttachedOutcomes
	for i, o := range a.GetOutcomes() {
		if left -= replyBytes(o.GetReply()); left < 0 {
			for _, o := range a.GetOutcomes()[i:] {
				rest = append(rest, &wire.Notice{Body: &wire.Notice_Outcome{Outcome: o}})
			}
			a.Outcomes = a.GetOutcomes()[:i]
			break
		}
	}
	return rest
}

// Notify implements core.Client. The notices of one step are sent together.
func (c *conn) Notify(n *wire.Notice) {
	if len(c.notices) == 0 {
		c.server.touched = append(c.server.touched, c)
	}
	c.notices = append(c.notices, n)
}

// send sends a frame of about that size. A client that does not read loses its connection.
func (c *conn) send(f *wire.MemberFrame, size int) { c.conn.Send(f, size) }

// maxNotices are sent in one frame. The largest outcome, of a transaction, has some KiB, and a
// frame of a member 4 MiB at most.
const maxNotices = 500

// Deliver sends what the last step had for clients. Each part of it has the index of the
// whole: a client that gets the first one only must not attach to an earlier state, and asks for
// the outcomes that it lacks.
func (s *Server) Deliver() {
	for _, c := range s.touched {
		c.deliver(s.core.Status().Applied, c.notices)
		c.notices = nil
	}
	clear(s.touched)
	s.touched = s.touched[:0]
	if len(s.attaching) > 0 {
		s.AttachDue()
	}
}

// deliver sends notices up to an index of the log.
func (c *conn) deliver(applied uint64, notices []*wire.Notice) {
	for part := range slices.Chunk(notices, maxNotices) {
		c.send(&wire.MemberFrame{Body: &wire.MemberFrame_Delivery{Delivery: &wire.Delivery{Applied: applied, Notices: part}}}, sizeOf(part))
	}
}
