package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// figure is the result of one turn.
type figure struct {
	rate     float64 // operations per second
	p50, p99 time.Duration
}

// compare runs a workload on each group by turns.
func compare(ctx context.Context, w workload, starts []start, dir string, turns int, length time.Duration, p *profile) (row, error) {
	r := row{workload: w, figures: make([][]figure, len(starts))}
	if w.once != nil {
		return r, compareOnce(ctx, r, starts, dir, turns)
	}
	var groups []group
	defer func() {
		for _, g := range groups {
			g.close()
		}
		_ = os.RemoveAll(dir) // of this program
	}()
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	var callers [][]operation
	for _, s := range starts {
		g, err := s.run(filepath.Join(dir, s.name))
		if err != nil {
			return r, fmt.Errorf("start %s: %w", s.name, err)
		}
		groups = append(groups, g)
		ops, err := w.callers(inner, g)
		if err != nil {
			return r, fmt.Errorf("prepare %s: %w", s.name, err)
		}
		callers = append(callers, ops)
	}
	for range turns {
		for i := range starts {
			if _, err := turn(ctx, callers[i], length/4); err != nil {
				return r, fmt.Errorf("%s: %w", starts[i].name, err)
			}
			if i == 0 {
				p.start()
			}
			f, err := turn(ctx, callers[i], length)
			if i == 0 {
				p.stop()
			}
			if err != nil {
				return r, fmt.Errorf("%s: %w", starts[i].name, err)
			}
			r.figures[i] = append(r.figures[i], f)
		}
	}
	return r, nil
}

// compareOnce starts a new group for each measurement.
func compareOnce(ctx context.Context, r row, starts []start, dir string, turns int) error {
	for t := range turns {
		for i, s := range starts {
			into := filepath.Join(dir, fmt.Sprint(s.name, "-", t))
			g, err := s.run(into)
			if err != nil {
				return fmt.Errorf("start %s: %w", s.name, err)
			}
			took, err := r.once(ctx, g)
			g.close()
			_ = os.RemoveAll(into) // of this program
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			r.figures[i] = append(r.figures[i], figure{rate: 1 / took.Seconds(), p50: took, p99: took})
		}
	}
	return nil
}

// turn has all callers repeat their operations for a while.
func turn(ctx context.Context, callers []operation, length time.Duration) (figure, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var times []time.Duration
	var failed error
	began := time.Now()
	var wg sync.WaitGroup
	for _, op := range callers {
		wg.Go(func() {
			var own []time.Duration
			for {
				before := time.Now()
				if before.Sub(began) >= length {
					break
				}
				if err := op(ctx); err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
					cancel()
					break
				}
				own = append(own, time.Since(before))
			}
			mu.Lock()
			times = append(times, own...)
			mu.Unlock()
		})
	}
	wg.Wait()
	if failed != nil {
		return figure{}, failed
	}
	took := time.Since(began)
	slices.Sort(times)
	return figure{rate: float64(len(times)) / took.Seconds(), p50: quantile(times, 0.5), p99: quantile(times, 0.99)}, nil
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
