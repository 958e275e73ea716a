package machine

import "github.com/conclave-go/conclave/internal/machine/ordered"

// The lists of the machine: each type names the link of its elements.
type (
	endedSessions    struct{}
	sessionsOfMember struct{}
	sessionsOfCheck  struct{}
	holdsOfSession   struct{}
	permitsOfSession struct{}
	waitersInQueue   struct{}
	waitersOfSession struct{}
	setsOfSession    struct{}
	partsOfLock      struct{}
	sharesOfSession  struct{}
	workersOfSession struct{}

	lingeringOfPhase struct{}
)

func (endedSessions) Of(s *session) *ordered.Link[session]         { return &s.inEnding }
func (sessionsOfMember) Of(s *session) *ordered.Link[session]      { return &s.inMember }
func (sessionsOfCheck) Of(d *dependency) *ordered.Link[dependency] { return &d.inCheck }
func (holdsOfSession) Of(l *lock) *ordered.Link[lock]              { return &l.inSession }
func (permitsOfSession) Of(p *permit) *ordered.Link[permit]        { return &p.inSession }
func (waitersInQueue) Of(w *waiter) *ordered.Link[waiter]          { return &w.inQueue }
func (sharesOfSession) Of(s *share) *ordered.Link[share]           { return &s.inSession }
func (workersOfSession) Of(w *worker) *ordered.Link[worker]        { return &w.inSession }
func (lingeringOfPhase) Of(s *share) *ordered.Link[share]          { return &s.inPhase }
func (setsOfSession) Of(s *set) *ordered.Link[set]                 { return &s.inSession }
func (partsOfLock) Of(p *part) *ordered.Link[part]                 { return &p.inLock }
func (waitersOfSession) Of(w *waiter) *ordered.Link[waiter]        { return &w.inSession }
