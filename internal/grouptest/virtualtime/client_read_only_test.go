package virtualtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/remote"
)

// readOnly dials from outside as a client that only reads.
func readOnly(g *grouptest.Group, nodes ...*conclave.Node) *conclave.Client {
	return grouptest.Dial(g.T, &conclave.ClientConfig{ReadOnly: true, Dial: g.Net.Dialer(outsider)}, nodes...)
}

// lockNames are the locks that a listing yields.
func lockNames(t testing.TB, a grouptest.Access, opts ...conclave.ListOption[string]) (names []string) {
	for l, err := range a.Locks(grouptest.Within(t, 2*time.Second), "", opts...) {
		if err != nil {
			return append(names, err.Error())
		}
		names = append(names, l.Name)
	}
	return names
}

// Without a quorum a client that only reads is connected, shows what its member has, and says of everything else that it
// has no effect. However long it takes, a backup is read to its end.
func TestClient_ReadOnlyWithoutQuorum(t *testing.T) {
	grouptest.InBubble(t, outsider+1, func(g *grouptest.Group) {
		grouptest.MustPut(g.T, g.Nodes[0].KV(), "k", "v")
		for i := range 30 { // more than a member sends before it is read
			grouptest.MustPut(g.T, g.Nodes[0].KV(), fmt.Sprint("large ", i), strings.Repeat("x", 400<<10))
		}
		grouptest.MustLock(g.T, g.Nodes[0].FencedLock("held"))
		g.AwaitApplied(0)
		other := g.ID(1)
		g.Kill(1, 2)
		pass(10 * time.Second)
		c := readOnly(g, g.Nodes[0])
		for range 3 {
			e, err := c.KV().Get(grouptest.Within(g.T, 5*time.Second), "k", conclave.Stale())
			if err != nil || string(e.Value) != "v" {
				g.T.Errorf("%+v, %v", e, err)
			}
			for _, a := range []grouptest.Access{c, g.Nodes[0]} {
				if names := lockNames(g.T, a, conclave.Stale()); !slices.Equal(names, []string{"held"}) {
					g.T.Errorf("stale locks of a %T: %q", a, names)
				}
			}
			s, err := c.Status(grouptest.Within(g.T, 5*time.Second))
			if err != nil || s.ID != g.ID(0) || s.Leader != 0 || s.Redundancy >= 0 {
				g.T.Errorf("%+v, %v", s, err)
			}
			pass(time.Minute)
		}
		_, err := c.KV().Get(grouptest.Within(g.T, 5*time.Second), "k")
		grouptest.WantError(g.T, err, conclave.ErrUnavailable)
		if names := lockNames(g.T, c); len(names) != 1 || !strings.Contains(names[0], conclave.ErrUnavailable.Error()) {
			g.T.Errorf("locks that no quorum confirms: %q", names)
		}
		slow := &slowWriter{pause: 2 * time.Minute}
		grouptest.WantError(g.T, c.Backup(grouptest.Within(g.T, time.Hour), slow), conclave.ErrUnavailable)
		if slow.Len() < 12_000_000 {
			g.T.Errorf("a backup of %d bytes", slow.Len())
		}
		wantRefused(g.T, c, other)
	}, grouptest.Newcomers(1))
}

// slowWriter pauses once, behind the first MiB.
type slowWriter struct {
	bytes.Buffer
	pause time.Duration
}

func (w *slowWriter) Write(b []byte) (int, error) {
	if w.Len() > 1<<20 {
		pass(w.pause)
		w.pause = 0
	}
	return w.Buffer.Write(b)
}

