package replica

import (
	"time"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wait"
)

// A query takes a bounded time on the loop, and so does attaching a client; but many clients may
// ask for many of them at once. So a step of the loop gives them a share of its time, and what is
// left goes on with the next step: between two steps the loop serves its ticks and the other members,
// or else a leader would lose its leadership to those who ask.

// stepShare is the time of one step in which such work may begin.
const stepShare = 2 * time.Millisecond

// share is that work. The loop's goroutine owns it.
type share struct {
	spent time.Duration // of this step
	reads []core.Read   // that may run
	left  wait.Signal   // set while a later step is to go on
}

// spend does one piece of work.
func (s *share) spend(work func()) {
	began := time.Now()
	work()
	s.spent += time.Since(began)
}

// isSpent reports whether the work that is left is to wait for the next step.
func (s *share) isSpent() bool {
	if s.spent < stepShare {
		return false
	}
	s.left.Set()
	return true
}

// queue has the reads of a step wait for their turn.
func (s *share) queue(e *core.Effects) {
	s.reads = append(s.reads, e.Reads...)
	e.Reads = nil
}

// run runs reads, and returns how many. Each sees a state that is not older than the one
// for which it was confirmed, of which this process has been notified.
func (s *share) run(machine Machine) (n int) {
	if len(s.reads) == 0 {
		return 0
	}
	for at := time.Now(); len(s.reads) > 0 && (n == 0 || !s.isSpent()); {
		read := s.reads[0]
		s.reads[0] = nil
		s.reads = s.reads[1:]
		if !read.Ended() {
			read.Run(machine)
			n++
			now := time.Now()
			s.spent += now.Sub(at)
			at = now
		}
	}
	if len(s.reads) == 0 {
		s.reads = nil // frees the array
	} else {
		s.left.Set()
	}
	return n
}
