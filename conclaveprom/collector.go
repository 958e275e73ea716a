// Package conclaveprom makes a Prometheus collector of a node:
//
//	prometheus.MustRegister(conclaveprom.New(node))
//
// No metric has a label for a name of a lock, so their number does not grow with use. The
// group's members are labels of few metrics, and so are the jobs that Config.MeasuredJobs and MeasuredGroupJobs name. Further groups have metrics of their own,
// conclave_group_…, with the label group: the first 64 groups by name, and "other" for the rest together, except for measured jobs, whose label is always their group's name. docs/METRICS.md lists all metrics, and explains
// the dashboard and the alert rules beside it.
package conclaveprom

import (
	"math"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/conclave-go/conclave"
)

// Collector collects the metrics of a node. It may be used concurrently. After Close of
// the node it goes on with the counters, and leaves out what the node knew of the group.
type Collector struct {
	node         *conclave.Node
	descriptions map[string]*prometheus.Desc // by name, without the prefix
	ofGroups     map[string]*prometheus.Desc // of the further groups, by the name of the same metric of the default group
	version      string                      // of this module
}

// New returns a collector for the node. To register several nodes in one registry, give
// each a label that no metric has: prometheus.WrapRegistererWith(prometheus.Labels{"node": …}, registry).
func New(node *conclave.Node) *Collector {
	return &Collector{node, describe(), describeFurther(), conclave.Version()}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, all := range []map[string]*prometheus.Desc{c.descriptions, c.ofGroups} {
		for _, d := range all { // order: prometheus sorts
			to <- d
		}
	}
}

// Collect implements prometheus.Collector. It asks neither the group nor the disk, and does
// not block for the node.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	m, s, h := c.node.Metrics(), c.node.Status(), c.node.Health()
	out := sink{c.descriptions, func(name string, v value, labels []string) { to <- v.metric(c.descriptions[name], labels) }}
	out.calls(m)
	out.traffic(m)
	runs := c.node.Err() == nil // what a node that has stopped knew last would hide what the others see
	c.groups(m.Groups, runs, to)
	if runs {
		out.raft(m, s)
		out.state(m)
		out.members(s)
	}
	out.gauge("build_info", 1, c.version, runtime.Version())
	out.gauge("live", truth(h.Live))
	out.gauge("ready", truth(h.Ready))
}

// sink passes on the metrics that have a description.
type sink struct {
	descriptions map[string]*prometheus.Desc
	put          func(name string, v value, labels []string)
}

// value is the value of a series.
type value struct {
	kind      prometheus.ValueType
	number    float64
	histogram *conclave.Histogram // nil: it is a number
}

// metric returns a series as the registry takes it.
func (v value) metric(d *prometheus.Desc, labels []string) prometheus.Metric {
	h := v.histogram
	if h == nil {
		return prometheus.MustNewConstMetric(d, v.kind, v.number, labels...)
	}
	buckets, below := make(map[float64]uint64, len(h.Bounds)), uint64(0)
	for i, bound := range h.Bounds {
		below += h.Counts[i]
		buckets[bound] = below
	}
	return prometheus.MustNewConstHistogram(d, h.Count(), h.Sum, buckets, labels...)
}

func (k sink) pass(name string, v value, labels []string) {
	if k.descriptions[name] != nil {
		k.put(name, v, labels)
	}
}

func (k sink) counter(name string, number float64, labels ...string) {
	k.pass(name, value{kind: prometheus.CounterValue, number: number}, labels)
}

func (k sink) gauge(name string, number float64, labels ...string) {
	k.pass(name, value{kind: prometheus.GaugeValue, number: number}, labels)
}

func (k sink) histogram(name string, h conclave.Histogram, labels ...string) {
	k.pass(name, value{histogram: &h}, labels)
}

func (k sink) calls(m conclave.Metrics) {
	for _, c := range m.Calls {
		kind := c.Kind.String()
		for result := conclave.ResultOK; result <= conclave.ResultRefused; result++ {
			k.counter("calls_total", float64(c.Results[result]), kind, result.String())
		}
		k.histogram("call_duration_seconds", c.Seconds, kind)
	}
	k.gauge("calls_pending", float64(m.CallsPending))
	k.gauge("calls_pending_bytes", float64(m.CallBytesPending))
	k.counter("calls_refused_total", float64(m.CallsRefused))
}