// wantRefused checks that a client does nothing but read.
func wantRefused(t testing.TB, c *conclave.Client, other conclave.MemberID) {
	t.Helper()
	for what, do := range map[string]func(context.Context) error{
		"put":      func(ctx context.Context) error { _, err := c.KV().Put(ctx, "k", nil); return err },
		"lock":     func(ctx context.Context) error { _, err := c.FencedLock("x").Lock(ctx); return err },
		"campaign": func(ctx context.Context) error { _, err := c.Election("x").Campaign(ctx, nil); return err },
		"acquire":  func(ctx context.Context) error { _, err := c.Semaphore("x", 1).Acquire(ctx, 1); return err },
		"resize":   func(ctx context.Context) error { return c.Semaphore("x", 1).Resize(ctx, 2) },
		"acquire within the group's limit": func(ctx context.Context) error {
			_, err := c.Semaphore("x", conclave.GroupLimit).Acquire(ctx, 1)
			return err
		},
		"try to acquire within the group's limit": func(ctx context.Context) error {
			_, err := c.Semaphore("x", conclave.GroupLimit).TryAcquire(ctx, 1)
			return err
		},
		"renew":    func(ctx context.Context) error { return c.RenewSession(ctx, conclave.SessionID{1}) },
		"session":  func(ctx context.Context) error { _, err := c.NewSession(ctx, nil); return err },
		"attach":   func(ctx context.Context) error { _, err := c.AttachSession(ctx, conclave.SessionID{1}); return err },
		"close":    func(ctx context.Context) error { return c.CloseSession(ctx, conclave.SessionID{1}) },
		"config":   func(ctx context.Context) error { return c.SetGroupConfig(ctx, conclave.GroupConfig{Voters: 1}) },
		"remove":   func(ctx context.Context) error { return c.RemoveMember(ctx, other) },
		"transfer": func(ctx context.Context) error { return c.TransferLeadership(ctx, other) },
	} {
		err := do(grouptest.Within(t, 5*time.Second))
		if !errors.Is(err, conclave.ErrInvalid) || !strings.Contains(fmt.Sprint(err), "ReadOnly") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// With a quorum a client that only reads has linearizable reads, and its coming and going are no entries of the log.
func TestClient_ReadOnlyNotRegistered(t *testing.T) {
	grouptest.InBubble(t, outsider+1, func(g *grouptest.Group) {
		grouptest.MustPut(g.T, g.Nodes[0].KV(), "k", "v")
		pass(10 * time.Second)
		before, err := g.Nodes[0].KV().Index(grouptest.Within(g.T, time.Second))
		grouptest.Must(g.T, err)
		term, commit := g.Nodes[0].Status().Term, g.Nodes[0].Status().Commit
		for range 5 {
			c := readOnly(g, g.Nodes[:outsider]...)
			e, err := c.KV().Get(grouptest.Within(g.T, 5*time.Second), "k")
			if err != nil || e.ModifyIndex != before {
				g.T.Errorf("%+v, %v", e, err)
			}
			wantRefused(g.T, c, g.ID(1))
			if err := c.Close(grouptest.Within(g.T, time.Second)); err != nil {
				g.T.Error(err)
			}
		}
		// Renewals of the members are a few.
		if s := g.Nodes[0].Status(); s.Term != term || s.Commit > commit+5 {
			g.T.Errorf("term %d and %d entries, before %d and %d", s.Term, s.Commit, term, commit)
		}
	}, grouptest.Newcomers(1))
}

// Each address is reported: what answers with what it knows and why it has no leader, what refuses, and what is silent. So
// are addresses that only members have stated.
func TestInspect_WithoutQuorum(t *testing.T) {
	grouptest.InBubble(t, outsider+1, func(g *grouptest.Group) {
		silent := "127.4.0.1:7000"
		defer g.Net.Listen(outsider, silent).Close()
		g.Kill(1, 2)
		pass(20 * time.Second)
		began := time.Now()
		reports, err := conclave.Inspect(grouptest.Within(g.T, time.Minute), &conclave.ClientConfig{
			Addresses: []string{silent, g.Nodes[0].Addr()}, Dial: g.Net.Dialer(0),
		})
		grouptest.Must(g.T, err)
		if d := time.Since(began); d > 6*time.Second {
			g.T.Errorf("it takes %v", d)
		}
		if len(reports) != 4 || reports[0].Addr != silent || reports[1].Addr != g.Nodes[0].Addr() {
			g.T.Fatalf("%+v", reports)
		}
		var timeout interface{ Timeout() bool }
		if err := reports[0].Err; !errors.As(err, &timeout) || !timeout.Timeout() {
			g.T.Errorf("of a silent address: %v", err)
		}
		r := reports[1]
		if r.Err != nil || r.Status.ID != g.ID(0) || r.Status.Leader != 0 || len(r.Status.Members) != 3 || r.Health.Ready || !r.Health.Live {
			g.T.Errorf("%+v", r)
		}
		if why := r.Leaderless(); !strings.Contains(why, "this member reaches 1 of 3 voters, no majority: start the others") {
			g.T.Errorf("%q", why)
		}
		if c := r.Health.Contact; c < 15*time.Second || c > 25*time.Second {
			g.T.Errorf("the leader was heard %v ago", c)
		}
		for _, r := range reports[2:] {
			if r.Err == nil || !strings.Contains(r.Err.Error(), r.Addr) {
				g.T.Errorf("of a member that is dead, at %s: %v", r.Addr, r.Err)
			}
		}
	}, grouptest.Newcomers(1))
}

// Members of a group that works state their leader.
func TestInspect_Healthy(t *testing.T) {
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		pass(5 * time.Second)
		reports, err := conclave.Inspect(grouptest.Within(g.T, time.Minute), &conclave.ClientConfig{
			Addresses: []string{g.Nodes[1].Addr()}, Dial: g.Net.Dialer(0),
		})
		if err != nil || len(reports) != 3 {
			g.T.Fatalf("%+v, %v", reports, err)
		}
		for _, r := range reports {
			if r.Err != nil || r.Status.Leader == 0 || r.Leaderless() != "" || !r.Health.Ready || r.Health.Contact > time.Second {
				g.T.Errorf("%+v", r)
			}
		}
		_, err = conclave.Inspect(grouptest.Within(g.T, time.Minute), &conclave.ClientConfig{})
		grouptest.WantError(g.T, err, conclave.ErrInvalid)
	})
}

