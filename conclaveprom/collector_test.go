package conclaveprom

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/wire"
)

// scene is a group whose metrics a test moves.
type scene struct {
	*grouptest.Group
	t      testing.TB
	losing atomic.Bool // what members forward to the leader is lost
	lost   chan struct{}
	moved  map[string]bool // metrics, by name
	gather []func() map[string]float64
	again  time.Duration // between two polls
}

func newScene(t *testing.T, moved map[string]bool) *scene {
	s := &scene{t: t, lost: make(chan struct{}, 1), moved: moved, again: 5 * time.Millisecond}
	s.Group = grouptest.Start(t, 4, grouptest.MemoryNetwork, grouptest.PoweredDisks, grouptest.ShortLog, grouptest.LongElections,
		grouptest.Edit(func(i int, c *conclave.Config, seams *cluster.Seams) {
			c.Voters, c.MeasuredJobs = 3, []string{"report", "never"}
			if i == 0 {
				c.Logger = slog.New(brokenHandler{slog.NewTextHandler(io.Discard, nil)})
			}
			seams.Effects = s.loseForwards
		}))
	s.measure()
	return s
}

// measure has each node measured.
func (s *scene) measure() {
	for _, node := range s.Nodes {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(New(node))
		s.gather = append(s.gather, func() map[string]float64 {
			families, err := registry.Gather()
			if err != nil {
				s.t.Errorf("gather: %v", err)
			}
			return values(families)
		})
	}
}

// loseForwards runs on the loop of each member.
func (s *scene) loseForwards(e *cluster.Effects) {
	if len(e.Forwards) == 0 || !s.losing.Load() {
		return
	}
	e.Forwards = nil
	select {
	case s.lost <- struct{}{}:
	default:
	}
}

// values returns the value of each series; of a histogram, how many values it has.
func values(families []*dto.MetricFamily) map[string]float64 {
	all := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				if l.GetName() != "name" {
					labels = append(labels, l.GetValue())
				}
			}
			series := strings.TrimPrefix(f.GetName(), "conclave_")
			if len(labels) > 0 {
				series += "{" + strings.Join(labels, ",") + "}"
			}
			all[series] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

// moves requires that act changes each of the series of a node; "-" before a name: down.
func (s *scene) moves(node int, act func(), series ...string) {
	s.t.Helper()
	before := s.gather[node]()
	act()
	s.await(func() (missing string) {
		now := s.gather[node]()
		for _, name := range series {
			name, down := strings.CutPrefix(name, "-")
			if was, is := before[name], now[name]; down && is >= was || !down && is <= was {
				missing += fmt.Sprintf("%s was %v and is %v; ", name, was, is)
			}
		}
		return missing
	})
	for _, name := range series {
		name, _, _ = strings.Cut(strings.TrimPrefix(name, "-"), "{")
		s.moved[name] = true
	}
}

// becomes requires that a metric comes to what ok asks for.
func (s *scene) becomes(name string, ok func() bool) {
	s.t.Helper()
	s.await(func() string {
		if ok() {
			return ""
		}
		return name + " does not become what it should be"
	})
	s.moved[name] = true
}

// await polls until nothing is missing: a collector gives no signal, and what a group has
// is counted at each heartbeat.
func (s *scene) await(missing func() string) {
	s.t.Helper()
	deadline, again := time.After(5*time.Minute), time.NewTicker(s.again)
	defer again.Stop()
	for missing() != "" {
		select {
		case <-again.C:
		case <-deadline:
			s.t.Fatal(missing())
		}
	}
}

// Each metric moves with what it counts, and only if that happens on this node or in the
// group.
func TestCollector_EachMetricMoves(t *testing.T) {
	moved := make(map[string]bool)
	partition(t, moved)
	s := newScene(t, moved)
	s.locks()
	s.semaphoresAndElections()
	s.keys()
	s.shards()
	s.shardsWithoutOwner()
	s.jobs()
	s.losses()
	s.clients()
	s.leadership()
	s.stall()
	s.resend()
	s.snapshot()
	s.end()
	for name := range describe() {
		if !moved[name] {
			t.Errorf("nothing has moved %s", name)
		}
	}
}

