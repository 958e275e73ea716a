package conclave_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// Listings begin behind an item, whether that exists or not.
func TestListings_After(t *testing.T) {
	n := grouptest.Alone(t)
	var sessions []string
	for i := range 5 {
		s := grouptest.MustSession(t, n, grouptest.Lasting())
		sessions = append(sessions, s.ID().String())
		name := fmt.Sprint("x/", i)
		grouptest.MustLock(t, s.FencedLock(name))
		grouptest.MustAcquire(t, s.Semaphore(name, 3), 2)
		grouptest.MustCampaign(t, s.Election(name), "")
		grouptest.MustCheck(t, n, name, 0)
	}
	ctx := t.Context()
	want := func(what string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v; want %v", what, got, want)
		}
	}
	for after, rest := range map[string][]string{"x/2": {"x/3", "x/4"}, "x/22": {"x/3", "x/4"}, "x/4": nil, "a": {"x/0", "x/1", "x/2", "x/3", "x/4"}, "y": nil} {
		locks, err := grouptest.Collect(n.Locks(ctx, "x/", conclave.After(after)))
		want("locks", names(t, locks, err, func(l conclave.LockInfo) string { return l.Name }), rest...)
		semaphores, err := grouptest.Collect(n.Semaphores(ctx, "x/", conclave.After(after)))
		want("semaphores", names(t, semaphores, err, func(s conclave.SemaphoreInfo) string { return s.Name }), rest...)
		elections, err := grouptest.Collect(n.Elections(ctx, "x/", conclave.After(after)))
		want("elections", names(t, elections, err, func(l conclave.Leader) string { return l.Name }), rest...)
	}
	all, err := grouptest.Collect(n.Sessions(ctx))
	grouptest.Must(t, err)
	rest, err := grouptest.Collect(n.Sessions(ctx, conclave.After(all[2])))
	want("sessions", names(t, rest, err, func(s conclave.SessionInfo) string { return s.ID.String() }), sessions[3:]...)
	checks, err := grouptest.Collect(n.Checks(ctx, conclave.After(conclave.CheckInfo{Node: n.Status().ID, Name: "x/2"})))
	want("checks", names(t, checks, err, func(c conclave.CheckInfo) string { return c.Name }), "x/3", "x/4")
}
