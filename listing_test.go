package conclave_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// listed is more than two pages.
const listed = 600

func names[T any](t *testing.T, list []T, err error, name func(T) string) []string {
	t.Helper()
	grouptest.Must(t, err)
	var all []string
	for _, item := range list {
		all = append(all, name(item))
	}
	return all
}

func wantNames(t *testing.T, what string, got []string) {
	t.Helper()
	var want []string
	for i := range listed {
		want = append(want, fmt.Sprintf("x/%04d", i))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d %s, want %d from %s to %s", len(got), what, listed, want[0], want[listed-1])
	}
}

// A listing has every item of its prefix once, in order, over several pages.
func TestListings_Pages(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		s := grouptest.MustSession(t, n, grouptest.Lasting())
		for i := range listed {
			name := fmt.Sprintf("x/%04d", i)
			grouptest.MustLock(t, s.FencedLock(name))
			grouptest.MustAcquire(t, s.Semaphore(name, 3), 2)
			grouptest.MustCampaign(t, s.Election(name), "value of "+name)
		}
		for _, name := range []string{"w", "x", "x0", "y"} {
			grouptest.MustLock(t, s.FencedLock(name))
		}
		ctx := t.Context()
		locks, err := grouptest.Collect(n.Locks(ctx, "x/"))
		wantNames(t, "locks", names(t, locks, err, func(l conclave.LockInfo) string { return l.Name }))
		semaphores, err := grouptest.Collect(n.Semaphores(ctx, "x/"))
		wantNames(t, "semaphores", names(t, semaphores, err, func(s conclave.SemaphoreInfo) string { return s.Name }))
		elections, err := grouptest.Collect(n.Elections(ctx, "x/"))
		wantNames(t, "elections", names(t, elections, err, func(l conclave.Leader) string { return l.Name }))
		if l := elections[7]; string(l.Value) != "value of x/0007" || l.Session != s.ID() || l.Fence == 0 {
			t.Errorf("an election is listed as %+v", l)
		}
		if p := semaphores[7]; p.Limit != 3 || p.Available != 1 || len(p.Holders) != 1 {
			t.Errorf("a semaphore is listed as %+v", p)
		}
	})
}

// A page ends early behind long values, and the listing goes on.
func TestListings_ShortPage(t *testing.T) {
	const elections, value = 20, 64 << 10 // more than a page has bytes
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		for i := range elections {
			grouptest.MustCampaign(t, n.Election(fmt.Sprint(i)), strings.Repeat("v", value))
		}
		leaders, err := grouptest.Collect(n.Elections(t.Context(), ""))
		if grouptest.Must(t, err); len(leaders) != elections || len(leaders[elections-1].Value) != value {
			t.Errorf("%d elections are listed, want %d", len(leaders), elections)
		}
	})
}

// Of a semaphore with many holders the listing and Info have the first ones and the number, and
// Holders has all, on a member and on a client.
func TestSemaphores_ManyHolders(t *testing.T) {
	const holders, described = 1230, 1024
	n := grouptest.Alone(t)
	var acquiring sync.WaitGroup
	for range 41 {
		acquiring.Go(func() {
			for range holders / 41 {
				if _, err := n.Semaphore("a", holders).Acquire(t.Context(), 1); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	acquiring.Wait()
	grouptest.MustAcquire(t, n.Semaphore("b", 1), 1)
	semaphores, err := grouptest.Collect(n.Semaphores(t.Context(), ""))
	grouptest.Must(t, err)
	if len(semaphores) != 2 || semaphores[1].HolderCount != 1 {
		t.Fatalf("%d semaphores, want a and b: %+v", len(semaphores), semaphores[1:])
	}
	for _, a := range []grouptest.Access{n, grouptest.Dial(t, &conclave.ClientConfig{}, n)} {
		s := a.Semaphore("a", holders)
		for _, info := range []conclave.SemaphoreInfo{semaphores[0], grouptest.SemaphoreInfo(t, s)} {
			if info.HolderCount != holders || len(info.Holders) != described {
				t.Errorf("%d holders of %d", len(info.Holders), info.HolderCount)
			}
		}
		all, err := grouptest.Collect(s.Holders(t.Context(), 0))
		grouptest.Must(t, err)
		if len(all) != holders || !slices.Equal(all[:described], semaphores[0].Holders) {
			t.Errorf("%d holders, want %d", len(all), holders)
		}
		rest, err := grouptest.Collect(s.Holders(t.Context(), all[described].Fence))
		if grouptest.Must(t, err); !slices.Equal(rest, all[described+1:]) {
			t.Errorf("%d holders after one, want %d", len(rest), holders-described-1)
		}
	}
}

func TestSessions_Pages(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		want := make(map[conclave.SessionID]bool)
		for range listed {
			want[grouptest.MustSession(t, n, grouptest.Lasting()).ID()] = true
		}
		var last uint64
		for s, err := range n.Sessions(t.Context()) {
			grouptest.Must(t, err)
			if s.CreateIndex < last {
				t.Errorf("create index %d after %d", s.CreateIndex, last)
			}
			last = s.CreateIndex
			delete(want, s.ID)
		}
		if len(want) > 0 {
			t.Errorf("%d of %d sessions are not listed", len(want), listed)
		}
	})
}

func TestChecks_List(t *testing.T) {
	n := grouptest.Alone(t)
	c := grouptest.MustCheck(t, n, "disk", time.Minute)
	grouptest.Must(t, c.Warn(t.Context()))
	list, err := grouptest.Collect(n.Checks(t.Context()))
	grouptest.Must(t, err)
	i := slices.IndexFunc(list, func(c conclave.CheckInfo) bool { return c.Name == "disk" })
	if i < 0 || list[i].State != conclave.CheckWarning || list[i].TTL != time.Minute || list[i].Remaining <= 0 || list[i].Node != n.Status().ID {
		t.Errorf("the check is not listed as it is: %+v", list)
	}
	if !slices.ContainsFunc(list, func(c conclave.CheckInfo) bool {
		return c.Name == "gossip" && c.State == conclave.CheckPassing
	}) {
		t.Errorf("the built-in check is not listed: %+v", list)
	}
}

func TestListings_EndEarly(t *testing.T) {
	n := grouptest.Alone(t)
	l := n.FencedLock("a")
	grouptest.MustLock(t, l)
	for range n.Locks(t.Context(), "") {
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range n.Locks(ctx, "") {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
	}
	grouptest.Kill(n)
	for _, err := range n.Sessions(t.Context()) {
		grouptest.WantError(t, err, conclave.ErrClosed)
	}
}

// An election in the lock-delay of its last leader has no leader and is not listed;
// what follows it is.
func TestElections_LockDelay(t *testing.T) {
	grouptest.BothWays(t, func(t *testing.T, n grouptest.Access) {
		ended := grouptest.MustSession(t, n, &conclave.SessionConfig{LockDelay: time.Minute})
		grouptest.MustCampaign(t, ended.Election("a"), "ended")
		grouptest.MustCampaign(t, n.Election("b"), "leads")
		grouptest.Must(t, n.CloseSession(t.Context(), ended.ID()))
		list, err := grouptest.Collect(n.Elections(t.Context(), ""))
		grouptest.Must(t, err)
		if len(list) != 1 || list[0].Name != "b" || list[0].Fence == 0 {
			t.Errorf("listed %+v, want the election that has a leader", list)
		}
	})
}
