package conclave_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

func TestElection(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		a, b := n.Election("x"), n.Election("x")
		grouptest.WantError(t, a.Proclaim(t.Context(), nil), conclave.ErrNotHeld)
		grouptest.WantError(t, a.Resign(t.Context()), conclave.ErrNotHeld)
		if a.Lost() != nil {
			t.Fatal("Lost is not nil without leadership")
		}
		f := grouptest.MustCampaign(t, a, "a")
		grouptest.WantLeader(t, n, b, "a", f)
		grouptest.Must(t, a.Proclaim(t.Context(), []byte("a2")))
		grouptest.WantLeader(t, n, b, "a2", f)
		if again := grouptest.MustCampaign(t, a, "a3"); again != f {
			t.Fatalf("fence %v, then %v", f, again)
		}
		grouptest.WantLeader(t, n, b, "a3", f)
		grouptest.WantError(t, b.Proclaim(t.Context(), []byte("b")), conclave.ErrNotHeld)
		var second conclave.Fence
		elected := make(chan error, 1)
		go func() {
			var err error
			second, err = b.Campaign(grouptest.Bounded(t), []byte("b"))
			elected <- err
		}()
		grouptest.Must(t, a.Resign(t.Context()))
		if err := <-elected; err != nil || second <= f {
			t.Fatalf("fence %v after %v, %v", second, f, err)
		}
		grouptest.WantLeader(t, n, a, "b", second)
		grouptest.Must(t, b.Resign(t.Context()))
		_, err := a.Leader(t.Context())
		grouptest.WantError(t, err, conclave.ErrNoLeader)
	})
}

func TestElection_SameNameAsLock(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		grouptest.MustLock(t, n.FencedLock("x"))
		grouptest.MustCampaign(t, n.Election("x"), "")
		if info, err := n.FencedLock("x").Info(t.Context()); err != nil || info.Waiters != 0 {
			t.Fatal(info, err)
		}
	})
}

func TestElection_SessionClosedByForce(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		e := n.Election("x")
		f := grouptest.MustCampaign(t, e, "first")
		lost := e.Lost()
		grouptest.Must(t, n.CloseSession(t.Context(), grouptest.OwnSession(t, n)))
		<-lost
		grouptest.WantError(t, e.Proclaim(t.Context(), nil), conclave.ErrLockOwnershipLost)
		_, err := e.Campaign(t.Context(), nil)
		grouptest.WantError(t, err, conclave.ErrLockOwnershipLost)
		grouptest.WantError(t, e.Resign(t.Context()), conclave.ErrLockOwnershipLost)
		grouptest.WantError(t, e.Resign(t.Context()), conclave.ErrNotHeld)
		if again := grouptest.MustCampaign(t, e, "second"); again <= f {
			t.Fatalf("fence %v after %v", again, f)
		}
	})
}

func TestElection_InvalidArguments(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		large := make([]byte, 64<<10+1)
		e := n.Election("x")
		_, err := e.Campaign(t.Context(), large)
		grouptest.WantError(t, err, conclave.ErrTooLarge)
		f := grouptest.MustCampaign(t, e, string(large[1:]))
		grouptest.WantError(t, e.Proclaim(t.Context(), large), conclave.ErrTooLarge)
		grouptest.WantLeader(t, n, e, string(large[1:]), f)
		for name, want := range map[string]error{"": conclave.ErrInvalid, strings.Repeat("x", 513): conclave.ErrTooLarge} {
			e := n.Election(name)
			_, err := e.Campaign(t.Context(), nil)
			grouptest.WantError(t, err, want)
			grouptest.WantError(t, e.Proclaim(t.Context(), nil), want)
			grouptest.WantError(t, e.Resign(t.Context()), want)
			_, err = e.Leader(t.Context())
			grouptest.WantError(t, err, want)
			grouptest.WantError(t, e.Run(t.Context(), nil, nil), want)
		}
		_, err = n.Election("y").Campaign(grouptest.Expired(), nil)
		grouptest.WantError(t, err, context.Canceled)
	})
}

