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
	cpu      time.Duration // processor time for an operation, of all members and callers; 0: not measured
}

// compare runs a workload on each group by turns.
func compare(ctx context.Context, w workload, all []system, dir string, turns int, length time.Duration, p *profile) (row, error) {
	r := row{workload: w, systems: all, figures: make([][]figure, len(all))}
	if w.once != nil {
		return r, compareOnce(ctx, r, dir, turns)
	}
	groups := make([]group, len(all))
	defer func() {
		for _, g := range groups {
			if g != nil {
				g.close()
			}
		}
		_ = os.RemoveAll(dir) // of this program
	}()
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	callers := make([][]operation, len(all))
	for i, s := range all {
		start := w.on(s)
		if start == nil {
			continue
		}
		g, err := start(ctx, filepath.Join(dir, s.name))
		if err != nil {
			return r, fmt.Errorf("start %s: %w", s.name, err)
		}
		groups[i] = g
		if callers[i], err = w.callers(inner, g); err != nil {
			return r, fmt.Errorf("prepare %s: %w", s.name, err)
		}
		if s.warm > 0 {
			if _, err := turn(ctx, callers[i], s.warm); err != nil {
				return r, fmt.Errorf("warm up %s: %w", s.name, err)
			}
		}
	}
	for range turns {
		for i, s := range all {
			if callers[i] == nil {
				continue
			}
			profiled := p
			if s.name != disk {
				profiled = nil
			}
			f, err := warmTurn(ctx, callers[i], length, profiled)
			if err == nil {
				err = w.verify(groups[i])
			}
			if err != nil {
				return r, fmt.Errorf("%s: %w", s.name, err)
			}
			if s.outside {
				f.cpu = 0
			}
			r.figures[i] = append(r.figures[i], f)
		}
	}
	return r, nil
}

// warmTurn is a turn after a shorter one that does not count.
func warmTurn(ctx context.Context, callers []operation, length time.Duration, p *profile) (figure, error) {
	if _, err := turn(ctx, callers, length/4); err != nil {
		return figure{}, err
	}
	p.start()
	defer p.stop()
	return turn(ctx, callers, length)
}

// compareOnce starts a new group for each measurement.
func compareOnce(ctx context.Context, r row, dir string, turns int) error {
	for t := range turns {
		for i, s := range r.systems {
			if r.on(s) == nil {
				continue
			}
			f, err := measureOnce(ctx, r.workload, s, filepath.Join(dir, fmt.Sprint(s.name, "-", t)))
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			r.figures[i] = append(r.figures[i], f)
		}
	}
	return nil
}

func measureOnce(ctx context.Context, w workload, s system, dir string) (figure, error) {
	defer func() { _ = os.RemoveAll(dir) }() // of this program
	g, err := w.on(s)(ctx, dir)
	if err != nil {
		return figure{}, fmt.Errorf("start: %w", err)
	}
	defer g.close()
	whole, ok := g.(service)
	if !ok {
		return figure{}, fmt.Errorf("%T serves locks only", g)
	}
	took, err := w.once(ctx, whole)
	return figure{rate: 1 / took.Seconds(), p50: took, p99: took}, err
}

// turn has all callers repeat their operations for a while.
func turn(ctx context.Context, callers []operation, length time.Duration) (figure, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var times []time.Duration
	var failed error
	used, unknown := cpuTime()
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
	var each time.Duration
	if after, err := cpuTime(); err == nil && unknown == nil && len(times) > 0 {
		each = (after - used) / time.Duration(len(times))
	}
	slices.Sort(times)
	return figure{rate: float64(len(times)) / took.Seconds(), p50: quantile(times, 0.5), p99: quantile(times, 0.99), cpu: each}, nil
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
