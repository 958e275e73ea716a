//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// separate keeps a partition for a while, then heals it.
func (f *faults) separate(ctx context.Context, reaches func(from, to int) bool) error {
	if err := f.network.partition(reaches); err != nil {
		return err
	}
	f.between(ctx, 2*time.Second, 12*time.Second)
	f.trace("heal")
	if err := f.network.heal(); err != nil {
		return err
	}
	f.between(ctx, 2*time.Second, 5*time.Second)
	return nil
}

func partitionHalves(ctx context.Context, f *faults) error {
	return rounds(ctx, func() error {
		minority := make(map[int]bool)
		for _, m := range f.shuffled()[:(f.founders-1)/2] {
			minority[m.index] = true
		}
		f.trace("partition %s from the others", names(f, minority))
		return f.separate(ctx, func(from, to int) bool { return minority[from] == minority[to] })
	})
}

func names(f *faults, chosen map[int]bool) string {
	var list []string
	for _, m := range f.members {
		if chosen[m.index] {
			list = append(list, m.name)
		}
	}
	return strings.Join(list, ", ")
}

func partitionOne(ctx context.Context, f *faults) error {
	return rounds(ctx, func() error {
		m := f.victim()
		f.trace("partition %s from all others", m.name)
		return f.separate(ctx, func(from, to int) bool { return from != m.index && to != m.index })
	})
}

func partitionOneWay(ctx context.Context, f *faults) error {
	return rounds(ctx, func() error {
		m := f.victim()
		if f.random.IntN(2) == 0 {
			f.trace("%s receives nothing", m.name)
			return f.separate(ctx, func(_, to int) bool { return to != m.index })
		}
		f.trace("nothing that %s sends arrives", m.name)
		return f.separate(ctx, func(from, _ int) bool { return from != m.index })
	})
}

func partitionBridge(ctx context.Context, f *faults) error {
	return rounds(ctx, func() error {
		order := f.shuffled()
		bridge, side := order[0].index, make(map[int]bool)
		for _, m := range order[1 : 1+f.founders/2] {
			side[m.index] = true
		}
		f.trace("%s is the only bridge between %s and the others", order[0].name, names(f, side))
		return f.separate(ctx, func(from, to int) bool { return from == bridge || to == bridge || side[from] == side[to] })
	})
}

func partitionRing(ctx context.Context, f *faults) error {
	return rounds(ctx, func() error {
		place, n := make(map[int]int), f.founders
		for i, m := range f.shuffled() {
			place[m.index] = i
		}
		f.trace("ring of %v", place)
		return f.separate(ctx, func(from, to int) bool {
			distance := (place[from] - place[to] + n) % n
			return distance == 1 || distance == n-1
		})
	})
}

// firewall drops what one member dials at another one, but not what that one dials. Only the first can notice: it still hears from the
// second.
func firewall(ctx context.Context, f *faults) error {
	return rounds(ctx, func() error {
		order := f.shuffled()
		guarded, cut := order[0], order[1]
		f.trace("a firewall at %s drops what %s dials", guarded.name, cut.name)
		began, err := f.logged(cut)
		if err != nil {
			return err
		}
		if err := f.network.rules(guarded.index, dropDialed(f.network.host(cut.index))); err != nil {
			return fmt.Errorf("firewall at %s: %w", guarded.name, err)
		}
		report := `msg="a member reaches this one and is not reached" member=` + guarded.process.last().ID
		if err := f.awaitReport(ctx, cut, len(began), report); err != nil {
			return err
		}
		f.trace("%s reports it; heal", cut.name)
		if err := f.network.heal(); err != nil {
			return err
		}
		f.between(ctx, 2*time.Second, 5*time.Second)
		return nil
	})
}

// logged returns what a member has logged so far.
func (f *faults) logged(m *member) (string, error) {
	text, err := os.ReadFile(m.logFile(filepath.Join(f.dir, "logs")))
	return string(text), err
}

// reportLimit is for how long a report is awaited: a connection fails after seconds without an answer, dialing it again too, and the
// report comes 5 s later.
const reportLimit = time.Minute

// awaitReport waits until a member has logged a text behind an offset, also when the time of the nemesis is over.
func (f *faults) awaitReport(ctx context.Context, m *member, offset int, report string) error {
	for deadline := time.Now().Add(reportLimit); ; {
		text, err := f.logged(m)
		switch {
		case err != nil:
			return err
		case strings.Contains(text[offset:], report):
			return nil
		case errors.Is(ctx.Err(), context.Canceled):
			return ctx.Err()
		case time.Now().After(deadline):
			return fmt.Errorf("%s has not logged in %v: %s", m.name, reportLimit, report)
		}
		_ = wait(context.Background(), 100*time.Millisecond)
	}
}

// targets returns one member or all.
func (f *faults) targets() []*member {
	if f.random.IntN(2) == 0 {
		return []*member{f.victim()}
	}
	return f.members[:f.founders]
}

func loss(ctx context.Context, f *faults) error {
	return rounds(ctx, func() error {
		percent, targets := 5+f.random.IntN(36), f.targets()
		f.trace("loss of %d %% at %d members", percent, len(targets))
		for _, m := range targets {
			if err := f.network.rules(m.index, dropPercent(percent)); err != nil {
				return fmt.Errorf("loss at %s: %w", m.name, err)
			}
		}
		f.between(ctx, 3*time.Second, 10*time.Second)
		f.trace("heal")
		if err := f.network.heal(); err != nil {
			return err
		}
		f.between(ctx, time.Second, 3*time.Second)
		return nil
	})
}

func reset(ctx context.Context, f *faults) error {
	return rounds(ctx, func() error {
		targets := f.targets()
		f.trace("reset all connections at %d members", len(targets))
		for _, m := range targets {
			if err := f.network.rules(m.index, resetEstablished()); err != nil {
				return fmt.Errorf("reset at %s: %w", m.name, err)
			}
		}
		f.between(ctx, 100*time.Millisecond, 500*time.Millisecond)
		if err := f.network.heal(); err != nil {
			return err
		}
		f.between(ctx, 500*time.Millisecond, 3*time.Second)
		return nil
	})
}
