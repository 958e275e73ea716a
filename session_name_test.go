package conclave_test

import (
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// What shows a holder shows the name of its session, and whether its process is a client.
func TestListings_SessionNames(t *testing.T) {
	n, err := conclave.Open(t.Context(), &conclave.Config{Name: "anna"})
	grouptest.Must(t, err)
	t.Cleanup(func() { grouptest.Kill(n) })
	c := grouptest.Dial(t, &conclave.ClientConfig{Name: "porter"}, n)
	for _, holder := range []struct {
		grouptest.Access
		name   string
		client bool
	}{{n, "anna", false}, {c, "porter", true}} {
		for _, asked := range []grouptest.Access{n, c} {
			ctx := t.Context()
			lock, permits, election := holder.FencedLock("x"), holder.Semaphore("x", 2), holder.Election("x")
			grouptest.MustLock(t, lock)
			permit := grouptest.MustAcquire(t, permits, 1)
			grouptest.MustCampaign(t, election, "value")
			info, err := asked.FencedLock("x").Info(ctx)
			grouptest.Must(t, err)
			state, err := asked.Semaphore("x", 2).Info(ctx)
			grouptest.Must(t, err)
			holders, err := grouptest.Collect(asked.Semaphore("x", 2).Holders(ctx, 0))
			grouptest.Must(t, err)
			elections, err := grouptest.Collect(asked.Elections(ctx, ""))
			grouptest.Must(t, err)
			type shown struct {
				name   string
				client bool
			}
			locks := grouptest.Locks(t, asked, "")
			if len(locks) != 1 || len(state.Holders) != 1 || len(holders) != 1 || len(elections) != 1 {
				t.Fatal(locks, state, holders, elections)
			}
			want := shown{holder.name, holder.client}
			for what, got := range map[string]shown{
				"lock": {info.SessionName, info.Client}, "locks": {locks[0].SessionName, locks[0].Client}, "semaphore": {state.Holders[0].SessionName, state.Holders[0].Client},
				"holders": {holders[0].SessionName, holders[0].Client}, "elections": {elections[0].SessionName, elections[0].Client},
			} {
				if got != want {
					t.Errorf("%s: %+v, want %+v", what, got, want)
				}
			}
			grouptest.Must(t, lock.Unlock(ctx))
			grouptest.Must(t, permit.Release(ctx))
			grouptest.Must(t, election.Resign(ctx))
		}
	}
	sessions, err := grouptest.Collect(n.Sessions(t.Context()))
	grouptest.Must(t, err)
	for _, s := range sessions {
		if s.Client != (s.Name == "porter") {
			t.Errorf("%+v", s)
		}
	}
}
