package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-go/conclave"
)

// The limits of a measurement, which runs against a group that others use.
const (
	maxBenchClients = 256
	maxBenchCallers = 4096
	maxBenchTime    = 10 * time.Minute
	maxBenchSamples = 1 << 20          // of each caller
	benchCall       = 10 * time.Second // for a call to end after the measurement
)

type benchmark struct {
	workload         string
	clients, callers int
	shared           bool
	duration         time.Duration
}

func (p *program) benchCommand() *cobra.Command {
	var b benchmark
	cmd := &cobra.Command{
		Use: "bench", Args: exactly(), Short: "Measure the group's rate and latency from here",
		Long: "Measure the group's rate and latency from here, by clients that lock and unlock, or write or read keys, as fast as they can. It uses names " +
			"of its own, that begin with \"conclave-bench-\", and deletes its keys. A group in use becomes slower meanwhile.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := b.validate(); err != nil {
				return err
			}
			r, err := p.bench(cmd.Context(), b)
			if err != nil {
				return cause(cmd.Context(), err)
			}
			return p.one(r, func(w *tabwriter.Writer) {
				fmt.Fprintf(w, "calls:\t%d in %s\nrate:\t%.0f calls/s\n", r.Calls, span(r.took), r.Rate)
				fmt.Fprintf(w, "latency:\tmedian %s, 99 %% %s, longest %s\n", micro(r.P50), micro(r.P99), micro(r.Max))
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&b.workload, "workload", "lock", "lock (a call is a lock and its unlock), put or get")
	f.IntVar(&b.clients, "clients", 1, fmt.Sprintf("connections, 1 to %d", maxBenchClients))
	f.IntVar(&b.callers, "callers", 16, fmt.Sprintf("concurrent callers of all clients together, 1 to %d", maxBenchCallers))
	f.BoolVar(&b.shared, "shared", false, "all callers use one lock or key, not one each")
	f.DurationVar(&b.duration, "for", 5*time.Second, fmt.Sprintf("how long to measure, up to %v", maxBenchTime))
	return cmd
}

func (b benchmark) validate() error {
	switch {
	case b.workload != "lock" && b.workload != "put" && b.workload != "get":
		return usagef("--workload %q: want lock, put or get", b.workload)
	case b.clients < 1 || b.clients > maxBenchClients:
		return usagef("--clients: want 1 to %d, got %d", maxBenchClients, b.clients)
	case b.callers < b.clients || b.callers > maxBenchCallers:
		return usagef("--callers: want as many as clients to %d, got %d", maxBenchCallers, b.callers)
	case b.duration <= 0 || b.duration > maxBenchTime:
		return usagef("--for: want up to %v, got %v", maxBenchTime, b.duration)
	}
	return nil
}

func micro(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Microsecond).String()
}

type benchResult struct {
	Workload string  `json:"workload"`
	Clients  int     `json:"clients"`
	Callers  int     `json:"callers"`
	Shared   bool    `json:"shared"`
	Calls    int     `json:"calls"`
	Rate     float64 `json:"rate"` // calls per second
	P50      float64 `json:"p50"`  // seconds
	P99      float64 `json:"p99"`
	Max      float64 `json:"max"`

	took time.Duration
}

func (p *program) bench(ctx context.Context, b benchmark) (benchResult, error) {
	var clients []groupClient
	defer func() {
		var closing sync.WaitGroup
		for _, c := range clients {
			closing.Go(func() { p.closeClient(c) })
		}
		closing.Wait()
	}()
	for range b.clients {
		c, err := p.dial(ctx)
		if err != nil {
			return benchResult{}, err
		}
		clients = append(clients, c)
	}
	prefix := "conclave-bench-" + rand.Text()[:8] + "/"
	defer func() {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.connection.timeout)
		defer cancel()
		_ = clients[0].KV().DeletePrefix(limited, prefix) // what is left has the prefix that the help names
	}()
	return b.run(ctx, clients, prefix)
}

// run has the callers make calls until the time is over, and takes those that ended in it.
func (b benchmark) run(ctx context.Context, clients []groupClient, prefix string) (benchResult, error) {
	ctx, cancel := context.WithTimeout(ctx, b.duration)
	defer cancel()
	took := make([][]time.Duration, b.callers)
	failures := make([]error, b.callers)
	began := time.Now()
	var callers sync.WaitGroup
	for i := range b.callers {
		call := b.call(clients[i%len(clients)], prefix, i)
		callers.Go(func() {
			for ctx.Err() == nil && len(took[i]) < maxBenchSamples {
				at := time.Now()
				if err := call(ctx); err != nil {
					if ctx.Err() == nil {
						failures[i] = err
						cancel()
					}
					return
				}
				if ctx.Err() == nil {
					took[i] = append(took[i], time.Since(at))
				}
			}
		})
	}
	callers.Wait()
	if err := errors.Join(failures...); err != nil {
		return benchResult{}, err
	}
	r := benchResult{Workload: b.workload, Clients: b.clients, Callers: b.callers, Shared: b.shared, took: min(time.Since(began), b.duration)}
	all := slices.Concat(took...)
	if len(all) == 0 {
		return r, withCode(exitUnavailable, errors.New("no call has ended in that time"))
	}
	slices.Sort(all)
	at := func(share float64) float64 { return all[int(share*float64(len(all)-1))].Seconds() }
	r.Calls, r.Rate, r.P50, r.P99, r.Max = len(all), float64(len(all))/r.took.Seconds(), at(0.5), at(0.99), at(1)
	return r, nil
}

func (b benchmark) call(c groupClient, prefix string, i int) func(ctx context.Context) error {
	name := prefix + "shared"
	if !b.shared {
		name = fmt.Sprint(prefix, i)
	}
	switch b.workload {
	case "put":
		return func(ctx context.Context) error {
			// A write that is given up may take effect after the deletion of the keys.
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), benchCall)
			defer cancel()
			_, err := c.KV().Put(bounded, name, fmt.Appendf(nil, "%d", time.Now().UnixNano()))
			return err
		}
	case "get":
		return func(ctx context.Context) error {
			_, err := c.KV().Get(ctx, name)
			if errors.Is(err, conclave.ErrKeyNotFound) {
				return nil
			}
			return err
		}
	}
	l := c.FencedLock(name)
	return func(ctx context.Context) error {
		if _, err := l.Lock(ctx); err != nil {
			return err
		}
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), benchCall)
		defer cancel()
		return l.Unlock(bounded)
	}
}
