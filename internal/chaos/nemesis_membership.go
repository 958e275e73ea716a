//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
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

// replace gives a member whose process has ended a new identity, and waits until that
// is a voter in place of the old one: as long as it is not, the group has one voter
// less to lose.
func (f *faults) replace(ctx context.Context, m *member) error {
	// Without the end of the nemesis: only whole replacements leave a healthy group.
	ctx = context.WithoutCancel(ctx)
	if err := f.join(ctx, m); err != nil {
		return fmt.Errorf("%s cannot come back as a new member: %w", m.name, err)
	}
	for deadline := time.Now().Add(voterLimit); !m.process.last().Voter; {
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is no voter %v after it came back as a new member", m.name, voterLimit)
		}
		if err := wait(ctx, statusInterval); err != nil {
			return err
		}
	}
	f.trace("%s is a voter", m.name)
	return nil
}

func wipedDirectory(ctx context.Context, f *faults) error {
	if err := f.canJoin(ctx); err != nil {
		return ignoreEnd(ctx, err)
	}
	return rounds(ctx, func() error {
		m := f.victim()
		f.kill(m)
		f.trace("delete the directory of %s", m.name)
		f.between(ctx, 100*time.Millisecond, 2*time.Second)
		if err := f.replace(ctx, m); err != nil {
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
			f.kill(m)
			err = f.replace(ctx, m)
		default:
			if err = f.leave(m); err == nil {
				err = f.replace(ctx, m)
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
