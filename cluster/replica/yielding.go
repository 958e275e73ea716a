package replica

import (
	"runtime"
	"time"

	"github.com/conclave-go/conclave/internal/wait"
)

// yielding is owned by the loop. It has the loop yield the processor to the goroutines that it has just woken,
// where that is worth more than it costs. If the host keeps all processors busy, a
// yield costs 10 ms or more, a time slice of each goroutine that is ready, in which the loop serves
// neither ticks nor peers. So a slow one is followed by a pause without any, longer each time.
type yielding struct {
	resume time.Time
	pause  time.Duration

	callers   int // that the loop has woken at callersAt
	callersAt time.Time
}

const (
	slowYield     = 3 * time.Millisecond // more than a thousand callers need
	firstYieldGap = time.Second
	maxYieldGap   = time.Minute
)

// yield yields the processor, unless that was slow a short while ago. It reports whether
// it was fast.
func (y *yielding) yield() bool {
	before := time.Now()
	if before.Before(y.resume) {
		return false
	}
	runtime.Gosched()
	took := time.Since(before)
	y.note(before, took)
	return took <= slowYield
}

// note notes how long a yield took.
func (y *yielding) note(at time.Time, took time.Duration) {
	if took <= slowYield {
		y.pause = 0
		return
	}
	y.pause = min(max(2*y.pause, firstYieldGap), maxYieldGap)
	y.resume = at.Add(took + y.pause)
}

// A caller that gets an outcome often calls again at once. So when the first of those that
// the loop has just woken calls, the loop lets the others run before it goes on: their
// commands then share an entry, and a release does not wait behind the request of another
// caller. Their reads share a confirmation by the other members.
const (
	companyTime   = 400 * time.Microsecond
	companyYields = 64
)

// woke notes how many callers a step of the loop has woken.
func (y *yielding) woke(callers int) {
	if callers > 0 {
		y.callers, y.callersAt = callers, time.Now()
	}
}

// fetch fetches the events of this process. Unless as many are there as callers
// were woken a few microseconds ago, it yields to them.
func (y *yielding) fetch(mailbox *wait.Mailbox[event]) []event {
	woken := y.callers
	y.callers = 0
	var events []event
	for yields := 0; ; yields++ {
		if len(events) >= woken || yields == companyYields || time.Since(y.callersAt) > companyTime || !y.yield() {
			return append(events, mailbox.Fetch()...)
		}
		events = append(events, mailbox.Fetch()...)
	}
}
