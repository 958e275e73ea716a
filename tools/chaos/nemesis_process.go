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
		if longest := sessionTTL + time.Second; f.random.IntN(2) == 0 {
			f.between(ctx, 300*time.Millisecond, longest) // the holder may still trust its holds
		} else {
			f.between(ctx, longest, 8*time.Second)
		}
		for _, m := range frozen {
			f.thaw(m)
		}
		f.between(ctx, 2*time.Second, 4*time.Second)
		return nil
	})
}

// rollingUpgrade restarts all members in turn, again and again. With a second build, half
// of the members change to it first and go back, as in an upgrade that is given up; then
// all change to it. From then on the group may use what only that build knows, so it
// stays with it.
func rollingUpgrade(ctx context.Context, f *faults) error {
	if f.o.binary2 != "" && f.binary != f.o.binary2 {
		some, before := f.shuffled()[:f.founders/2], f.binary
		f.trace("upgrade %d members, then go back", len(some))
		for _, binary := range []string{f.o.binary2, before} {
			if err := f.roll(ctx, some, binary); err != nil {
				return ignoreEnd(ctx, err)
			}
		}
		f.trace("upgrade all members")
		f.binary = f.o.binary2
	}
	return rounds(ctx, func() error { return f.roll(ctx, f.shuffled(), f.binary) })
}

// roll shuts members down gracefully, one after the other, and starts each again.
func (f *faults) roll(ctx context.Context, members []*member, binary string) error {
	for _, m := range members {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f.trace("close %s", m.name)
		f.close(m)
		if err := f.startBinary(m, binary); err != nil {
			return err
		}
		if err := f.awaitOpen(ctx, m, openLimit); err != nil {
			return err
		}
		f.between(ctx, 500*time.Millisecond, 1500*time.Millisecond)
	}
	return nil
}
