package conclave

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func mustLead(t testing.TB, e *Election, value string) Fence {
	t.Helper()
	f, err := e.Campaign(within(t, 20*time.Second), []byte(value))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func wantLeads(t *testing.T, e *Election, value string, f Fence) {
	t.Helper()
	l, err := e.Leader(within(t, 20*time.Second))
	if err != nil || string(l.Value) != value || l.Fence != f || l.Node != e.lock.node.id {
		t.Fatalf("%+v %v; want %q under %v", l, err, value, f)
	}
}

func TestElection(t *testing.T) {
	n := alone(t)
	a, b := n.Election("x"), n.Election("x")
	wantError(t, a.Proclaim(t.Context(), nil), ErrNotHeld)
	wantError(t, a.Resign(t.Context()), ErrNotHeld)
	if a.Lost() != nil {
		t.Fatal("a channel for nothing")
	}
	f := mustLead(t, a, "a")
	wantLeads(t, b, "a", f)
	must(t, a.Proclaim(t.Context(), []byte("a2")))
	wantLeads(t, b, "a2", f)
	if again := mustLead(t, a, "a3"); again != f {
		t.Fatalf("fence %v, then %v", f, again)
	}
	wantLeads(t, b, "a3", f)
	wantError(t, b.Proclaim(t.Context(), []byte("b")), ErrNotHeld)
	var second Fence
	elected := make(chan error, 1)
	go func() {
		var err error
		second, err = b.Campaign(within(t, 20*time.Second), []byte("b"))
		elected <- err
	}()
	must(t, a.Resign(t.Context()))
	if err := <-elected; err != nil || second <= f {
		t.Fatalf("fence %v after %v, %v", second, f, err)
	}
	wantLeads(t, a, "b", second)
	must(t, b.Resign(t.Context()))
	_, err := a.Leader(t.Context())
	wantError(t, err, ErrNoLeader)
}

func TestElectionsAndLocksAreApart(t *testing.T) {
	n := alone(t)
	mustLock(t, n.FencedLock("x"))
	mustLead(t, n.Election("x"), "")
	if info, err := n.FencedLock("x").Info(t.Context()); err != nil || info.Waiters != 0 {
		t.Fatal(info, err)
	}
}

func TestElectionLost(t *testing.T) {
	n := alone(t)
	e := n.Election("x")
	f := mustLead(t, e, "first")
	lost := e.Lost()
	must(t, n.CloseSession(t.Context(), n.own.ID()))
	<-lost
	wantError(t, e.Proclaim(t.Context(), nil), ErrLockOwnershipLost)
	_, err := e.Campaign(t.Context(), nil)
	wantError(t, err, ErrLockOwnershipLost)
	wantError(t, e.Resign(t.Context()), ErrLockOwnershipLost)
	wantError(t, e.Resign(t.Context()), ErrNotHeld)
	if again := mustLead(t, e, "second"); again <= f {
		t.Fatalf("fence %v after %v", again, f)
	}
}

func TestElectionArguments(t *testing.T) {
	n := alone(t)
	large := make([]byte, 64<<10+1)
	e := n.Election("x")
	_, err := e.Campaign(t.Context(), large)
	wantError(t, err, ErrTooLarge)
	f := mustLead(t, e, string(large[1:]))
	wantError(t, e.Proclaim(t.Context(), large), ErrTooLarge)
	wantLeads(t, e, string(large[1:]), f)
	for name, want := range map[string]error{"": ErrInvalid, strings.Repeat("x", 513): ErrTooLarge} {
		e := n.Election(name)
		_, err := e.Campaign(t.Context(), nil)
		wantError(t, err, want)
		wantError(t, e.Proclaim(t.Context(), nil), want)
		wantError(t, e.Resign(t.Context()), want)
		_, err = e.Leader(t.Context())
		wantError(t, err, want)
		wantError(t, e.Run(t.Context(), nil, nil), want)
	}
	_, err = n.Election("y").Campaign(expired, nil)
	wantError(t, err, context.Canceled)
}

func TestResignIsPursuedWithoutItsContext(t *testing.T) {
	n := alone(t)
	a, b := n.Election("x"), n.Election("x")
	for range 20 {
		mustLead(t, a, "a")
		if err := a.Resign(expired); err != nil {
			wantError(t, err, ErrUnknown)
		}
		mustLead(t, b, "b")
		must(t, b.Resign(t.Context()))
	}
}

func TestRunEndsWithItsWork(t *testing.T) {
	n := alone(t)
	e := n.Election("x")
	must(t, e.Run(t.Context(), []byte("v"), func(_ context.Context, f Fence) error {
		wantLeads(t, e, "v", f)
		return nil
	}))
	mine := errors.New("mine")
	err := e.Run(t.Context(), nil, func(context.Context, Fence) error { return mine })
	wantError(t, err, mine)
	_, err = e.Leader(t.Context())
	wantError(t, err, ErrNoLeader)
	ctx, cancel := context.WithCancel(t.Context())
	err = e.Run(ctx, nil, func(ctx context.Context, _ Fence) error {
		cancel()
		<-ctx.Done()
		return nil
	})
	wantError(t, err, context.Canceled)
	_, err = e.Leader(t.Context())
	wantError(t, err, ErrNoLeader) // it has resigned although ctx had ended
	wantError(t, e.Run(ctx, nil, nil), context.Canceled)
}

// After a loss Run leads again, under a new fence, however lead tells of the end
// of its context. An error of lead's own ends it all the same.
func TestRunCampaignsAgainAfterALoss(t *testing.T) {
	n := alone(t)
	e := n.Election("x")
	mine := errors.New("mine")
	var last Fence
	terms := 0
	err := e.Run(t.Context(), []byte("v"), func(ctx context.Context, f Fence) error {
		if f <= last {
			t.Errorf("fence %v after %v", f, last)
		}
		last = f
		terms++
		must(t, n.CloseSession(t.Context(), n.own.ID()))
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, ErrLockOwnershipLost) {
			t.Error(cause)
		}
		switch terms {
		case 1:
			return ctx.Err()
		case 2:
			return context.Cause(ctx)
		case 3:
			return nil
		}
		return mine
	})
	wantError(t, err, mine)
	if terms != 4 {
		t.Fatalf("%d terms", terms)
	}
	mustLead(t, e, "nothing is owed")
}

func TestRunUnderASessionThatEnds(t *testing.T) {
	n := alone(t)
	s := mustSession(t, n, nil)
	err := s.Election("x").Run(t.Context(), nil, func(ctx context.Context, _ Fence) error {
		must(t, n.CloseSession(t.Context(), s.ID()))
		<-ctx.Done()
		return ctx.Err()
	})
	wantError(t, err, ErrSessionExpired)
}

// A panic of lead's passes through, and does not keep the lead.
func TestRunWithAPanic(t *testing.T) {
	n := alone(t)
	e := n.Election("x")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is swallowed")
			}
		}()
		_ = e.Run(t.Context(), nil, func(context.Context, Fence) error { panic("planted") })
	}()
	_, err := e.Leader(t.Context())
	wantError(t, err, ErrNoLeader)
}