// A member whose build does not know a request answers the others.
func TestInspect_UnknownRequest(t *testing.T) {
	grouptest.InBubble(t, 1, func(g *grouptest.Group) {
		found, err := remote.Inspect(grouptest.Within(g.T, time.Minute), remote.Config{
			Addresses: []string{g.Nodes[0].Addr()}, Group: "conclave", Dial: g.Net.Dialer(0),
		}, "status", "of a later build")
		if err != nil || len(found) != 1 || found[0].Err != nil || len(found[0].Answers) != 1 || len(found[0].Answers["status"]) == 0 {
			g.T.Errorf("%+v, %v", found, err)
		}
	})
	var old conclave.MemberReport
	if why := old.Leaderless(); !strings.Contains(why, "a build that does not report why") {
		t.Error(why)
	}
}

// A member's VerifyPeer decides on clients that only read as on all others.
func TestInspect_Refused(t *testing.T) {
	refuse := grouptest.Edit(func(_ int, c *conclave.Config, _ *cluster.Seams) {
		c.VerifyPeer = func(p conclave.Peer) error {
			if p.Client && p.Name == "stranger" {
				return errors.New("no stranger")
			}
			return nil
		}
	})
	grouptest.InBubble(t, 1, func(g *grouptest.Group) {
		cfg := &conclave.ClientConfig{Name: "stranger", ReadOnly: true, Addresses: []string{g.Nodes[0].Addr()}, Dial: g.Net.Dialer(0)}
		reports, err := conclave.Inspect(grouptest.Within(g.T, time.Minute), cfg)
		if err != nil || len(reports) != 1 || !strings.Contains(fmt.Sprint(reports[0].Err), "no stranger") || reports[0].Status.ID != 0 {
			g.T.Errorf("%+v, %v", reports, err)
		}
		_, err = conclave.Dial(grouptest.Within(g.T, 5*time.Second), cfg)
		grouptest.WantError(g.T, err, conclave.ErrUnavailable)
	}, refuse)
}

// A member that was started again without the others is not open yet, and serves clients that only read.
func TestInspect_OpenWaits(t *testing.T) {
	grouptest.InBubble(t, outsider+1, func(g *grouptest.Group) {
		grouptest.MustPut(g.T, g.Nodes[0].KV(), "k", "v")
		for i := range 5 { // what is known to be committed comes to the disk with later entries
			grouptest.MustPut(g.T, g.Nodes[0].KV(), "later", fmt.Sprint(i))
			pass(time.Second)
		}
		addr := g.Nodes[0].Addr()
		g.Kill(0, 1, 2)
		opening, cancel := context.WithCancel(g.T.Context())
		opened := make(chan error, 1)
		go func() {
			n, err := g.OpenWith(opening, 0)
			if err == nil {
				err = n.Close(opening)
			}
			opened <- err
		}()
		pass(10 * time.Second)
		reports, err := conclave.Inspect(grouptest.Within(g.T, time.Minute), &conclave.ClientConfig{Addresses: []string{addr}, Dial: g.Net.Dialer(outsider)})
		if err != nil || len(reports) != 3 || reports[0].Err != nil || !strings.Contains(reports[0].Leaderless(), "1 of 3 voters") {
			g.T.Errorf("%+v, %v", reports, err)
		}
		c := grouptest.Dial(g.T, &conclave.ClientConfig{ReadOnly: true, Addresses: []string{addr}, Dial: g.Net.Dialer(outsider)})
		if e, err := c.KV().Get(grouptest.Within(g.T, 5*time.Second), "k", conclave.Stale()); err != nil || string(e.Value) != "v" {
			g.T.Errorf("%+v, %v", e, err)
		}
		cancel()
		grouptest.WantError(g.T, <-opened, conclave.ErrUnavailable)
	}, grouptest.Newcomers(1))
}
