package virtualtime

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/wire"
)

func succeed(context.Context, conclave.Fence) error { return nil }

// untilLost is work that ends with its context.
func untilLost(ctx context.Context, _ conclave.Fence) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// started is a call of Once under way.
type started struct {
	began chan time.Time // when f was called
	err   chan error     // what Once returned
}

// once starts a Once, and returns at once.
func once(g *grouptest.Group, j *conclave.Job, key string, f func(context.Context, conclave.Fence) error) started {
	s := started{make(chan time.Time, 1), make(chan error, 1)}
	go func() {
		s.err <- j.Once(g.T.Context(), key, func(ctx context.Context, fence conclave.Fence) error {
			s.began <- time.Now()
			return f(ctx, fence)
		})
	}()
	return s
}

func lastRun(g *grouptest.Group, j *conclave.Job) conclave.JobRun {
	g.T.Helper()
	info, err := j.Info(g.T.Context())
	grouptest.Must(g.T, err)
	if len(info.Runs) == 0 {
		g.T.Fatalf("no runs: %+v", info)
	}
	return info.Runs[0]
}

// running has a run under way on a node that does not lead, under a session with a lock-delay, that only its loss ends. A second
// call waits on another node.
type running struct {
	*grouptest.Group
	leader, holder int
	session        *conclave.Session
	renewed        time.Time
	run            started
	other          *conclave.Job
}

func newRunning(g *grouptest.Group, opts ...conclave.JobOption) *running {
	r := &running{Group: g, leader: g.Leader()}
	r.holder = g.Others(r.leader)[0]
	r.session = grouptest.MustSession(g.T, g.Nodes[r.holder], &conclave.SessionConfig{TTL: ttl, LockDelay: lockDelay, NoChecks: true})
	r.run = once(g, r.session.Job("report"), "a", untilLost)
	<-r.run.began
	r.other = g.Nodes[g.Others(r.leader)[1]].Job("report", opts...)
	grouptest.Must(g.T, r.session.Renew(grouptest.Within(g.T, election)))
	r.renewed = time.Now()
	return r
}

// The process of a run dies. Another one runs the key after the end of the session and its lock-delay, and records that it is done.
func TestJob_HolderKilled(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		r := newRunning(g)
		next := once(g, r.other, "a", succeed)
		g.Kill(r.holder)
		end := r.renewed.Add(ttl + lockDelay)
		wantBetween(g.T, "the next run", <-next.began, end.Add(-heartbeat), end.Add(2*heartbeat))
		grouptest.Must(g.T, <-next.err)
		if run := lastRun(g, r.other); run.Result != conclave.JobDone || run.Attempt != 2 {
			g.T.Errorf("%+v", run)
		}
		<-r.run.err
		g.Start(r.holder)
		grouptest.WantError(g.T, g.Nodes[r.holder].Job("report").Once(g.T.Context(), "a", succeed), conclave.ErrJobDone)
	})
}

// The process of the only attempt dies. A call that waits, and a later one, are refused.
func TestJob_OnlyAttemptKilled(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		r := newRunning(g, conclave.AtMostOnce())
		waits := once(g, r.other, "a", succeed)
		g.Kill(r.holder)
		for _, err := range []error{<-waits.err, r.other.Once(g.T.Context(), "a", succeed)} {
			var done *conclave.JobDoneError
			if !errors.As(err, &done) || done.Run.Result != conclave.JobLost || done.Run.Attempt != 1 {
				g.T.Errorf("got %v", err)
			}
		}
		<-r.run.err
	})
}

// A process that is partitioned learns of the loss by its own clock, before the key runs elsewhere. What it has done meanwhile is not
// recorded.
func TestJob_HolderPartitioned(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		r := newRunning(g)
		next := once(g, r.other, "a", succeed)
		g.Net.Isolate(r.holder)
		err := <-r.run.err
		wantAt(g.T, "the loss", time.Now(), deadlineOf(r.renewed))
		grouptest.WantError(g.T, err, conclave.ErrLockOwnershipLost)
		select {
		case at := <-next.began:
			g.T.Errorf("the next run began at %v, before the loss", at)
		default:
		}
		grouptest.Must(g.T, <-next.err)
		g.Net.Rejoin(r.holder)
	})
}