func (s *scene) locks() {
	leader := s.Leader()
	other := s.Others(leader)[0]
	lock := s.Nodes[leader].FencedLock("a")
	s.moves(leader, func() { grouptest.MustLock(s.t, lock) }, "calls_total{lock,ok}", "call_duration_seconds{lock}",
		"node_holds", "node_sessions", "sessions", "locks", "entry_commands", "commit_duration_seconds", "write_duration_seconds",
		"commit_index", "applied_index", "group_time_seconds")
	taken := s.Nodes[other].FencedLock("a")
	s.moves(other, func() { _, _ = taken.TryLock(s.t.Context()) }, "calls_total{try_lock,refused}", "call_duration_seconds{try_lock}")
	ctx, cancel := context.WithCancel(s.t.Context())
	s.moves(leader, func() { go taken.Lock(ctx) }, "waiters")
	s.moves(other, cancel, "calls_total{lock,canceled}")
	s.moves(leader, func() { grouptest.MustUnlock(s.t, lock) }, "calls_total{unlock,ok}", "-node_holds", "-locks")
	s.moves(leader, func() { _, _ = s.Nodes[leader].FencedLock("").Lock(s.t.Context()) }, "calls_total{lock,invalid}")
	s.AwaitLingering()
	s.moves(leader, func() {
		lingering := s.Nodes[leader].FencedLock("b", conclave.Linger(time.Second))
		grouptest.MustLock(s.t, lingering)
		grouptest.MustUnlock(s.t, lingering)
	}, "lingering_grants_total")
	session := grouptest.MustSession(s.t, s.Nodes[leader], nil)
	s.moves(leader, func() { grouptest.Must(s.t, session.Renew(s.t.Context())) }, "renewal_margin_seconds")
	grouptest.Must(s.t, session.Close(s.t.Context()))
}

func (s *scene) semaphoresAndElections() {
	n := s.Nodes[s.Leader()]
	var p *conclave.Permit
	s.moves(0, func() {
		p = grouptest.MustAcquire(s.t, n.Semaphore("s", 1), 1)
	}, "semaphores")
	s.moves(s.Leader(), func() {
		_, _ = n.Semaphore("s", 1).TryAcquire(s.t.Context(), 1)
		grouptest.Must(s.t, p.Release(s.t.Context()))
		grouptest.MustAcquire(s.t, n.Semaphore("t", 1), 1)
	}, "calls_total{acquire,ok}", "calls_total{try_acquire,refused}", "calls_total{release,ok}")
	e := n.Election("e")
	s.moves(s.Leader(), func() { grouptest.MustCampaign(s.t, e, "me") }, "calls_total{campaign,ok}", "elections")
	s.moves(s.Leader(), func() { grouptest.Must(s.t, e.Resign(s.t.Context())) }, "calls_total{resign,ok}", "-elections")
	s.moves(s.Leader(), func() { grouptest.MustCheck(s.t, n, "check", 0) }, "checks")
}

func (s *scene) keys() {
	kv := s.Nodes[0].KV()
	s.moves(0, func() { grouptest.MustPut(s.t, kv, "k", "v") }, "calls_total{write,ok}", "keys")
	s.moves(0, func() { grouptest.MustGet(s.t, kv, "k") }, "calls_total{read,ok}", "call_duration_seconds{read}")
}

func (s *scene) clients() {
	leader := s.Leader()
	other := s.Others(leader)[0]
	var c *conclave.Client
	s.moves(leader, func() {
		c = grouptest.Dial(s.t, &conclave.ClientConfig{Dial: s.Net.Dialer(other)}, s.Nodes[leader])
	}, "clients", "node_clients")
	if got := s.gather[other]()["node_clients"]; got != 0 {
		s.t.Errorf("%v clients are connected to another node", got)
	}
	s.moves(leader, func() { grouptest.Must(s.t, c.Close(s.t.Context())) }, "-clients", "-node_clients")
}

// brokenHandler takes no line.
type brokenHandler struct{ slog.Handler }

