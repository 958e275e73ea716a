package groups

import (
	"context"
	"errors"
	"testing"

	"github.com/conclave-go/conclave"
	gt "github.com/conclave-go/conclave/internal/grouptest"
)

// What waits under a session without TTL ends with the group, and with that all that the session could have been granted: nothing about it is unknown.
func TestGroup_DeletedUnderWaitWithoutTTL(t *testing.T) {
	t.Parallel()
	g := start(t, 3)
	ctx := gt.Bounded(t)
	for _, who := range []string{"node", "client"} {
		t.Run(who, func(t *testing.T) {
			create(t, g.Nodes[0], "tenant")
			gt.MustLock(t, g.Nodes[0].WithGroup("tenant").FencedLock("x"))
			tenant := g.Nodes[1].WithGroup("tenant")
			if who == "client" {
				tenant = gt.Dial(t, &conclave.ClientConfig{}, g.Nodes...).WithGroup("tenant")
			}
			s, err := tenant.NewSession(ctx, &conclave.SessionConfig{TTL: conclave.NoTTL, NoChecks: true})
			gt.Must(t, err)
			waits := map[string]func() error{
				"lock": func() error {
					_, err := s.FencedLock("x").Lock(ctx)
					return err
				},
				"campaign": func() error {
					_, err := s.Election("e").Campaign(ctx, nil)
					return err
				},
				"acquire": func() error {
					_, err := s.Semaphore("s", 1).Acquire(ctx, 1)
					return err
				},
			}
			gt.MustCampaign(t, g.Nodes[0].WithGroup("tenant").Election("e"), "v")
			gt.MustAcquire(t, g.Nodes[0].WithGroup("tenant").Semaphore("s", 1), 1)
			ended := make(map[string]chan error)
			for name, wait := range waits {
				result := make(chan error, 1)
				ended[name] = result
				go func() { result <- wait() }()
			}
			gt.AwaitWaiters(t, g.Nodes[0].WithGroup("tenant").FencedLock("x"), 1)
			gt.AwaitAcquirers(t, g.Nodes[0].WithGroup("tenant").Semaphore("s", 1), 1)
			gt.Must(t, g.Nodes[2].DeleteGroup(context.WithoutCancel(ctx), "tenant", conclave.Force()))
			for name, c := range ended {
				if err := <-c; !errors.Is(err, conclave.ErrGroupNotFound) || errors.Is(err, conclave.ErrUnknown) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if err := s.Close(ctx); err != nil && !errors.Is(err, conclave.ErrGroupNotFound) || errors.Is(err, conclave.ErrUnknown) {
				t.Errorf("close of the session: %v", err)
			}
		})
	}
}
