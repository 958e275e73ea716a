package cluster

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// serving returns a member, alone in its group, that accepts clients.
func serving(t *testing.T, ticked func(Machine)) *Member {
	t.Helper()
	cfg := alone(t)
	cfg.Ticked = ticked
	cfg.Clients = ClientsConfig{
		Registered: func(Machine, wire.ID) bool { return true },
		SessionOf:  func(Machine, wire.ID) (wire.ID, bool) { return wire.ID{}, false },
		Occupied:   func(Machine, wire.ID) bool { return true },
		Free:       func(Machine) int { return 1 },
		Serve:      func(ctx context.Context, _ *wire.Request, _ Answer) error { <-ctx.Done(); return ctx.Err() },
		Failure:    func(error) (wire.Failure, string) { return wire.Failure_FAILURE_OTHER, "" },
	}
	m := start(t, cfg)
	t.Cleanup(m.Stop)
	r := m.Registration()
	r.Ttl = int64(time.Hour)
	command, err := wire.EncodeCommand(&wire.Command{Op: &wire.Command_Register{Register: r}})
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := m.execute(t.Context(), command); err != nil || reply.GetCode() != wire.Code_OK {
		t.Fatal(reply, err)
	}
	if err := m.RaiseLevel(t.Context(), wire.LevelClient, true); err != nil {
		t.Fatal(err)
	}
	return m
}

// connectClient is dialMember with an Attach.
func connectClient(t *testing.T, m *Member) *transport.ClientConn {
	t.Helper()
	c := dialMember(t, m)
	c.Send(&wire.ClientFrame{Body: &wire.ClientFrame_Attach{Attach: &wire.Attach{}}}, 0)
	return c
}