// A session without TTL outlives its process. The process that attaches it takes the run for lost, and runs the key ahead of all
// that wait, if an attempt is left.
func TestJob_Attached(t *testing.T) {
	for name, attempts := range map[string]int{"left": 2, "used up": 1} {
		t.Run(name, func(t *testing.T) {
			grouptest.InBubble(t, 3, func(g *grouptest.Group) {
				leader := g.Leader()
				first, second := g.Others(leader)[0], g.Others(leader)[1]
				s := grouptest.MustSession(g.T, g.Nodes[first], grouptest.Lasting())
				run := once(g, s.Job("report"), "a", untilLost)
				<-run.began
				waits := once(g, g.Nodes[leader].Job("report"), "a", succeed)
				grouptest.AwaitJob(g.T, g.Nodes[leader].Job("report"), func(i conclave.JobInfo) bool { return i.Waiting == 1 })
				g.Kill(first)
				<-run.err
				pass(2 * time.Minute)
				s = grouptest.MustAttach(g.T, g.Nodes[second], s.ID())
				err := s.Job("report", conclave.Attempts(attempts)).Once(g.T.Context(), "a", succeed)
				if attempts == 2 {
					grouptest.Must(g.T, err)
					grouptest.WantError(g.T, <-waits.err, conclave.ErrJobDone)
				} else {
					grouptest.WantError(g.T, err, conclave.ErrJobDone)
					grouptest.Must(g.T, <-waits.err)
				}
				if run := lastRun(g, g.Nodes[leader].Job("report")); run.Result != conclave.JobDone || run.Attempt != 2 {
					g.T.Errorf("%+v", run)
				}
			})
		})
	}
}

// A key is kept for a time after its last run, whatever the attempts.
func TestJob_Keep(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		j := g.Nodes[0].Job("report", conclave.Keep(time.Minute))
		failed := errors.New("failed")
		fail := func(context.Context, conclave.Fence) error { return failed }
		for range 2 {
			if err := j.Once(g.T.Context(), "b", fail); !errors.Is(err, failed) {
				g.T.Fatal(err)
			}
			pass(50 * time.Second)
		}
		pass(11 * time.Second)
		for _, key := range []string{"b", "a"} { // and what is before it
			var done *conclave.JobDoneError
			if err := j.Once(g.T.Context(), key, succeed); !errors.As(err, &done) || done.Run.Result != conclave.JobForgotten {
				g.T.Errorf("%s: %v", key, err)
			}
		}
		grouptest.Must(g.T, j.Once(g.T.Context(), "c", succeed))
	})
}

// sweepers call Every on each member that runs.
type sweepers struct {
	*grouptest.Group
	every time.Duration
	ctx   context.Context
	calls sync.WaitGroup

	mu      sync.Mutex
	under   int           // guarded by mu; runs under way
	starts  []time.Time   // guarded by mu
	reached chan sweeping // gets each start
}

// sweeping is the start of a run.
type sweeping struct{ number, member int }

func newSweepers(g *grouptest.Group, ctx context.Context, every time.Duration) *sweepers {
	return &sweepers{Group: g, every: every, ctx: ctx, reached: make(chan sweeping, 1000)}
}

func (s *sweepers) sweep(i int) {
	j := s.Nodes[i].Job("sweep")
	s.calls.Go(func() {
		err := j.Every(s.ctx, s.every, func(ctx context.Context, _ conclave.Fence) error { return s.run(ctx, i) })
		if !errors.Is(err, context.Canceled) && !errors.Is(err, conclave.ErrClosed) {
			s.T.Errorf("member %d: %v", i, err)
		}
	})
}

// run takes a part of the period.
func (s *sweepers) run(ctx context.Context, member int) error {
	s.mu.Lock()
	if s.under++; s.under > 1 {
		s.T.Errorf("%d runs at once", s.under)
	}
	s.starts = append(s.starts, time.Now())
	n := len(s.starts)
	s.mu.Unlock()
	s.reached <- sweeping{n, member}
	select {
	case <-time.After(s.every / 10):
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.under--
	return nil
}

// wantApart wants the period between any two starts, but for how late a process may learn of one.
func (s *sweepers) wantApart(late time.Duration) {
	s.T.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 1; i < len(s.starts); i++ {
		if gap := s.starts[i].Sub(s.starts[i-1]); gap < s.every-late {
			s.T.Errorf("run %d started %v after the one before, want %v", i+1, gap, s.every)
		}
	}
	info, err := s.Nodes[s.Running()[0]].Job("sweep").Info(s.T.Context())
	grouptest.Must(s.T, err)
	for i := 1; i < len(info.Runs); i++ {
		later, run := info.Runs[i-1], info.Runs[i]
		if gap := run.Started - later.Started; gap < s.every || later.Period != run.Period+1 {
			s.T.Errorf("run %d started %v of group time after run %d, want %v", later.Period, gap, run.Period, s.every)
		}
	}
}

// Three members run a job once in each period, while in every third one the leader or the member that runs it is killed.
func TestJob_EveryWithKills(t *testing.T) {
	skipIfShort(t)
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		ctx, cancel := context.WithCancel(g.T.Context())
		s := newSweepers(g, ctx, 20*time.Second)
		for i := range g.Nodes {
			s.sweep(i)
		}
		for at := range s.reached {
			if at.number >= 70 {
				break
			}
			if at.number%3 == 0 {
				victim := at.member
				if at.number%2 == 0 {
					victim = g.Leader()
				}
				g.Kill(victim)
				pass(time.Duration(at.number) * time.Second / 9)
				g.Start(victim)
				s.sweep(victim)
			}
		}
		cancel()
		s.calls.Wait()
		s.wantApart(4 * election)
		grouptest.AwaitJob(g.T, g.Nodes[0].Job("sweep"), func(i conclave.JobInfo) bool { return i.Running+i.Waiting == 0 })
		info, err := g.Nodes[0].Job("sweep").Info(g.T.Context())
		if err != nil || len(info.Runs) != 64 {
			g.T.Errorf("%d runs, %v", len(info.Runs), err)
		}
		lost := 0
		for _, r := range info.Runs {
			if r.Result == conclave.JobLost {
				lost++
			}
		}
		if lost == 0 {
			g.T.Error("no run was lost: the test tests too little")
		}
	})
}

