package grouptest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

var errAttempt = errors.New("this attempt fails")

// All processes call Once for a key at the same time: one runs it, and the others find it done.
func TestJob_OnceOverAll(t *testing.T) {
	t.Parallel()
	g := Start(t, 3)
	client := Dial(t, &conclave.ClientConfig{}, g.Nodes...)
	for _, key := range []string{"2026-11-24", "2026-11-25"} {
		var runs, done atomic.Int64
		var calls sync.WaitGroup
		for _, n := range []Access{g.Nodes[0], g.Nodes[1], g.Nodes[2], client} {
			calls.Go(func() {
				err := n.Job("nightly").Once(Bounded(t), key, func(context.Context, conclave.Fence) error {
					runs.Add(1)
					return nil
				})
				switch {
				case errors.Is(err, conclave.ErrJobDone):
					done.Add(1)
				case err != nil:
					t.Error(err)
				}
			})
		}
		calls.Wait()
		if runs.Load() != 1 || done.Load() != 3 {
			t.Errorf("%s: %d runs, and %d calls found it done", key, runs.Load(), done.Load())
		}
	}
}

// jobKey is what has become of a key.
type jobKey struct {
	mu       sync.Mutex
	under    int // guarded by mu; runs under way
	attempts int // guarded by mu
	returned int // guarded by mu; functions that returned nil
	recorded int // guarded by mu; calls that returned nil
}

// work fails in each second attempt, and finds other runs of the key.
func (k *jobKey) work(t *testing.T, rng *rand.Rand) func(context.Context, conclave.Fence) error {
	fails := rng.IntN(2) == 0
	return func(ctx context.Context, _ conclave.Fence) error {
		k.mu.Lock()
		if k.under++; k.under > 1 && ctx.Err() == nil {
			t.Errorf("%d runs of a key at once", k.under)
		}
		if k.returned > 0 {
			t.Error("a key runs that has run to its end")
		}
		k.attempts++
		k.mu.Unlock()
		Pass(time.Duration(rng.IntN(3)) * time.Millisecond)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.under--
		if fails {
			return errAttempt
		}
		k.returned++
		return nil
	}
}

// jobUsers call Once for some keys.
type jobUsers struct {
	t          *testing.T
	keys       []jobKey
	left, done atomic.Int64
}

// runAll calls Once for each key until that is done.
func (u *jobUsers) runAll(ctx context.Context, n Access, rng *rand.Rand) {
	for k := range u.keys {
		for ctx.Err() == nil {
			short, cancel := context.WithTimeout(ctx, 20*time.Second)
			if rng.IntN(5) == 0 {
				cancel()
				short, cancel = context.WithTimeout(ctx, time.Millisecond)
			}
			err := n.Job("nightly").Once(short, fmt.Sprint("run-", k), u.keys[k].work(u.t, rng))
			cancel()
			if errors.Is(err, errAttempt) || errors.Is(err, context.DeadlineExceeded) {
				u.left.Add(1)
				continue
			}
			if err == nil {
				u.keys[k].mu.Lock()
				u.keys[k].recorded++
				u.keys[k].mu.Unlock()
			} else if !errors.Is(err, conclave.ErrJobDone) {
				u.t.Errorf("key %d: %v", k, err)
			}
			u.done.Add(1)
			break
		}
	}
}

// Many processes call Once for ascending keys, on all nodes and at a client, while calls are lost and repeated and leadership
// moves, and some leave while they wait. Each key runs to its end once.
func TestJob_OnceStress(t *testing.T) {
	t.Parallel()
	g := Start(t, 3, FaultyNetwork)
	client := Dial(t, &conclave.ClientConfig{SessionTTL: time.Hour}, g.Nodes...)
	ctx, stop := context.WithCancel(Bounded(t))
	var moving, users sync.WaitGroup
	moving.Go(func() { moveLeadership(ctx, g, 200*time.Millisecond) })
	u := &jobUsers{t: t, keys: make([]jobKey, 40)}
	for i, n := range []Access{g.Nodes[0], g.Nodes[1], g.Nodes[2], client} {
		for j := range 3 {
			users.Go(func() { u.runAll(ctx, n, rand.New(rand.NewPCG(uint64(i), uint64(j)))) })
		}
	}
	users.Wait()
	stop()
	moving.Wait()
	attempts := 0
	for i := range u.keys {
		k := &u.keys[i]
		if k.returned != 1 || k.recorded != 1 {
			t.Errorf("key %d ran to its end %d times, and %d calls said so", i, k.returned, k.recorded)
		}
		attempts += k.attempts
	}
	if want := int64(len(u.keys)) * 12; u.done.Load() != want || attempts < len(u.keys)*5/4 || u.left.Load() < 50 {
		t.Errorf("%d calls of %d, %d attempts, %d left: the test tests too little", u.done.Load(), want, attempts, u.left.Load())
	}
	AwaitJob(t, g.Nodes[0].Job("nightly"), func(i conclave.JobInfo) bool { return i.Running+i.Waiting == 0 }) // what left is withdrawn
	info, err := g.Nodes[0].Job("nightly").Info(Bounded(t))
	if err != nil || len(info.Runs) != len(u.keys) {
		t.Errorf("%d runs, %v", len(info.Runs), err)
	}
	for i, r := range info.Runs {
		if r.Result != conclave.JobDone {
			t.Errorf("run %d: %+v", i, r)
		}
	}
}

// A snapshot skips the entry that decided about a call that waits: that it runs, or that the key has run. The member finds that
// in the state.
func TestJob_SnapshotSkipsDecision(t *testing.T) {
	for name, result := range map[string]error{"granted": errAttempt, "closed": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := Start(t, 3, ShortLog, MemoryNetwork)
			away := (g.Leader() + 1) % 3
			other := g.Nodes[(away+1)%3]
			waits, ran := make(chan error, 1), false
			err := other.Job("nightly").Once(Bounded(t), "a", func(context.Context, conclave.Fence) error {
				go func() {
					waits <- g.Nodes[away].Job("nightly").Once(Bounded(t), "a", func(context.Context, conclave.Fence) error {
						ran = true
						return nil
					})
				}()
				AwaitJob(t, other.Job("nightly"), func(i conclave.JobInfo) bool { return i.Waiting == 1 })
				g.Disconnect(away)
				return result
			})
			if !errors.Is(err, result) {
				t.Error(err)
			}
			Busy(t, other, 300)
			g.Net.Rejoin(away)
			err = <-waits
			g.WantInstalled(away, 1)
			if result == nil {
				WantError(t, err, conclave.ErrJobDone)
			} else {
				Must(t, err)
			}
			if ran != (result != nil) {
				t.Errorf("it ran: %v", ran)
			}
		})
	}
}