// dialMember connects a client with a key of its own.
func dialMember(t *testing.T, m *Member) *transport.ClientConn {
	t.Helper()
	d, err := transport.NewDialer(transport.DialerConfig{Group: m.cfg.Group, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	_, key, _ := ed25519.GenerateKey(nil) // never fails
	c, err := d.Connect(t.Context(), transport.Target{Addr: m.cfg.Advertise}, key, wire.ID{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// pass lets other goroutines run while the loop is busy.
func pass(d time.Duration) { <-time.After(d) } // the subject is a loop that is busy for some time

// onLoop runs f on the loop's goroutine.
func onLoop(m *Member, f func()) {
	done := make(chan struct{})
	m.post(event{run: func(*core.Core) { f(); close(done) }})
	<-done
}

// Nothing is kept of a client that disconnects while the loop is busy, before it is attached.
func TestClients_DisconnectedBeforeAttached(t *testing.T) {
	var busy atomic.Pointer[chan struct{}]
	m := serving(t, func(Machine) {
		if until := busy.Load(); until != nil {
			<-*until
		}
	})
	for range 10 {
		until := make(chan struct{})
		busy.Store(&until)
		pass(2 * m.cfg.Heartbeat)
		for range 5 {
			c := connectClient(t, m)
			pass(time.Millisecond) // until the frame is sent
			c.Close(nil)
		}
		pass(m.cfg.Heartbeat)
		busy.Store(nil)
		close(until)
	}
	var kept int
	for range 3000 {
		onLoop(m, func() { kept = len(m.clients.attached) + len(m.clients.attaching) })
		if kept == 0 {
			return
		}
		pass(10 * time.Millisecond)
	}
	t.Errorf("%d clients that have disconnected are attached", kept)
}

// A request beyond the limit is refused. The connection stays, and the place of a request that
// has been cancelled is free again.
func TestClients_TooManyRequests(t *testing.T) {
	m := serving(t, nil)
	c := connectClient(t, m)
	request := func(id uint64) {
		c.Send(&wire.ClientFrame{Body: &wire.ClientFrame_Request{Request: &wire.Request{Id: id}}}, 0)
	}
	// next returns the next answer's request.
	next := func() uint64 {
		for {
			f := new(wire.MemberFrame)
			if err := c.Read(f); err != nil {
				t.Fatal(err)
			}
			if a := f.GetAnswer(); a != nil {
				if a.GetFailure() != wire.Failure_FAILURE_OTHER || !a.GetLast() {
					t.Errorf("got %v", a)
				}
				return a.GetId()
			}
		}
	}
	for id := range uint64(maxRequests + 2) {
		request(id)
	}
	for id := range uint64(2) {
		if got := next(); got != maxRequests+id {
			t.Errorf("request %d was refused", got)
		}
	}
	c.Send(&wire.ClientFrame{Body: &wire.ClientFrame_Cancel{Cancel: 7}}, 0)
	// Two are unanswered at a time, and one takes the place once the cancelled one has ended: so one of the
	// two is refused.
	id := uint64(1000)
	request(id)
	for taken := false; !taken; {
		request(id + 1)
		switch refused := next(); refused {
		case id:
			id++
		case id + 1:
			taken = true
		default:
			t.Fatalf("request %d was refused", refused)
		}
	}
}

// A request that panics, and one whose error has bytes that are no text, fail alone: what else the
// connection is used for goes on.
func TestClients_RequestFailsAlone(t *testing.T) {
	m := serving(t, nil)
	m.cfg.Clients.Serve = func(_ context.Context, r *wire.Request, _ Answer) error {
		if r.GetKind() == "panic" {
			panic("for a test")
		}
		return errors.New(string(r.GetBody()))
	}
	m.cfg.Clients.Failure = func(err error) (wire.Failure, string) { return wire.Failure_FAILURE_OTHER, err.Error() }
	c := connectClient(t, m)
	requests := []*wire.Request{
		{Kind: "panic"}, {Body: []byte("caf\xc3")}, {Body: bytes.Repeat([]byte("\xff"), wire.MaxRequest)}, {Body: []byte("ordinary")},
	}
	for i, r := range requests {
		r.Id = uint64(i)
		if err := c.SendWait(t.Context(), &wire.ClientFrame{Body: &wire.ClientFrame_Request{Request: r}}, len(r.GetBody())); err != nil {
			t.Fatal(err)
		}
	}
	for answered := 0; answered < len(requests); {
		f := new(wire.MemberFrame)
		if err := c.Read(f); err != nil {
			t.Fatal(err)
		}
		if a := f.GetAnswer(); a != nil {
			if answered++; a.GetFailure() != wire.Failure_FAILURE_OTHER || a.GetError() == "" {
				t.Errorf("got %v", a)
			}
		}
	}
}

// A client that asks for it learns of what the member sees of its group when that changes, and
// one of an earlier build, which would take it for a violation, does not.
func TestClients_Views(t *testing.T) {
	m := serving(t, nil)
	for _, views := range []bool{true, false} {
		c := dialMember(t, m)
		c.Send(&wire.ClientFrame{Body: &wire.ClientFrame_Attach{Attach: &wire.Attach{Views: views}}}, 0)
		f := new(wire.MemberFrame)
		if err := c.Read(f); err != nil || f.GetAttached().GetLeaderless() || len(f.GetAttached().GetMembers()) != 1 {
			t.Fatal(f, err)
		}
		onLoop(m, func() {
			for _, attached := range m.clients.attached {
				attached.view = &wire.GroupView{Leaderless: true} // as if it had been so
			}
			m.clients.view = nil
		})
		// A tick sends views, and proposes renewals: the answer to this one follows.
		c.Send(&wire.ClientFrame{Body: &wire.ClientFrame_Renew{Renew: 7}}, 0)
		viewed := false
		for f.GetRenewed() == nil {
			f = new(wire.MemberFrame)
			if err := c.Read(f); err != nil {
				t.Fatal(err)
			}
			if v := f.GetView(); v != nil {
				if viewed = true; v.GetLeaderless() || v.GetLevel() != wire.FeatureLevel || len(v.GetMembers()) != 1 {
					t.Errorf("got %v", v)
				}
			}
		}
		if viewed != views {
			t.Errorf("asked for views: %v; got some: %v", views, viewed)
		}
	}
}

// A client that sends faster than the loop works has one frame there at a time.
func TestClients_OneFrameAtTheLoop(t *testing.T) {
	var busy atomic.Pointer[chan struct{}]
	entered := make(chan struct{}, 1)
	m := serving(t, func(Machine) {
		if until := busy.Load(); until != nil {
			select {
			case entered <- struct{}{}:
			default:
			}
			<-*until
		}
	})
	c := connectClient(t, m)
	if err := c.Read(new(wire.MemberFrame)); err != nil {
		t.Fatal(err)
	}
	until := make(chan struct{})
	busy.Store(&until)
	<-entered
	before := len(m.inbound)
	for range 100 {
		c.Send(&wire.ClientFrame{Body: &wire.ClientFrame_Submission{Submission: &wire.Submission{}}}, 0)
	}
	for end := time.Now().Add(30 * time.Second); len(m.inbound) == before && time.Now().Before(end); {
		pass(time.Millisecond)
	}
	pass(5 * m.cfg.Heartbeat) // more would follow
	if n := len(m.inbound) - before; n != 1 {
		t.Errorf("%d frames of one client wait for the loop", n)
	}
	busy.Store(nil)
	close(until)
}

// A frame with more calls, or more to be looked up, than a correct client has ends the
// connection: each costs the loop time.
func TestClients_FrameOfTooManyItems(t *testing.T) {
	m := serving(t, nil)
	attach := &wire.ClientFrame{Body: &wire.ClientFrame_Attach{Attach: &wire.Attach{Awaiting: make([]*wire.Awaiting, 250_000)}}}
	for i := range attach.GetAttach().GetAwaiting() {
		attach.GetAttach().Awaiting[i] = &wire.Awaiting{Seq: 1}
	}
	sessions := &wire.ClientFrame{Body: &wire.ClientFrame_Attach{Attach: &wire.Attach{Sessions: make([][]byte, 500_000)}}}
	submit := &wire.ClientFrame{Body: &wire.ClientFrame_Submission{Submission: &wire.Submission{Calls: make([]*wire.Call, 250_000)}}}
	for i := range submit.GetSubmission().GetCalls() {
		submit.GetSubmission().Calls[i] = &wire.Call{Seq: 1}
	}
	for name, frames := range map[string][]*wire.ClientFrame{
		"attach": {attach}, "sessions": {sessions},
		"submission": {{Body: &wire.ClientFrame_Attach{Attach: &wire.Attach{}}}, submit},
	} {
		t.Run(name, func(t *testing.T) {
			c := dialMember(t, m)
			for _, f := range frames {
				c.Send(f, 0)
			}
			stays := errors.New("the connection stays open")
			defer time.AfterFunc(10*time.Second, func() { c.Close(stays) }).Stop()
			for c.Read(new(wire.MemberFrame)) == nil {
			}
			if err := c.Err(); errors.Is(err, stays) {
				t.Error(err)
			}
			onLoop(m, func() {
				if len(m.clients.attached)+len(m.clients.attaching) > len(frames)-1 {
					t.Error("the client is attached")
				}
			})
		})
	}
}
