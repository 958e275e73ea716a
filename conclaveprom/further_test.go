package conclaveprom

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// furtherOnly collects what a collector has of these groups, by series.
type furtherOnly struct {
	*Collector
	groups []conclave.GroupMetrics
}

func (f furtherOnly) Collect(to chan<- prometheus.Metric) { f.Collector.groups(f.groups, true, to) }

func gatherFurther(t *testing.T, groups []conclave.GroupMetrics) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(furtherOnly{&Collector{descriptions: describe(), ofGroups: describeFurther()}, groups})
	families, err := registry.Gather()
	grouptest.Must(t, err)
	return values(families)
}

// However many groups there are, the first 64 by name have a label each, and the others share one, also with a group of that name.
func TestCollector_FurtherGroupsAreBounded(t *testing.T) {
	var groups []conclave.GroupMetrics
	add := func(name string, leader conclave.MemberID) {
		g := conclave.GroupMetrics{Name: name, Leader: leader, Term: uint64(len(groups) + 1)}
		g.Locks, g.HoldsLost, g.Stalled = 2, 3, time.Duration(len(groups))*time.Second
		g.CommitSeconds = conclave.Histogram{Bounds: []float64{1}, Counts: []uint64{5, 1}, Sum: 4}
		groups = append(groups, g)
	}
	for i := range 63 {
		add(fmt.Sprintf("g%02d", i), 1)
	}
	few := len(gatherFurther(t, groups))
	add("other", 1)
	if got := gatherFurther(t, groups); len(got) != few/63*64 || got["group_locks{other}"] != 2 {
		t.Errorf("%d series, %v locks", len(got), got["group_locks{other}"])
	}
	add("p", 0)
	add("q", 1)
	got := gatherFurther(t, groups)
	for series, want := range map[string]float64{
		"group_locks{other}": 6, "group_holds_lost_total{other}": 9, "group_commit_duration_seconds{other}": 18, "group_has_leader{other}": 0,
		"group_stalled_seconds{other}": 65, "group_term{other}": 66, "group_locks{g00}": 2, "group_has_leader{g62}": 1,
	} {
		if got[series] != want {
			t.Errorf("%s is %v, want %v", series, got[series], want)
		}
	}
	if len(got) != few/63*64 {
		t.Errorf("%d series, want those of 64 labels", len(got))
	}
}

// A measured job has the label of its group, also where the group has none of its own: of two groups with the label other, each has its own jobs.
func TestCollector_MeasuredJobsOfFurtherGroups(t *testing.T) {
	runs := func(done uint64) map[conclave.JobResult]uint64 {
		return map[conclave.JobResult]uint64{conclave.JobDone: done, conclave.JobFailed: 0, conclave.JobLost: 0}
	}
	var groups []conclave.GroupMetrics
	for i := range maxLabels + 2 {
		g := conclave.GroupMetrics{Name: fmt.Sprintf("g%02d", i)}
		g.Jobs = []conclave.JobMetrics{{Name: "report", Runs: runs(uint64(i)), Succeeded: i != 65, SinceSuccess: time.Duration(i) * time.Second}, {Runs: runs(1)}}
		groups = append(groups, g)
	}
	got := gatherFurther(t, groups)
	for series, want := range map[string]float64{
		"group_job_runs_total{g01,report,done}": 1, "group_job_runs_total{g64,report,done}": 64, "group_job_runs_total{g65,report,done}": 65,
		"group_job_runs_total{g01,,done}": 1, "group_job_runs_total{other,,done}": 2, "group_job_last_success_age_seconds{g01,report}": 1,
		"group_job_last_success_age_seconds{g64,report}": 64, "group_job_last_success_age_seconds{g65,report}": math.Inf(1),
	} {
		if is, ok := got[series]; !ok || is != want {
			t.Errorf("%s is %v, want %v", series, is, want)
		}
	}
}

