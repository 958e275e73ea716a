package sim

import (
	"fmt"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// sessionSpan is what clients know of a session, and when it may end.
type sessionSpan struct {
	id                   wire.ID
	lockDelay            time.Duration
	behavior             wire.Behavior
	noTTL                bool
	hasChecks            bool          // it depends on checks, and may end at any time
	coarseClocks         bool          // any session with a TTL may end at any time, and any lock-delay
	holder               *simSession   // the session's holder; nil: its opening was not called
	endRequested         time.Duration // a program requests its end; forever: none did
	gracefulEndRequested time.Duration // and requests it without a lock-delay
	endReported          int64         // the first moment at which a caller was informed of its end
	claims               []claim       // requests that may have released what earlier processes left
}

// mayEnd reports whether the session may have ended by end.
func (s *sessionSpan) mayEnd(end time.Duration) bool {
	switch {
	case s.endRequested <= end, s.hasChecks, s.coarseClocks && !s.noTTL:
		return true
	case s.noTTL || s.holder == nil:
		return false
	}
	p := s.holder.program
	return p.startedAt+p.simulatedTime(s.holder.deadline) <= end
}

// possibleDelays returns the ends of the lock-delays that may follow if the session
// has ended by end: 0 for none, else the earliest possible time.
func (s *sessionSpan) possibleDelays(end time.Duration) (until []time.Duration) {
	if !s.mayEnd(end) {
		return nil
	}
	if s.lockDelay == 0 || s.gracefulEndRequested <= end {
		until = append(until, 0)
	}
	if s.lockDelay > 0 {
		until = append(until, s.earliestDelayEnd())
	}
	return until
}

// earliestDelayEnd is the time until which a lock-delay lasts at least, measured on
// a clock that may be 1 % fast.
func (s *sessionSpan) earliestDelayEnd() time.Duration {
	earliest := s.endRequested
	switch {
	case s.coarseClocks:
		return 1
	case s.hasChecks:
		earliest = 0
	case !s.noTTL && s.holder != nil:
		p := s.holder.program
		earliest = min(earliest, p.startedAt+p.simulatedTime(s.holder.deadline))
	}
	return max(1, earliest+s.lockDelay-s.lockDelay/50)
}

// withPossibleEnds returns the states in which an operation may find the model, since
// the session of span may have ended: unchanged unless the end was reported before,
// and for each possible lock-delay the state that without returns.
func withPossibleEnds[S any](states []S, span *sessionSpan, op *operation, without func(S, *sessionSpan, time.Duration) S) []S {
	var next []S
	for _, s := range states {
		if !span.endedBefore(op.invokedAt) {
			next = append(next, s)
		}
		for _, until := range span.possibleDelays(op.returnedTime) {
			next = append(next, without(s, span, until))
		}
	}
	return next
}

// endedBefore reports whether the end was reported to a caller before the moment.
func (s *sessionSpan) endedBefore(moment int64) bool { return s.endReported < moment }

func (s *sessionSpan) String() string {
	return fmt.Sprintf("%s (delay %v, %v, no TTL %t, has checks %t, end requested %v, end reported %d)",
		s.id, s.lockDelay, s.behavior, s.noTTL, s.hasChecks, s.endRequested, s.endReported)
}
