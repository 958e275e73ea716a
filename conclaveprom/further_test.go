package conclaveprom

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/conclave-go/conclave"
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