// The next run comes as soon as the period has passed, and one that took longer than that delays it only until its end.
func TestJob_EveryIsInTime(t *testing.T) {
	skipIfShort(t)
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		ctx, cancel := context.WithCancel(g.T.Context())
		var starts []time.Time
		err := g.Nodes[g.Others(g.Leader())[0]].Job("sweep").Every(ctx, time.Minute, func(context.Context, conclave.Fence) error {
			switch starts = append(starts, time.Now()); len(starts) {
			case 2:
				if run := lastRun(g, g.Nodes[0].Job("sweep")); run.Due < 59*time.Second || run.Due > time.Minute {
					g.T.Errorf("%+v", run)
				}
				pass(150 * time.Second)
			case 4:
				cancel()
			}
			return nil
		})
		grouptest.WantError(g.T, err, context.Canceled)
		for i, period := range []time.Duration{time.Minute, 150 * time.Second, time.Minute} {
			wantBetween(g.T, "the next run", starts[i+1], starts[i].Add(period-heartbeat), starts[i].Add(period+2*heartbeat))
		}
	})
}

// A process dies in its run: the next one comes when its session has ended, and not before its period.
func TestJob_EveryHolderKilled(t *testing.T) {
	skipIfShort(t)
	for name, every := range map[string]time.Duration{"short period": time.Second, "long period": 5 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			grouptest.InBubble(t, 3, func(g *grouptest.Group) {
				ctx, cancel := context.WithCancel(g.T.Context())
				holder, other := g.Others(g.Leader())[0], g.Nodes[g.Others(g.Leader())[1]]
				began, ended := make(chan time.Time, 2), make(chan error, 2)
				go func() {
					ended <- g.Nodes[holder].Job("sweep").Every(ctx, every, func(ctx context.Context, f conclave.Fence) error {
						began <- time.Now()
						return untilLost(ctx, f)
					})
				}()
				first := <-began
				go func() {
					ended <- other.Job("sweep").Every(ctx, every, func(context.Context, conclave.Fence) error {
						began <- time.Now()
						cancel()
						return nil
					})
				}()
				grouptest.AwaitJob(g.T, other.Job("sweep"), func(i conclave.JobInfo) bool { return i.Waiting == 1 })
				killed := time.Now()
				g.Kill(holder)
				next := <-began
				if every > ttl {
					wantBetween(g.T, "the next run", next, first.Add(every-heartbeat), first.Add(every+2*heartbeat))
				} else {
					wantBetween(g.T, "the next run", next, killed, killed.Add(ttl+2*heartbeat))
				}
				<-ended
				<-ended
				info, err := other.Job("sweep").Info(g.T.Context())
				if err != nil || len(info.Runs) != 2 || info.Runs[0].Result != conclave.JobDone || info.Runs[1].Result != conclave.JobLost {
					g.T.Errorf("%+v, %v", info, err)
				}
			})
		})
	}
}

// While a member runs a build that does not know jobs, nothing is run, and nothing deleted while one does not know that. After the
// upgrade it is.
func TestUpgrade_Job(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		grouptest.WantError(g.T, g.Nodes[0].Job("report").Once(g.T.Context(), "a", succeed), conclave.ErrUpgradeRequired)
		grouptest.WantError(g.T, g.Nodes[0].Job("report").Every(g.T.Context(), time.Second, succeed), conclave.ErrUpgradeRequired)
		raise := func(level uint32) {
			for i := range g.Nodes {
				g.Kill(i)
				g.Seams[i].FeatureLevel = level
				g.Start(i)
			}
			pass(time.Minute) // the leader raises the level
			wantLevel(g, 0, level)
		}
		raise(wire.LevelJobs)
		grouptest.Must(g.T, g.Nodes[0].Job("report").Once(g.T.Context(), "a", succeed))
		grouptest.WantError(g.T, g.Nodes[0].Job("report").Delete(g.T.Context()), conclave.ErrUpgradeRequired)
		raise(wire.LevelDeleteJob)
		grouptest.Must(g.T, g.Nodes[0].Job("report").Delete(g.T.Context()))
		grouptest.Must(g.T, g.Nodes[0].Job("report").Once(g.T.Context(), "a", succeed))
	}, grouptest.Edit(func(_ int, _ *conclave.Config, s *cluster.Seams) { s.FeatureLevel = wire.LevelSets }))
}