func TestElection_ResignContextEndedBefore(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		a, b := n.Election("x"), n.Election("x")
		for range 20 {
			grouptest.MustCampaign(t, a, "a")
			if err := a.Resign(grouptest.Expired()); err != nil {
				grouptest.WantError(t, err, conclave.ErrUnknown)
			}
			grouptest.MustCampaign(t, b, "b")
			grouptest.Must(t, b.Resign(t.Context()))
		}
	})
}

func TestRun_EndsWithLead(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		e := n.Election("x")
		grouptest.Must(t, e.Run(t.Context(), []byte("v"), func(_ context.Context, f conclave.Fence) error {
			grouptest.WantLeader(t, n, e, "v", f)
			return nil
		}))
		mine := errors.New("mine")
		err := e.Run(t.Context(), nil, func(context.Context, conclave.Fence) error { return mine })
		if err != mine { //nolint:errorlint // as it is
			t.Errorf("got %v, want lead's error as it is", err)
		}
		_, err = e.Leader(t.Context())
		grouptest.WantError(t, err, conclave.ErrNoLeader)
		ctx, cancel := context.WithCancel(t.Context())
		err = e.Run(ctx, nil, func(ctx context.Context, _ conclave.Fence) error {
			cancel()
			<-ctx.Done()
			return nil
		})
		grouptest.WantError(t, err, context.Canceled)
		_, err = e.Leader(t.Context())
		grouptest.WantError(t, err, conclave.ErrNoLeader) // Run has resigned although ctx had ended
		grouptest.WantError(t, e.Run(ctx, nil, nil), context.Canceled)
		ctx, cancel = context.WithCancel(t.Context())
		err = e.Run(ctx, nil, func(context.Context, conclave.Fence) error {
			cancel()
			return mine
		})
		if err != mine { //nolint:errorlint // as it is, also when ctx is done
			t.Errorf("got %v, want lead's error as it is", err)
		}
	})
}

// After a loss Run campaigns again, whether lead returns nil or the context's error.
// Any other error of lead ends Run.
func TestRun_CampaignsAgainAfterLoss(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		e := n.Election("x")
		mine := errors.New("mine")
		var last conclave.Fence
		terms := 0
		err := e.Run(t.Context(), []byte("v"), func(ctx context.Context, f conclave.Fence) error {
			if f <= last {
				t.Errorf("fence %v after %v", f, last)
			}
			last = f
			terms++
			grouptest.Must(t, n.CloseSession(t.Context(), grouptest.OwnSession(t, n)))
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, conclave.ErrLockOwnershipLost) {
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
		if err != mine { //nolint:errorlint // as it is
			t.Errorf("got %v, want lead's error as it is", err)
		}
		if terms != 4 {
			t.Fatalf("%d terms", terms)
		}
		grouptest.MustCampaign(t, e, "nothing is owed")
	})
}

func TestRun_SessionClosedByForce(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s := grouptest.MustSession(t, n, nil)
		err := s.Election("x").Run(t.Context(), nil, func(ctx context.Context, _ conclave.Fence) error {
			grouptest.Must(t, n.CloseSession(t.Context(), s.ID()))
			<-ctx.Done()
			return ctx.Err()
		})
		grouptest.WantError(t, err, conclave.ErrSessionExpired)
	})
}

// A panic in lead passes through, and leadership is released.
func TestRun_PanicInLead(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		e := n.Election("x")
		func() {
			defer func() {
				if recover() == nil {
					t.Error("Run has recovered the panic")
				}
			}()
			_ = e.Run(t.Context(), nil, func(context.Context, conclave.Fence) error { panic("planted") })
		}()
		_, err := e.Leader(t.Context())
		grouptest.WantError(t, err, conclave.ErrNoLeader)
	})
}

// Observe ends with the node, and for an invalid name.
func TestObserve_Ends(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		for _, err := range n.Election("").Observe(t.Context()) {
			grouptest.WantError(t, err, conclave.ErrInvalid)
		}
		_, err := n.Election("").Leader(t.Context())
		grouptest.WantError(t, err, conclave.ErrInvalid)
		first, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			seen := 0
			for _, err := range n.Election("e").Observe(t.Context()) {
				if err != nil {
					ended <- err
				} else if seen++; seen == 1 {
					close(first)
				}
			}
		}()
		select {
		case <-first:
		case err := <-ended:
			t.Fatal(err)
		}
		n.Close(t.Context())
		grouptest.WantError(t, <-ended, conclave.ErrClosed)
	})
}

