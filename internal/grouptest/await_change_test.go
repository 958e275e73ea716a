package grouptest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/conclave-go/conclave"
)

// listed is what a node lists of members, and of a group's sessions and checks.
func listed(t *testing.T, n *conclave.Node, g *conclave.Group) string {
	t.Helper()
	ctx := Bounded(t)
	var text string
	for _, m := range n.Status().Members {
		text += fmt.Sprintln(m.ID, m.Name, m.Addr, m.Role, m.Alive)
	}
	sessions, err := Collect(g.Sessions(ctx))
	Must(t, err)
	for _, s := range sessions {
		text += fmt.Sprintln(s.ID, s.Name, s.Node)
	}
	checks, err := Collect(g.Checks(ctx))
	Must(t, err)
	for _, c := range checks {
		text += fmt.Sprintln(c.Node, c.Name, c.State, c.TTL)
	}
	return text
}

// A node that goes from number to number comes to list what the group has, whatever changes it.
func TestAwaitChange_EachKind(t *testing.T) {
	t.Parallel()
	t.Run("default", func(t *testing.T) {
		t.Parallel()
		wantEachChange(t, Start(t, 3), func(n *conclave.Node) *conclave.Group { return n.Group })
	})
	t.Run("further", func(t *testing.T) {
		t.Parallel()
		g := Start(t, 3)
		_, err := g.Nodes[0].CreateGroup(Bounded(t), "billing", conclave.GroupConfig{})
		Must(t, err)
		wantEachChange(t, g, func(n *conclave.Node) *conclave.Group { return n.WithGroup("billing") })
	})
}

func wantEachChange(t *testing.T, g *Group, of func(*conclave.Node) *conclave.Group) {
	watcher := g.Leader()
	other, third := (watcher+1)%3, (watcher+2)%3
	n := g.Nodes[watcher]
	group, there := of(n), of(g.Nodes[other])
	var session *conclave.Session
	var check *conclave.Check
	id := g.Nodes[third].Status().ID
	alive := func(want bool) bool {
		return slices.ContainsFunc(n.Status().Members, func(m conclave.Member) bool { return m.ID == id && m.Alive == want })
	}
	for _, step := range []struct {
		name string
		do   func() error
		done func() bool // besides another list; nil: nothing
	}{
		{"a session is created", func() (err error) { session, err = there.NewSession(Bounded(t), Lasting()); return err }, nil},
		{"a check is registered", func() (err error) { check, err = there.RegisterCheck(Bounded(t), "c", 0); return err }, nil},
		{"the check fails", func() error { return check.Fail(Bounded(t)) }, nil},
		{"the session is closed", func() error { return session.Close(Bounded(t)) }, nil},
		{"the check is deregistered", func() error { return check.Deregister(Bounded(t)) }, nil},
		{"a member stops", func() error { g.Kill(third); return nil }, func() bool { return alive(false) }},
		{"the member returns", func() error { g.Start(third); return nil }, func() bool { return alive(true) }},
		{"the member leaves", func() error { err := g.Nodes[third].Leave(Bounded(t)); g.Nodes[third] = nil; return err },
			func() bool { return len(n.Status().Members) == 2 }},
	} {
		number, err := group.AwaitChange(Bounded(t), 0)
		Must(t, err)
		before := listed(t, n, group)
		Must(t, step.do())
		for listed(t, n, group) == before || step.done != nil && !step.done() {
			next, err := group.AwaitChange(Bounded(t), number)
			if err != nil {
				t.Fatalf("%s: nothing wakes the caller: %v\n%s", step.name, err, listed(t, n, group))
			}
			if next <= number {
				t.Fatalf("%s: number %d after %d", step.name, next, number)
			}
			number = next
		}
	}
}

// Without a change AwaitChange blocks until its context is done, or the node is closed.
func TestAwaitChange_Ends(t *testing.T) {
	t.Parallel()
	n := Alone(t)
	s := MustSession(t, n, &conclave.SessionConfig{NoChecks: true})
	number, err := n.AwaitChange(Bounded(t), 0)
	Must(t, err)
	if info, err := n.SessionInfo(Bounded(t), s.ID()); err != nil || number < info.CreateIndex {
		t.Errorf("number %d, the session is %+v, %v", number, info, err)
	}
	l := s.FencedLock("l")
	for range 100 {
		MustLock(t, l)
		Must(t, l.Unlock(Bounded(t)))
		MustPut(t, n.KV(), "k", "v")
	}
	if again, err := n.AwaitChange(Bounded(t), 0); again != number || err != nil {
		t.Errorf("after mere use the number is %d, %v, want %d", again, err, number)
	}
	if unknown, err := n.AwaitChange(Bounded(t), number+1); unknown != number || err != nil {
		t.Errorf("a number of another node: %d, %v", unknown, err)
	}
	_, err = n.AwaitChange(Expired(), number)
	WantError(t, err, context.Canceled)
	ended := make(chan error)
	go func() {
		var err error
		for err == nil { // the end of the session comes first
			number, err = n.AwaitChange(context.Background(), number)
		}
		ended <- err
	}()
	Must(t, n.Close(Bounded(t)))
	WantError(t, <-ended, conclave.ErrClosed)
}
