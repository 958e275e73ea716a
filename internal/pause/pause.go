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

const (
	// maxPauses bounds the memory: of more, the earlier ones are forgotten.
	maxPauses = 16
	// leastPatience is the least patience: a busy host lets a process that runs wait for some tens of milliseconds.
	leastPatience = 200 * time.Millisecond
	// reportInterval is the least time between two reports: a CPU limit pauses a process many times in a row.
	reportInterval = 10 * time.Second
)

// Pauses are some that are reported together.
type Pauses struct {
	Count          int
	Longest, Total time.Duration
}

// Watch notices pauses that are longer than its patience. A goroutine of its own, and no loop, shows them: a loop may
// also be late because it works.
type Watch struct {
	patience time.Duration
	report   func(Pauses)
	stop     chan struct{}
	routine  sync.WaitGroup

	mu       sync.Mutex
	clock    *leaseclock.Clock  // guarded by mu; nil: not started
	stopped  bool               // guarded by mu
	ran      leaseclock.Instant // guarded by mu; when the process ran last
	pauses   []span             // guarded by mu
	pending  Pauses             // guarded by mu; not reported yet
	reported leaseclock.Instant // guarded by mu; when the last report was made; 0: none
}

type span struct{ from, to leaseclock.Instant }

// New returns a watch that reports each pause once it is over, on any goroutine: the first one at once, and later ones
// together if the last report was made less than 10 s ago. The patience is at least 200 ms.
func New(patience time.Duration, report func(Pauses)) *Watch {
	return &Watch{patience: max(patience, leastPatience), report: report, stop: make(chan struct{})}
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
			w.mu.Lock()
			rest := w.pending
			w.pending = Pauses{}
			w.mu.Unlock()
			w.announce(rest)
			return
		}
	}
}

// look notes that the process runs, and reports the pauses that have ended, if it is time to.
func (w *Watch) look() { w.announce(w.noted()) }

// announce reports pauses, unless there are none.
func (w *Watch) announce(p Pauses) {
	if p.Count > 0 {
		w.report(p)
	}
}

// noted notes that the process runs, and returns what is to be reported now.
func (w *Watch) noted() (due Pauses) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.clock == nil || w.stopped {
		return Pauses{}
	}
	now := w.clock.Now()
	if paused := time.Duration(now - w.ran); paused > w.patience+w.interval() {
		w.pauses = append(w.pauses[max(0, len(w.pauses)+1-maxPauses):], span{w.ran, now})
		w.pending = Pauses{w.pending.Count + 1, max(w.pending.Longest, paused), w.pending.Total + paused}
	}
	w.ran = now
	if w.pending.Count > 0 && (w.reported == 0 || time.Duration(now-w.reported) >= reportInterval) {
		due, w.pending, w.reported = w.pending, Pauses{}, now
	}
	return due
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
