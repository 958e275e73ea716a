//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

const (
	joinLimit  = 30 * time.Second
	leaveLimit = 30 * time.Second
	voterLimit = 60 * time.Second
)

// canJoin reports whether the build under test can add a member to an existing group:
// it adds one, which leaves again.
func (f *faults) canJoin(ctx context.Context) error {
	m := f.members[f.founders]
	if err := f.join(ctx, m); err != nil {
		m.joined = false
		m.process.kill()
		return fmt.Errorf("%w: a new member cannot join an existing group: %w", errUnsupported, err)
	}
	return f.leave(m)
}

// join starts a member with an empty directory.
func (f *faults) join(ctx context.Context, m *member) error {
	f.trace("%s joins with an empty directory", m.name)
	if err := empty(m.dir); err != nil {
		return err
	}
	m.founding = false
	if err := f.start(m); err != nil {
		return err
	}
	m.joined = true
	return f.awaitOpen(ctx, m, joinLimit)
}

func empty(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.MkdirAll(dir, 0o755)
}

// leave removes a member from the group. Its next start is a new member.
func (f *faults) leave(m *member) error {
	f.trace("%s leaves", m.name)
	ended := m.process.end(doLeave, leaveLimit)
	m.joined = false
	if why := m.process.stopped(); !ended || why != "" {
		f.spoiled = append(f.spoiled, fmt.Sprintf("%s could not leave within %v: %s", m.name, leaveLimit, why))
	}
	return empty(m.dir)
}

// replace gives a member whose process has ended a new identity, and waits until as many
// running members vote as should: until then the group has one voter less to lose. Half
// of the time an operator removes the old identity; else the group replaces it by itself.
func (f *faults) replace(ctx context.Context, m *member, old string) error {
	// Without the end of the nemesis: only whole replacements leave a healthy group.
	ctx = context.WithoutCancel(ctx)
	if err := f.join(ctx, m); err != nil {
		return fmt.Errorf("%s cannot come back as a new member: %w", m.name, err)
	}
	if old != "" && f.random.IntN(2) == 0 {
		if err := f.remove(ctx, old); err != nil {
			return err
		}
	}
	began := time.Now()
	for f.voting() < f.voters() {
		if time.Since(began) > voterLimit {
			return fmt.Errorf("%d members vote %v after %s came back as a new member, want %d", f.voting(), voterLimit, m.name, f.voters())
		}
		if err := wait(ctx, statusInterval); err != nil {
			return err
		}
	}
	f.trace("%d members vote after %v", f.voting(), time.Since(began).Round(time.Millisecond))
	return nil
}

// remove has some member remove another one from the group. An answer that did not
// come in time is asked for again, of any member.
func (f *faults) remove(ctx context.Context, id string) error {
	const attempts = 4
	var why string
	for range attempts {
		for _, m := range f.shuffled() {
			if !m.isOpen() || m.process.last().ID == id {
				continue
			}
			f.trace("%s removes member %s", m.name, id)
			m.process.order(order{Do: doRemove, ID: id})
			select {
			case why = <-m.process.removed:
			case <-m.process.done:
				why = "the member that was asked has stopped"
			case <-ctx.Done():
				return ctx.Err()
			}
			break
		}
		if why == "" || strings.Contains(why, "no such member") {
			return nil
		}
		f.trace("not removed: %s", why)
	}
	return fmt.Errorf("member %s cannot be removed: %s", id, why)
}

func wipedDirectory(ctx context.Context, f *faults) error {
	if err := f.canJoin(ctx); err != nil {
		return ignoreEnd(ctx, err)
	}
	return rounds(ctx, func() error {
		m := f.victim()
		old := m.process.last().ID
		f.kill(m)
		f.trace("delete the directory of %s", m.name)
		f.between(ctx, 100*time.Millisecond, 2*time.Second)
		if err := f.replace(ctx, m, old); err != nil {
			return err
		}
		f.between(ctx, time.Second, 3*time.Second)
		return nil
	})
}

// churn has spare members join and leave, and kills and replaces others.
func churn(ctx context.Context, f *faults) error {
	if err := f.canJoin(ctx); err != nil {
		return ignoreEnd(ctx, err)
	}
	defer f.removeSpares()
	return rounds(ctx, func() error {
		spare := f.members[f.founders+f.random.IntN(spares)]
		m := f.victim()
		var err error
		switch p := f.random.IntN(10); {
		case p < 5 && !spare.joined:
			err = f.join(ctx, spare)
		case p < 5:
			err = f.leave(spare)
		case p < 7:
			f.kill(m)
			f.between(ctx, 200*time.Millisecond, 2*time.Second)
			err = f.restart(ctx, m)
		case p < 9:
			old := m.process.last().ID
			f.kill(m)
			err = f.replace(ctx, m, old)
		default:
			if err = f.leave(m); err == nil {
				err = f.replace(ctx, m, "") // it has left
			}
		}
		f.between(ctx, 200*time.Millisecond, 2*time.Second)
		return err
	})
}

// removeSpares brings the group back to the members that formed it.
func (f *faults) removeSpares() {
	for _, m := range f.members[f.founders:] {
		if m.joined && m.isOpen() {
			_ = f.leave(m) // a directory that cannot be emptied shows at the next join
		}
		if m.running() {
			m.process.kill()
		}
		m.joined = false
	}
}