func (brokenHandler) Handle(context.Context, slog.Record) error { panic("a bug") }

// losses ends a session of a node by another one. Its logger does not take the lines about it.
func (s *scene) losses() {
	lock := s.Nodes[0].FencedLock("lost")
	grouptest.MustLock(s.t, lock)
	s.moves(0, func() {
		grouptest.Must(s.t, s.Nodes[1].CloseSession(s.t.Context(), grouptest.OwnSession(s.t, s.Nodes[0])))
		<-lock.Lost()
	}, "holds_lost_total", "log_lines_dropped_total")
	s.moves(0, func() { _ = lock.Unlock(s.t.Context()) }, "calls_total{unlock,lost}")
}

func (s *scene) leadership() {
	leader := s.Leader()
	standby := slices.IndexFunc(s.Nodes, func(n *conclave.Node) bool { return n.Status().Role == conclave.Standby })
	next := slices.IndexFunc(s.All(), func(i int) bool { return i != leader && i != standby })
	if of, standbys := s.gather[leader](), s.gather[standby](); of["voter"] != 1 || standbys["voter"] != 0 {
		s.t.Errorf("voter is %v on a voter and %v on a standby", of["voter"], standbys["voter"])
	}
	s.moved["voter"] = true
	s.becomes("feature_level", func() bool { return s.gather[standby]()["feature_level"] == wire.FeatureLevel })
	s.becomes("build_info", func() bool {
		return s.gather[standby]()[fmt.Sprintf("build_info{%s,%s}", runtime.Version(), conclave.Version())] == 1
	})
	s.becomes("voters", func() bool { return s.gather[standby]()["voters"] == 3 })
	s.moves(next, func() {
		s.MustTransfer(s.Nodes[leader], next)
	}, "leads", "leader_changes_total", "term")
	if s.gather[leader]()["leads"] != 0 {
		s.t.Error("the former leader still leads")
	}
}

func (s *scene) end() {
	disk := s.gather[0]()
	if used, free, needed := disk["disk_bytes"], disk["disk_free_bytes"], disk["disk_needed_bytes"]; used < 1000 || free != grouptest.PoweredBytes || needed < 1000 {
		s.t.Errorf("%v bytes on the disk, %v free, %v needed", used, free, needed)
	}
	s.moved["disk_bytes"], s.moved["disk_free_bytes"], s.moved["disk_needed_bytes"] = true, true, true
	s.moves(0, func() {
		n := s.Nodes[0]
		s.Close(0)
		_, _ = n.FencedLock("a").Lock(s.t.Context())
	}, "calls_total{lock,closed}", "-live")
	if _, known := s.gather[0]()["redundancy"]; known {
		s.t.Error("a node that has stopped reports the redundancy that it knew last")
	}
	for _, name := range slices.Sorted(maps.Keys(s.gather[0]())) {
		if strings.Contains(name, "lock-") {
			s.t.Errorf("%s has a lock's name", name)
		}
	}
}

func TestCollector_Lint(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(New(grouptest.Alone(t)))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

// A node that stops goes on to report what it has counted, so that the losses which its end
// brings are seen.
func TestCollector_StoppedNodeKeepsCounters(t *testing.T) {
	g := grouptest.Start(t, 3)
	leader := g.Leader()
	removed := g.Others(leader)[0]
	n := g.Nodes[removed]
	grouptest.MustLock(t, n.FencedLock("x"))
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(New(n))
	counters := func() (names []string) {
		families, err := registry.Gather()
		grouptest.Must(t, err)
		for _, f := range families {
			if f.GetType() != dto.MetricType_GAUGE {
				names = append(names, f.GetName())
			}
		}
		return names
	}
	before := counters()
	grouptest.Must(t, g.Nodes[leader].RemoveMember(t.Context(), g.ID(removed)))
	<-n.Done()
	if after := counters(); !slices.Equal(before, after) {
		t.Errorf("%q; before its end %q", after, before)
	}
	if lost := n.Metrics().HoldsLost; lost != 1 {
		t.Errorf("%d holds lost", lost)
	}
}
