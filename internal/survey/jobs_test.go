package survey

import (
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// The last success is known from the first look at it on, by the earliest time that group time gives, and is not forgotten with its run.
func TestJobs_LastSuccess(t *testing.T) {
	const s = time.Second
	run := func(result wire.RunResult, fence uint64, ended time.Duration) machine.RunView {
		return machine.RunView{Result: result, Fence: fence, Ended: int64(ended)}
	}
	done := func(fence uint64, ended time.Duration) machine.RunView { return run(wire.RunResult_DONE, fence, ended) }
	type look struct {
		at   time.Duration
		runs []machine.RunView
		want time.Duration // since Open; 99 s: not known
	}
	for name, looks := range map[string][]look{
		"none":                   {{5 * s, nil, 99 * s}},
		"only failures":          {{5 * s, []machine.RunView{run(wire.RunResult_FAILED, 1, 0), run(wire.RunResult_LOST, 2, 0)}, 99 * s}},
		"one that runs":          {{5 * s, []machine.RunView{run(wire.RunResult_RUNNING, 1, 0)}, 99 * s}},
		"before the start":       {{5 * s, []machine.RunView{done(1, 60*s)}, -55 * s}},
		"last of several":        {{5 * s, []machine.RunView{done(9, 4*s), done(3, 2*s), run(wire.RunResult_FAILED, 10, 0)}, 3 * s}},
		"group time is behind":   {{5 * s, []machine.RunView{done(1, 1*s)}, 4 * s}, {6 * s, []machine.RunView{done(1, 5*s)}, 1 * s}},
		"group time stands":      {{5 * s, []machine.RunView{done(1, 1*s)}, 4 * s}, {9 * s, []machine.RunView{done(1, 1*s)}, 4 * s}},
		"another success":        {{5 * s, []machine.RunView{done(1, 1*s)}, 4 * s}, {9 * s, []machine.RunView{done(2, 1*s), done(1, 5*s)}, 8 * s}},
		"its run is forgotten":   {{5 * s, []machine.RunView{done(1, 1*s)}, 4 * s}, {9 * s, nil, 4 * s}},
		"an earlier one is left": {{5 * s, []machine.RunView{done(2, 1*s), done(1, 4*s)}, 4 * s}, {9 * s, []machine.RunView{done(1, 8*s)}, 4 * s}},
	} {
		m := &job{}
		for i, l := range looks {
			m.note(l.runs, l.at)
			got := 99 * s
			if at := m.succeeded.Load(); at != nil {
				got = *at
			}
			if got != l.want {
				t.Errorf("%s: at look %d it was at %v, want %v", name, i, got, l.want)
			}
		}
	}
}

// Each call looks at one job, so that the cost for the goroutine that applies the log does not grow with their number.
func TestJobs_OneAtATime(t *testing.T) {
	names := []string{"a", "b", "c"}
	j, m := NewJobs(names), machine.New()
	for range 2 * len(names) {
		before := j.next
		j.Look(m)
		if want := (before + 1) % len(names); j.next != want {
			t.Errorf("after %d comes %d", before, j.next)
		}
	}
}
