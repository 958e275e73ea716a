// Package pause notices when this process did not run: it was stopped by a signal, had no processor time, or its
// machine was paused. What follows from that, such as the end of a lease, looks like a failure of the network otherwise.
package pause

import (
	"sync"
	"time"

	"github.com/conclave-go/conclave/internal/leaseclock"
)

// Causes are the usual ones, for people.
const Causes = "SIGSTOP, a CPU limit, a suspended machine or paused VM, or swapping"

// maxPauses bounds the memory: of more, the earlier ones are forgotten.
const maxPauses = 16

// Watch notices pauses that are longer than its patience. A goroutine of its own, and no loop, shows them: a loop may
// also be late because it works.
type Watch struct {
	patience time.Duration
	report   func(paused time.Duration)
	stop     chan struct{}
	routine  sync.WaitGroup

	mu      sync.Mutex
	clock   *leaseclock.Clock  // guarded by mu; nil: not started
	stopped bool               // guarded by mu
	ran     leaseclock.Instant // guarded by mu; when the process ran last
	pauses  []span             // guarded by mu
}

type span struct{ from, to leaseclock.Instant }

// New returns a watch that reports each pause once it is over, on any goroutine.
func New(patience time.Duration, report func(paused time.Duration)) *Watch {
	return &Watch{patience: patience, report: report, stop: make(chan struct{})}
}

// Start begins to watch. Stop ends it; it may come first.
func (w *Watch) Start(clock *leaseclock.Clock) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.clock == nil && !w.stopped {
		w.clock, w.ran = clock, clock.Now()
		w.routine.Go(w.run)
	}
}

// Stop ends the watch, and waits for its goroutine, which may be within report. What it has noticed remains.
func (w *Watch) Stop() {
	w.mu.Lock()
	if !w.stopped {
		w.stopped = true
		close(w.stop)
	}
	w.mu.Unlock()
	w.routine.Wait()
}

// interval is how often the watch looks: a pause is known that exactly.
func (w *Watch) interval() time.Duration { return w.patience / 4 }

func (w *Watch) run() {
	ticker := time.NewTicker(w.interval())
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			w.look()
		case <-w.stop:
			return
		}
	}
}

// look notes that the process runs, and reports the pause that has just ended, if there was one.
func (w *Watch) look() {
	w.mu.Lock()
	if w.clock == nil || w.stopped {
		w.mu.Unlock()
		return
	}
	now := w.clock.Now()
	paused := time.Duration(now - w.ran)
	if paused <= w.patience+w.interval() {
		w.ran = now
		w.mu.Unlock()
		return
	}
	w.pauses = append(w.pauses[max(0, len(w.pauses)+1-maxPauses):], span{w.ran, now})
	w.ran = now
	w.mu.Unlock()
	w.report(paused)
}

// Since returns for how long the process did not run since a time.
func (w *Watch) Since(since leaseclock.Instant) (paused time.Duration) {
	w.look() // the goroutine may run next
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pauses {
		paused += max(0, time.Duration(p.to-max(p.from, since)))
	}
	return paused
}
