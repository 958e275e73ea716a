package conclaveprom

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/conclave-go/conclave"
)

// How the further groups are collected: by the same functions as the default one, into series with the label group.

const (
	maxLabels = 64      // further groups with a label of their own
	other     = "other" // the label of all others together
)

// groups passes on the metrics of the further groups, which are sorted by name.
func (c *Collector) groups(all []conclave.GroupMetrics, runs bool, to chan<- prometheus.Metric) {
	var m merged
	for i, g := range all {
		label := g.Name
		if i >= maxLabels {
			label = other
		}
		k := sink{c.ofGroups, func(name string, v value, labels []string) {
			of := label
			if strings.HasPrefix(name, "job_") && labels[0] != "" { // a measured job: few are, and an alert about one needs its group
				of = g.Name
			}
			m.add(name, v, append([]string{of}, labels...))
		}}
		k.calls(g.Metrics)
		k.traffic(g.Metrics)
		if runs {
			k.log(g.Metrics, g.Term, g.Commit, g.Applied, g.Leader != 0, g.Leads)
			k.state(g.Metrics)
		}
	}
	for _, s := range m.series {
		to <- s.value.metric(c.ofGroups[s.name], s.labels)
	}
}

// merged is series of groups; those of several groups with one label are one series.
type merged struct {
	series []*series
	byKey  map[string]*series
}

type series struct {
	name   string
	labels []string
	value  value
}

func (m *merged) add(name string, v value, labels []string) {
	key := name + "\x00" + strings.Join(labels, "\x00")
	if s := m.byKey[key]; s != nil {
		s.value = merge(name, s.value, v)
		return
	}
	if m.byKey == nil {
		m.byKey = make(map[string]*series)
	}
	s := &series{name, labels, v}
	m.byKey[key] = s
	m.series = append(m.series, s)
}

// merge returns what two groups have together: the sum, but the least where the smaller value is the one to look at, and the largest where
// a sum would mean nothing.
func merge(name string, a, b value) value {
	switch name {
	case "has_leader", "voters":
		a.number = min(a.number, b.number)
	case "stalled_seconds", "term", "commit_index", "applied_index", "group_time_seconds", "job_last_success_age_seconds":
		a.number = max(a.number, b.number)
	default:
		a.number += b.number
	}
	if a.histogram != nil {
		sum := conclave.Histogram{Bounds: a.histogram.Bounds, Counts: slices.Clone(a.histogram.Counts), Sum: a.histogram.Sum + b.histogram.Sum}
		for i, n := range b.histogram.Counts {
			sum.Counts[i] += n
		}
		a.histogram = &sum
	}
	return a
}