func TestElectionRun_ContextDoneWhileResignOwed(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s := grouptest.MustSession(t, n, nil)
		e := s.Election("x")
		grouptest.MustCampaign(t, e, "lost")
		grouptest.Must(t, n.CloseSession(t.Context(), s.ID()))
		<-e.Lost()
		err := e.Run(grouptest.Expired(), nil, func(context.Context, conclave.Fence) error { return nil })
		grouptest.WantError(t, err, context.Canceled)
		grouptest.WantError(t, err, conclave.ErrLockOwnershipLost)
	})
}

// A leader is described by name and address, to a member as to a client; that of a client by its ID only.
func TestLeader_Member(t *testing.T) {
	g := grouptest.Start(t, 2)
	client := grouptest.Dial(t, &conclave.ClientConfig{}, g.Nodes...)
	grouptest.MustCampaign(t, g.Nodes[1].Election("x"), "by a member")
	want := conclave.Member{ID: g.ID(1), Name: g.Nodes[1].Status().Name, Addr: g.Nodes[1].Addr()}
	for _, n := range []grouptest.Access{g.Nodes[0], client} {
		l, err := n.Election("x").Leader(t.Context())
		grouptest.Must(t, err)
		for observed, err := range n.Election("x").Observe(t.Context()) {
			grouptest.Must(t, err)
			if observed.Member.Name != l.Member.Name {
				t.Errorf("observed %+v, and the leader is %+v", observed, l)
			}
			break
		}
		for listed, err := range n.Elections(t.Context(), "x") {
			grouptest.Must(t, err)
			if listed.Member.Name != l.Member.Name {
				t.Errorf("listed %+v, and the leader is %+v", listed, l)
			}
		}
		if l.Member.ID != want.ID || l.Member.Name != want.Name || l.Member.Addr != want.Addr || l.Node != want.ID {
			t.Errorf("the leader is %+v, want %+v", l, want)
		}
	}
	grouptest.MustCampaign(t, client.Election("y"), "by a client")
	l, err := g.Nodes[0].Election("y").Leader(t.Context())
	if err != nil || l.Member != (conclave.Member{ID: l.Node}) || l.Node == 0 {
		t.Errorf("%+v, %v", l, err)
	}
}

// Calls of Run on one handle lead one after the other: else the first that returns would resign for the other, whose lead would not
// learn of it.
func TestRun_SharedHandle(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		e := n.Election("x")
		grouptest.Must(t, e.Run(t.Context(), []byte("first"), func(leading context.Context, f conclave.Fence) error {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			err := e.Run(ctx, []byte("second"), func(context.Context, conclave.Fence) error {
				t.Error("two lead under one fence")
				return nil
			})
			grouptest.WantError(t, err, context.DeadlineExceeded)
			grouptest.WantLeader(t, n, e, "first", f)
			return leading.Err()
		}))
		grouptest.Must(t, e.Run(t.Context(), nil, func(context.Context, conclave.Fence) error { return nil }))
	})
}

// A call of Run that waits for another one of its handle, whose lead does not return, ends with the node.
func TestRun_SharedHandleClose(t *testing.T) {
	n := grouptest.Alone(t)
	e := n.Election("x")
	leads, end := make(chan struct{}), make(chan struct{})
	first, second := make(chan error, 1), make(chan error, 1)
	go func() {
		first <- e.Run(t.Context(), nil, func(context.Context, conclave.Fence) error {
			close(leads)
			<-end
			return nil
		})
	}()
	<-leads
	go func() {
		second <- e.Run(t.Context(), nil, func(context.Context, conclave.Fence) error { return errors.New("both lead") })
	}()
	grouptest.Must(t, n.Close(t.Context()))
	grouptest.WantError(t, <-second, conclave.ErrClosed)
	close(end)
	<-first
}
