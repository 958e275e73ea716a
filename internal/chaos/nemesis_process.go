//go:build linux

package main

import (
	"context"
	"time"
)

func kill(ctx context.Context, f *faults) error {
	return rounds(ctx, func() error {
		m := f.victim()
		f.kill(m)
		f.between(ctx, 200*time.Millisecond, 5*time.Second)
		if err := f.restart(ctx, m); err != nil {
			return err
		}
		f.between(ctx, time.Second, 3*time.Second)
		return nil
	})
}

func killAll(ctx context.Context, f *faults) error {
	return rounds(ctx, func() error {
		for _, m := range f.shuffled() {
			f.kill(m)
		}
		f.between(ctx, 100*time.Millisecond, 2*time.Second)
		for _, m := range f.shuffled() {
			if err := f.start(m); err != nil {
				return err
			}
		}
		for _, m := range f.shuffled() {
			if err := f.awaitOpen(ctx, m, openLimit); err != nil {
				return err
			}
		}
		f.between(ctx, 3*time.Second, 6*time.Second)
		return nil
	})
}

func stop(ctx context.Context, f *faults) error {
	return rounds(ctx, func() error {
		frozen := []*member{f.victim()}
		if other := f.victim(); other != frozen[0] && f.random.IntN(3) == 0 {
			frozen = append(frozen, other)
		}
		for _, m := range frozen {
			f.freeze(m)
		}
		f.between(ctx, 300*time.Millisecond, 8*time.Second)
		for _, m := range frozen {
			f.thaw(m)
		}
		f.between(ctx, 2*time.Second, 4*time.Second)
		return nil
	})
}

func rollingUpgrade(ctx context.Context, f *faults) error {
	binaries := []string{f.binary, f.binary}
	if f.o.binary2 != "" {
		binaries[1] = f.o.binary2
	}
	for next := 1; ctx.Err() == nil; next = 1 - next {
		for _, m := range f.shuffled() {
			f.trace("close %s", m.name)
			f.close(m)
			if err := f.startBinary(m, binaries[next]); err != nil {
				return err
			}
			if err := f.awaitOpen(ctx, m, openLimit); err != nil {
				return ignoreEnd(ctx, err)
			}
			f.between(ctx, 500*time.Millisecond, 1500*time.Millisecond)
			if ctx.Err() != nil {
				return nil
			}
		}
	}
	return nil
}
