package replica

import (
	"runtime"
	"time"
)

// yielding has the loop yield the processor to the goroutines that it has just woken,
// where that is worth more than it costs. If the host keeps all processors busy, a
// yield costs 10 ms or more, a time slice of each goroutine that is ready, in which the loop serves
// neither ticks nor peers. So a slow one is followed by a pause without any, longer each time.
type yielding struct {
	resume time.Time
	pause  time.Duration
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

// fetchTogether fetches the events of this process. Unless as many are there as callers
// were woken a few microseconds ago, it yields to them.
func (r *Replica) fetchTogether() []event {
	woken, at := r.woken, r.wokenAt
	r.woken = 0
	var events []event
	for yields := 0; ; yields++ {
		if len(events) >= woken || yields == companyYields || time.Since(at) > companyTime || !r.yielding.yield() {
			return append(events, r.mailbox.Fetch()...)
		}
		events = append(events, r.mailbox.Fetch()...)
	}
}
