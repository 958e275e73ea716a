package roster

import "github.com/conclave-go/conclave/internal/wait"

// Watch returns a signal that is set when the liveness or the membership may have changed, until stop is called.
func (r *Roster) Watch() (changed wait.Signal, stop func()) {
	changed = wait.NewSignal()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers[changed] = true
	return changed, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.watchers, changed)
	}
}

// changed wakes the watchers. r.mu is held.
func (r *Roster) changed() {
	for w := range r.watchers {
		w.Set()
	}
}