func (k sink) traffic(m conclave.Metrics) {
	k.counter("commands_resent_total", float64(m.CommandsResent))
	k.counter("lingering_grants_total", float64(m.LingeringGrants))
	k.counter("holds_lost_total", float64(m.HoldsLost))
	k.counter("shards_moved_total", float64(m.ShardsMoved))
	k.counter("shards_overdue_total", float64(m.ShardsOverdue))
	k.counter("shard_seconds_without_owner_total", m.ShardSecondsWithoutOwner)
	for _, j := range m.Jobs {
		for _, result := range []conclave.JobResult{conclave.JobDone, conclave.JobFailed, conclave.JobLost} {
			k.counter("job_runs_total", float64(j.Runs[result]), j.Name, result.String())
		}
	}
	k.counter("log_lines_dropped_total", float64(m.LogLinesDropped))
	k.counter("leader_changes_total", float64(m.LeaderChanges))
	k.counter("snapshots_sent_total", float64(m.SnapshotsSent))
	k.counter("snapshot_sent_bytes_total", float64(m.SnapshotBytesSent))
	k.counter("snapshots_installed_total", float64(m.SnapshotsInstalled))
	k.histogram("entry_commands", m.EntryCommands)
	k.histogram("commit_duration_seconds", m.CommitSeconds)
	k.histogram("write_duration_seconds", m.WriteSeconds)
	k.histogram("renewal_margin_seconds", m.RenewalMarginSeconds)
}

func (k sink) raft(m conclave.Metrics, s conclave.Status) {
	k.log(m, s.Term, s.Commit, s.Applied, s.Leader != 0, s.Leader != 0 && s.Leader == s.ID)
	k.gauge("voter", truth(s.Role == conclave.Voter))
	k.gauge("redundancy", float64(s.Redundancy))
	k.gauge("feature_level", float64(s.FeatureLevel))
	k.gauge("disk_bytes", float64(m.DiskBytes))
	k.gauge("disk_free_bytes", float64(m.DiskFree))
	k.gauge("disk_needed_bytes", float64(m.DiskNeeded))
}

func (k sink) log(m conclave.Metrics, term, commit, applied uint64, hasLeader, leads bool) {
	k.gauge("term", float64(term))
	k.gauge("commit_index", float64(commit))
	k.gauge("applied_index", float64(applied))
	k.gauge("has_leader", truth(hasLeader))
	k.gauge("leads", truth(leads))
	k.gauge("stalled_seconds", m.Stalled.Seconds())
	k.gauge("voters", float64(m.Voters))
	k.gauge("group_time_seconds", m.GroupTime.Seconds())
}

func (k sink) state(m conclave.Metrics) {
	k.gauge("node_holds", float64(m.Held))
	k.gauge("node_shards", float64(m.Shards))
	k.gauge("node_sessions", float64(m.Own))
	k.gauge("shards", float64(m.GroupShards))
	k.gauge("shards_without_owner", float64(m.ShardsWithoutOwner))
	for _, j := range m.Jobs {
		switch {
		case j.Succeeded:
			k.gauge("job_last_success_age_seconds", j.SinceSuccess.Seconds(), j.Name)
		case j.Name != "":
			k.gauge("job_last_success_age_seconds", math.Inf(1), j.Name)
		}
	}
	k.gauge("sessions", float64(m.Sessions))
	k.gauge("locks", float64(m.Locks))
	k.gauge("elections", float64(m.Elections))
	k.gauge("semaphores", float64(m.Semaphores))
	k.gauge("waiters", float64(m.Waiters))
	k.gauge("keys", float64(m.Keys))
	k.gauge("checks", float64(m.Checks))
	k.gauge("clients", float64(m.Clients))
	k.gauge("node_clients", float64(m.Connected))
}

// members reports the other members. Only the leader knows how far they are behind.
func (k sink) members(s conclave.Status) {
	for _, member := range s.Members {
		if member.ID == s.ID {
			continue
		}
		id := member.ID.String()
		k.gauge("member_alive", truth(member.Alive), id, member.Name)
		if s.Leader == s.ID {
			k.gauge("member_lag_entries", float64(member.Lag), id, member.Name)
		}
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