// Jobs are measured once there is a group of the name that Config.MeasuredGroupJobs has, on nodes that run none of them too. Those of a later group of that name
// begin again: no node reports a success of the deleted one.
func TestCollector_MeasuredJobsOfGroupCreatedAgain(t *testing.T) {
	g := grouptest.Start(t, 3, grouptest.MemoryNetwork, grouptest.Edit(func(_ int, c *conclave.Config, _ *cluster.Seams) {
		c.MeasuredGroupJobs = map[string][]string{"tenant": {"report", "never"}, "nowhere": {"report"}}
	}))
	s := &scene{Group: g, t: t, moved: make(map[string]bool), again: 5 * time.Millisecond}
	for _, n := range g.Nodes {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(New(n))
		s.gather = append(s.gather, func() map[string]float64 {
			families, err := registry.Gather()
			grouptest.Must(t, err)
			return values(families)
		})
	}
	const age, runs = "group_job_last_success_age_seconds{tenant,report}", "group_job_runs_total{tenant,report,done}"
	n := g.Nodes[0]
	for range 2 {
		if _, known := s.gather[0]()[age]; known {
			t.Error("series without a group")
		}
		tenant, err := n.CreateGroup(t.Context(), "tenant", conclave.GroupConfig{})
		grouptest.Must(t, err)
		for i := range g.Nodes {
			s.becomes(age, func() bool { is, known := s.gather[i]()[age]; return known && is == math.Inf(1) })
		}
		grouptest.Must(t, tenant.Job("report").Once(t.Context(), "1", func(context.Context, conclave.Fence) error { return nil }))
		for i := range g.Nodes {
			s.becomes(age, func() bool { return s.gather[i]()[age] < math.Inf(1) })
			want := map[int]float64{0: 1}[i]
			if got := s.gather[i](); got[runs] != want || got["group_job_last_success_age_seconds{tenant,never}"] != math.Inf(1) {
				t.Errorf("node %d has counted %v runs, want %v; the job without a success: %v", i, got[runs], want, got["group_job_last_success_age_seconds{tenant,never}"])
			}
		}
		grouptest.Must(t, n.DeleteGroup(t.Context(), "tenant", conclave.Force()))
		for i := range g.Nodes {
			s.becomes(age, func() bool { _, known := s.gather[i]()[age]; return !known })
		}
	}
}

// families returns the names of the series that a node has by default, and those of further groups.
func families(all []*dto.MetricFamily) (ofDefault, further []string) {
	for series := range values(all) { // order: sorted below
		if strings.HasPrefix(series, "group_") && !strings.HasPrefix(series, "group_time") {
			further = append(further, series)
		} else {
			ofDefault = append(ofDefault, series)
		}
	}
	slices.Sort(ofDefault)
	return ofDefault, further
}

// A further group adds series, and changes no series of the default group, whose values stay its own.
func TestCollector_FurtherGroupsAddSeries(t *testing.T) {
	n := grouptest.Alone(t)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(New(n))
	gather := func() []*dto.MetricFamily {
		families, err := registry.Gather()
		grouptest.Must(t, err)
		return families
	}
	before, none := families(gather())
	if len(none) > 0 {
		t.Errorf("series %v without a further group", none)
	}
	tenant, err := n.CreateGroup(t.Context(), "tenant", conclave.GroupConfig{})
	grouptest.Must(t, err)
	grouptest.MustLock(t, tenant.FencedLock("x"))
	all := gather()
	if after, further := families(all); !slices.Equal(before, after) || len(further) == 0 {
		t.Errorf("%v\nand before\n%v\nfurther %v", after, before, further)
	}
	for series, want := range map[string]float64{
		"calls_total{lock,ok}": 0, "node_holds": 0, "group_calls_total{lock,tenant,ok}": 1, "group_node_holds{tenant}": 1, "group_has_leader{tenant}": 1,
		"group_leads{tenant}": 1, "group_voters{tenant}": 1,
	} {
		if got, ok := values(all)[series]; !ok || got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
	problems, err := promlint.NewWithMetricFamilies(all).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	grouptest.Must(t, n.Close(t.Context()))
	stopped := values(gather())
	if _, known := stopped["group_has_leader{tenant}"]; known || stopped["group_calls_total{lock,tenant,ok}"] != 1 {
		t.Errorf("a node that has stopped reports %v", slices.Sorted(maps.Keys(stopped)))
	}
}
