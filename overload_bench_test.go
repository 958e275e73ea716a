package conclave_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// BenchmarkOverload measures what many large writes on one member cost the others: a
// follower's node runs 16 and then 3,000 writers of 128 KiB, while every node renews a
// session of 3 s. It reports the goodput of both loads, the renewals' times at rest and
// under load, and the time of an entry of 760 KiB, the largest write, at rest. A writer that gets ErrBusy waits
// and tries again.
//
//	go test -run '^$' -bench Overload -benchtime 1x .
func BenchmarkOverload(b *testing.B) {
	const phase = 10 * time.Second
	for b.Loop() {
		g := grouptest.Start(b, 3, defaultTimes)
		n := g.Nodes[(g.Leader()+1)%3]
		var sessions []*conclave.Session
		for _, node := range g.Nodes {
			sessions = append(sessions, grouptest.MustSession(b, node, &conclave.SessionConfig{TTL: 3 * time.Second}))
		}
		report := func(name string, times []time.Duration) {
			slices.Sort(times)
			ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
			b.ReportMetric(ms(times[len(times)*99/100]), name+"-p99-ms")
			b.ReportMetric(ms(times[len(times)-1]), name+"-max-ms")
		}
		report("idle", renewals(b, sessions, func() { grouptest.Pass(phase) }))
		report("entry", entries(b, n, 50))
		goodput := make(map[int]float64)
		for _, writers := range []int{16, 3000} {
			w := &overload{node: n}
			report(fmt.Sprint("renewal-", writers), renewals(b, sessions, func() { w.run(b, writers, phase) }))
			goodput[writers] = float64(w.written.Load()) / phase.Seconds() / (1 << 20)
			b.ReportMetric(goodput[writers], fmt.Sprint("MiB/s-", writers))
			b.ReportMetric(float64(w.busy.Load()), fmt.Sprint("busy-", writers))
		}
		b.ReportMetric(goodput[3000]/goodput[16], "goodput-ratio")
		for i, s := range sessions {
			if err := s.Err(); err != nil {
				b.Errorf("member %d has lost its session: %v", i, err)
			}
		}
		g.KillAll()
	}
}

// renewals renews each session again and again while run runs, and returns the times.
func renewals(b *testing.B, sessions []*conclave.Session, run func()) (times []time.Duration) {
	ctx, cancel := context.WithCancel(b.Context())
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, s := range sessions {
		wg.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				if err := s.Renew(b.Context()); err != nil {
					b.Error(err)
					return
				}
				mu.Lock()
				times = append(times, time.Since(began))
				mu.Unlock()
				grouptest.Pass(200 * time.Millisecond)
			}
		})
	}
	run()
	cancel()
	wg.Wait()
	return times
}

// entries returns the times of large writes, each an entry of its own.
func entries(b *testing.B, n *conclave.Node, count int) (times []time.Duration) {
	value := make([]byte, 380<<10)
	for i := range count {
		binary.BigEndian.PutUint64(value, uint64(i)+1)
		began := time.Now()
		if _, err := n.KV().Txn(b.Context(), conclave.OpPut("entry-a", value), conclave.OpPut("entry-b", value)); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(began))
	}
	return times
}

// overload is writers on one node, and what became of their writes.
type overload struct {
	node          *conclave.Node
	written, busy atomic.Int64 // bytes; refusals
}

func (o *overload) run(b *testing.B, writers int, d time.Duration) {
	ctx, cancel := context.WithTimeout(b.Context(), d)
	defer cancel()
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			if err := o.write(ctx, i); err != nil && ctx.Err() == nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
}

func (o *overload) write(ctx context.Context, writer int) error {
	value := make([]byte, 128<<10)
	pause := 100 * time.Millisecond
	for i := uint64(1); ctx.Err() == nil; i++ {
		binary.BigEndian.PutUint64(value, uint64(writer)<<32|i)
		_, err := o.node.KV().Put(ctx, fmt.Sprint("written-", writer%16), value)
		switch {
		case err == nil:
			o.written.Add(int64(len(value)))
			pause = 100 * time.Millisecond
		case errors.Is(err, conclave.ErrBusy):
			o.busy.Add(1)
			grouptest.Pass(pause + rand.N(pause))
			pause = min(2*pause, time.Second)
		default:
			return err
		}
	}
	return nil
}
