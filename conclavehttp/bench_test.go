package conclavehttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/conclavehttp"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// BenchmarkConsole measures what browsers cost the group: 64 callers lock and unlock on the
// leader of a group of three with real files, which holds many more locks, by turns of two
// seconds without and with 100 streams of the leader's console. The streams look at 10
// different listings. Their clients run in the same process, on the same processors.
//
//	go test -run '^$' -bench Console -benchtime 30x -timeout 30m ./conclavehttp
func BenchmarkConsole(b *testing.B) {
	for _, locks := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprintf("locks/%d", locks), func(b *testing.B) { benchmarkConsole(b, locks) })
	}
}

const browsers, callers, turn = 100, 64, 2 * time.Second

func benchmarkConsole(b *testing.B, locks int) {
	g := grouptest.Start(b, 3, grouptest.Edit(func(_ int, c *conclave.Config, _ *cluster.Seams) {
		c.HeartbeatInterval, c.ElectionTimeout, c.SessionTTL = 100*time.Millisecond, time.Second, 10*time.Second
	}))
	n := g.Nodes[g.Leader()]
	hold(b, n, locks)
	console := conclavehttp.Console(n, nil)
	server := httptest.NewServer(console)
	defer server.Close()
	defer console.Close()
	cycles(b, n, turn) // a warm-up
	b.ResetTimer()
	var without, with, shares []float64
	for i := range b.N {
		measure := func() float64 { return cycles(b, n, turn) }
		watched := func() float64 {
			defer watch(b, server.URL)()
			return measure()
		}
		var bare, seen float64
		if i%2 == 0 { // what drifts favours neither
			bare, seen = measure(), watched()
		} else {
			seen, bare = watched(), measure()
		}
		without, with, shares = append(without, bare), append(with, seen), append(shares, 100*seen/bare)
	}
	b.ReportMetric(median(without), "cycles/s-without")
	b.ReportMetric(median(with), "cycles/s-with")
	b.ReportMetric(median(shares), "%-of-without")
	b.ReportMetric(0, "ns/op")
}

func median(values []float64) float64 {
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// hold acquires locks, which are held until the end.
func hold(b *testing.B, n *conclave.Node, locks int) {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 1024 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(locks); i = next.Add(1) {
				if _, err := n.FencedLock(fmt.Sprintf("held/%d/%07d", i%10, i)).Lock(b.Context()); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// cycles returns how often per second callers lock and unlock, each a lock of its own.
func cycles(b *testing.B, n *conclave.Node, d time.Duration) float64 {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), d)
	defer cancel()
	var done atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for i := range callers {
		l := n.FencedLock(fmt.Sprint("cycled/", i))
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := l.Lock(b.Context()); err != nil {
					b.Error(err)
					return
				}
				if err := l.Unlock(b.Context()); err != nil {
					b.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(done.Load()) / time.Since(began).Seconds()
}

// watch connects the browsers, and returns when each has got the page's parts. They read until
// stop is called.
func watch(b *testing.B, url string) (stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	transport := &http.Transport{}
	var started, ended sync.WaitGroup
	for i := range browsers {
		started.Add(1)
		ended.Go(func() {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/events?prefix=held/%d/", url, i%10), nil)
			grouptest.Must(b, err)
			w, err := transport.RoundTrip(r)
			if err != nil || w.StatusCode != http.StatusOK {
				b.Errorf("a browser is refused: %v, %v", w, err)
				started.Done()
				return
			}
			defer w.Body.Close()
			_, _ = io.ReadFull(w.Body, make([]byte, 1000))
			started.Done()
			_, _ = io.Copy(io.Discard, w.Body) // until cancel
		})
	}
	started.Wait()
	return func() {
		cancel()
		ended.Wait()
		transport.CloseIdleConnections()
	}
}
