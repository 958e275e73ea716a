package replica

import "github.com/conclave-go/conclave/cluster/core"

// writeLastCheckpoint writes the state that was applied last, so that the next start has
// nothing to apply again.
func (r *Replica) writeLastCheckpoint() {
	op, ok := r.core.LastCheckpoint()
	if !ok {
		return
	}
	if err := r.cfg.Log.Execute(op); err != nil {
		r.log.Warn("last checkpoint not written", "dir", r.cfg.Dir, "error", err)
	}
}

// checkpoint has the loop write the applied state soon.
func (r *Replica) checkpoint() {
	r.post(event{run: func(c *core.Core) { c.Checkpoint() }})
}
