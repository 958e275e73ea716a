package replica

import (
	"errors"
	"testing"

	"github.com/conclave-go/conclave/cluster/core"
)

// A member stops with all its groups when one of them diverges. Only that one's log says so: the others' have other entries at that index.
func TestFinish_DivergenceOfOneGroup(t *testing.T) {
	diverged := &core.DivergedError{Index: 700, Digest: 1, Majority: 2}
	for name, failure := range map[string]error{"its own": diverged, "another one's": nil} {
		g := start(t, alone())
		g.end(diverged)
		g.routines.Wait()
		g.failure = failure
		g.Abandon()
		g.Finish(false)
		if err := CheckDivergence(g.cfg.Log); errors.Is(err, core.ErrCorrupt) != (failure != nil) {
			t.Errorf("%s: %v", name, err)
		}
		g.once.Do(func() {
			_ = g.store.Close()
			close(g.done)
		})
	}
}
