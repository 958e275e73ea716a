package virtualtime

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// periods is a schedule: in each period every member that runs calls Once with the number of the period as the key. Those of odd
// periods run once at most.
type periods struct {
	*grouptest.Group
	random *rand.Rand
	calls  sync.WaitGroup

	mu   sync.Mutex
	keys []periodKey // guarded by mu
}

// periodKey is what became of a key.
type periodKey struct {
	began    chan int                // gets the member of the first run
	ending   chan struct{}           // closed when the function of the first run is about to return
	took     time.Duration           // by the function
	calling  map[int]bool            // members whose process is alive and calls Once
	killed   int                     // processes that called Once
	running  map[int]bool            // members whose process is alive and runs the function
	ended    map[conclave.Fence]bool // runs whose function has returned nil
	recorded int                     // calls of Once that returned nil
	runs     int
	result   conclave.JobResult // as the group has recorded it
}

const period = 3 * time.Second

var errPeriod = errors.New("the function has failed")

func newPeriods(g *grouptest.Group, n int) *periods {
	p := &periods{Group: g, random: rand.New(rand.NewPCG(1, 2)), keys: make([]periodKey, n)}
	for k := range p.keys {
		p.keys[k] = periodKey{
			began: make(chan int, 1), ending: make(chan struct{}), took: time.Duration(p.random.Int64N(int64(period / 2))),
			calling: make(map[int]bool), running: make(map[int]bool), ended: make(map[conclave.Fence]bool),
		}
	}
	return p
}

func (p *periods) job(member, k int) *conclave.Job {
	if k%2 == 1 {
		return p.Nodes[member].Job("once", conclave.AtMostOnce())
	}
	return p.Nodes[member].Job("until done")
}

// call has a member call Once for a period.
func (p *periods) call(member, k int) {
	j, fails := p.job(member, k), p.random.IntN(8) == 0
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys[k].calling[member] = true
	p.calls.Go(func() {
		err := j.Once(p.T.Context(), strconv.Itoa(k), func(ctx context.Context, f conclave.Fence) error { return p.run(ctx, member, k, f, fails) })
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.keys[k].calling, member)
		if err == nil {
			p.keys[k].recorded++
		}
	})
}

// run is the function of a period.
func (p *periods) run(ctx context.Context, member, k int, f conclave.Fence, fails bool) error {
	p.mu.Lock()
	key := &p.keys[k]
	first := key.runs == 0
	if key.runs++; len(key.running) > 0 {
		p.T.Errorf("key %d runs on member %d, while it runs on %v", k, member, key.running)
	}
	key.running[member] = true
	p.mu.Unlock()
	if first {
		key.began <- member
		defer close(key.ending)
	}
	select {
	case <-time.After(key.took):
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(key.running, member)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case fails:
		return errPeriod
	}
	key.ended[f] = true
	return nil
}

// kill kills the member that runs the key, or the leader: while the function runs, or as it returns.
func (p *periods) kill(k int) {
	key := &p.keys[k]
	victim := <-key.began
	if k%2 == 0 && p.random.IntN(2) == 0 {
		victim = p.Leader()
	}
	if p.random.IntN(2) == 0 {
		<-key.ending
	} else {
		pass(time.Duration(p.random.Int64N(int64(key.took) + 1)))
	}
	p.mu.Lock()
	for i := range p.keys {
		if p.keys[i].calling[victim] {
			p.keys[i].killed++
		}
		delete(p.keys[i].running, victim) // the process is dead, though its function is not
	}
	p.mu.Unlock()
	p.Kill(victim)
	down := period / 10
	if p.random.IntN(10) == 0 {
		down = ttl + period // its session ends by time
	}
	pass(down)
	p.Start(victim)
}

// read reads what the group has recorded of the periods from one to another, of which each has ended.
func (p *periods) read(from, to int) {
	p.T.Helper()
	for k := from; k < to; k++ {
		var found *conclave.JobRun
		grouptest.AwaitJob(p.T, p.job(0, k), func(i conclave.JobInfo) bool {
			found = nil
			for _, r := range i.Runs {
				if r.Key == strconv.Itoa(k) {
					found = &r
				}
			}
			return found != nil && found.Result != conclave.JobRunning
		})
		p.mu.Lock()
		p.keys[k].result = found.Result
		if found.Result == conclave.JobDone && !p.keys[k].ended[found.Fence] {
			p.T.Errorf("key %d: %+v, whose function did not reach its end", k, *found)
		}
		p.mu.Unlock()
	}
}

// wantOnce checks that each key ran to its end exactly once, or is recorded as failed or lost.
func (p *periods) wantOnce() {
	p.T.Helper()
	results, again := make(map[conclave.JobResult]int), 0
	for k := range p.keys {
		key := &p.keys[k]
		results[key.result]++
		again += key.runs - 1
		// A process that is killed as its function returns does not learn whether the group has recorded that.
		done, unrecorded := key.result == conclave.JobDone, len(key.ended)-key.recorded
		if key.recorded > 1 || key.recorded == 1 && !done || done && len(key.ended) == 0 || unrecorded > key.killed || k%2 == 1 && key.runs > 1 {
			p.T.Errorf("key %d is %v: %d calls returned that it is done, of %d runs %d to their end", k, key.result, key.recorded, key.runs, len(key.ended))
		}
	}
	done, failed, lost := results[conclave.JobDone], results[conclave.JobFailed], results[conclave.JobLost]
	text := fmt.Sprintf("%d periods: %d done, %d recorded as failed, %d as lost; %d further runs", len(p.keys), done, failed, lost, again)
	// Few periods may have none that failed, and fewer none that was lost.
	if done+failed+lost != len(p.keys) || (lost == 0 || again == 0) && !testing.Short() || failed == 0 && *long {
		p.T.Error(text)
	}
	p.T.Log(text)
}

// Three members run a key once in each period, by calls of Once on each, while in every third period a process is killed.
func TestJob_OnceWithKills(t *testing.T) {
	n := 30
	switch {
	case *long:
		n = 1000
	case testing.Short():
		n = 9
	}
	const late, batch = 20, 10 // periods: a run of a killed process ends after the TTL
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		p, began := newPeriods(g, n), time.Now()
		for k := range n {
			pass(time.Until(began.Add(time.Duration(k) * period)))
			for _, i := range p.Running() {
				p.call(i, k)
			}
			if k%3 == 2 {
				p.kill(k)
			}
			if k%batch == 0 && k >= late {
				p.read(k-late, k-late+batch)
			}
		}
		p.calls.Wait()
		p.read(max(0, (n-1)/batch*batch-late+batch), n)
		p.wantOnce()
	})
}
