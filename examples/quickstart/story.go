package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/conclave-go/conclave"
)

// story holds what the chapters share.
type story struct {
	group  group
	line   *timeline
	ledger ledger
}

func (s *story) form(ctx context.Context) error {
	err := await(s.line, "for three members to find each other", func() error {
		return s.group.start(ctx, s.group...)
	})
	if err != nil {
		return err
	}
	leader, _, _, err := s.group.roles(ctx)
	if err != nil {
		return err
	}
	for _, m := range s.group {
		status := m.Node.Status()
		s.line.event(m.Name(), "Open", "member %v on %s", status.ID, m.Addr)
		if len(status.Members) != 3 || status.Role != conclave.Voter {
			return fmt.Errorf("%s does not see three voters: %+v", m.Name(), status)
		}
	}
	s.line.event(leader.Name(), "Status", "leads the group")
	return nil
}

func (s *story) takeTurns(ctx context.Context) error {
	anna, ben, clara := s.owner(0, "turns"), s.owner(1, "turns"), s.owner(2, "turns")
	first, err := anna.lock(ctx)
	if err != nil {
		return err
	}
	_, err = ben.handle.TryLock(ctx)
	if err := ben.refused("TryLock", err, conclave.ErrLocked); err != nil {
		return err
	}
	waiting1, err := ben.queue(ctx, 1)
	if err != nil {
		return err
	}
	waiting2, err := clara.queue(ctx, 2)
	if err != nil {
		return err
	}
	if err := anna.unlock(ctx); err != nil {
		return err
	}
	second, err := waiting1.granted(first)
	if err != nil {
		return err
	}
	if waiting2.isDone() {
		return errors.New("clara was granted the lock while ben holds it")
	}
	if err := ben.unlock(ctx); err != nil {
		return err
	}
	if _, err := waiting2.granted(second); err != nil {
		return err
	}
	return clara.unlock(ctx)
}

func (s *story) reenter(ctx context.Context) error {
	anna, ben := s.owner(0, "re-entry", conclave.Reentrant(2)), s.owner(1, "re-entry")
	first, err := anna.lock(ctx)
	if err != nil {
		return err
	}
	again, err := anna.lock(ctx)
	if err != nil {
		return err
	}
	if again != first {
		return fmt.Errorf("re-entered with fence %v, want the same as before, %v", again, first)
	}
	_, err = anna.handle.Lock(ctx)
	if err := anna.refused("Lock", err, conclave.ErrAcquireLimitReached); err != nil {
		return err
	}
	if err := anna.unlock(ctx); err != nil {
		return err
	}
	_, err = ben.handle.TryLock(ctx) // anna has one hold left
	if err := ben.refused("TryLock", err, conclave.ErrLocked); err != nil {
		return err
	}
	return anna.unlock(ctx)
}
