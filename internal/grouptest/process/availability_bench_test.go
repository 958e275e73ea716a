package process

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// BenchmarkAvailability measures for how long no lock is granted when members fail or are
// restarted: processes with directories on one disk and the default timings, connected on
// loopback, all of which lock and unlock six locks all the time.
//
//   - LeaderKilled: the leader is killed by kill -9, twenty times; a member that remains is
//     asked for a free lock at once. From the kill to the grant.
//   - ElectionLeaderKilled: the leader of an election, which leads the group too, is killed by kill -9, twenty times. Its
//     session depends on the check process; there is no other load. From the kill to the election of a waiting candidate.
//   - Transfer: leadership is transferred twenty times. The longest time without a grant.
//   - RollingRestart: each member is closed and started again with its directory. The longest
//     time without a grant.
func BenchmarkAvailability(b *testing.B) {
	b.Run("LeaderKilled", func(b *testing.B) { repeated(b, (*availability).failover) })
	b.Run("ElectionLeaderKilled", succession)
	b.Run("Transfer", func(b *testing.B) { repeated(b, (*availability).transfer) })
	for _, n := range []int{3, 5} {
		b.Run(fmt.Sprintf("RollingRestart/members=%d", n), func(b *testing.B) {
			longest := time.Duration(0)
			for range b.N {
				a := available(b, n)
				a.measureGap() // what is normal
				for i := range n {
					a.members[i].stopGracefully("close")
					a.restart(i)
					a.load(i)
					a.auditor.awaitProgress(a.ctx, a.members)
				}
				longest = max(longest, a.measureGap())
				a.end()
			}
			b.ReportMetric(milliseconds(longest), "max-ms")
		})
	}
}

// availability is a group under load.
type availability struct {
	*processGroup
	auditor *auditor
	ctx     context.Context
	loaded  context.Context
	stop    context.CancelFunc
	workers sync.WaitGroup
}

const loadLocks = 6

func available(b *testing.B, members int) *availability {
	a := &availability{auditor: newAuditor(b), ctx: grouptest.Within(b, 10*time.Minute)}
	a.processGroup = processesWith(b, members, memberConfig{TTL: 10 * time.Second, Slow: true})
	a.loaded, a.stop = context.WithCancel(a.ctx)
	for i := range a.members {
		a.load(i)
	}
	a.auditor.awaitProgress(a.ctx, a.members)
	return a
}

func (a *availability) load(i int) {
	for c := range loadLocks {
		a.workers.Go(func() { a.auditor.work(a.loaded, a.members[i], fmt.Sprint("lock-", c)) })
	}
}

func (a *availability) end() {
	a.stop()
	for _, p := range a.members {
		p.kill()
	}
	a.workers.Wait()
}

// measureGap returns the longest time without a grant since the last call.
func (a *availability) measureGap() time.Duration {
	a.auditor.awaitProgress(a.ctx, a.members)
	a.auditor.mu.Lock()
	defer a.auditor.mu.Unlock()
	gap := a.auditor.gap
	a.auditor.gap = 0
	return gap
}

// repeated reports the median and the maximum of twenty measurements.
func repeated(b *testing.B, measure func(*availability) time.Duration) {
	var took []time.Duration
	for range b.N {
		a := available(b, 3)
		for range 20 {
			took = append(took, measure(a))
		}
		a.end()
	}
	reportMedian(b, took)
}

// reportMedian reports the median and the maximum.
func reportMedian(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(milliseconds(took[len(took)/2]), "median-ms")
	b.ReportMetric(milliseconds(took[len(took)-1]), "max-ms")
}

func (a *availability) failover() time.Duration {
	a.auditor.awaitProgress(a.ctx, a.members)
	leader := a.leader()
	survivor := a.members[(leader+1)%3]
	start := time.Now()
	a.members[leader].kill()
	survivor.must("lock", "free")
	took := time.Since(start)
	survivor.must("unlock", "free")
	a.restart(leader)
	a.load(leader)
	return took
}

// succession measures for how long an election has no leader when that is killed.
func succession(b *testing.B) {
	var took []time.Duration
	for range b.N {
		g := processesWith(b, 3, memberConfig{TTL: 10 * time.Second, Slow: true, Checks: []string{conclave.ProcessCheck}})
		for n := range 20 {
			g.awaitAllConnected()
			election, leader := fmt.Sprint("x", n), g.leader()
			if err := <-candidate(g.members[leader], election); err != nil {
				b.Fatal(err)
			}
			elected := candidate(g.members[(leader+1)%3], election)
			g.members[(leader+2)%3].must("lock", "behind the candidate")
			g.members[(leader+2)%3].must("unlock", "behind the candidate")
			start := time.Now()
			g.members[leader].kill()
			if err := <-elected; err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(start))
			g.restart(leader)
		}
		for _, p := range g.members {
			p.kill()
		}
	}
	reportMedian(b, took)
}

func (a *availability) transfer() time.Duration {
	leader := a.leader()
	a.measureGap()
	if _, err := a.members[leader].do(order{Do: "transfer"}); err != nil {
		a.t.Fatal(err)
	}
	return a.measureGap()
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
