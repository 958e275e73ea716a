package conclaveprom

import (
	"context"
	"errors"
	"math"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// jobs has one node run a job whose successes all nodes are to know, and one that is not measured by name.
func (s *scene) jobs() {
	leader := s.Leader()
	other := s.Others(leader)[0]
	run := func(job, key string, result error) func() {
		return func() {
			_ = s.Nodes[leader].Job(job).Once(s.t.Context(), key, func(context.Context, conclave.Fence) error { return result })
		}
	}
	const age = "job_last_success_age_seconds"
	s.moves(leader, run("report", "1", errors.New("failed")), "job_runs_total{report,failed}")
	for name, want := range map[string]float64{"{report}": math.Inf(1), "{never}": math.Inf(1)} {
		if got := s.gather[leader]()[age+name]; got != want {
			s.t.Errorf("%s%s is %v without a success", age, name, got)
		}
	}
	s.moves(leader, run("other", "1", nil), "job_runs_total{,done}")
	s.moves(other, run("report", "1", nil), "-"+age+"{report}")
	s.becomes(age, func() bool { return s.gather[leader]()[age+"{report}"] < math.Inf(1) })
	if got := s.gather[other]()["job_runs_total{report,done}"]; got != 0 {
		s.t.Errorf("a node counts %v runs of another", got)
	}
	s.moves(leader, func() {
		_ = s.Nodes[leader].Job("report").Once(s.t.Context(), "2", func(ctx context.Context, _ conclave.Fence) error {
			grouptest.Must(s.t, s.Nodes[other].CloseSession(s.t.Context(), grouptest.OwnSession(s.t, s.Nodes[leader])))
			<-ctx.Done()
			return nil
		})
	}, "job_runs_total{report,lost}")
	s.moves(leader, func() {}, age+"{report}") // it goes on
	if got := s.gather[leader]()[age+"{never}"]; got != math.Inf(1) {
		s.t.Errorf("%s{never} is %v", age, got)
	}
}
