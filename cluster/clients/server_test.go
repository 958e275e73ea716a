package clients

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// Nothing is kept of a client that disconnects while the loop is busy, before it is attached.
func TestClients_DisconnectedBeforeAttached(t *testing.T) {
	var busy atomic.Pointer[chan struct{}]
	m := serving(t, func(m *member, _ *Handlers) {
		m.ticked = func() {
			if until := busy.Load(); until != nil {
				<-*until
			}
		}
	})
	for range 10 {
		until := make(chan struct{})
		busy.Store(&until)
		pass(2 * heartbeat)
		for range 5 {
			c := m.connect(t)
			pass(time.Millisecond) // until the frame is sent
			c.Close(nil)
		}
		pass(heartbeat)
		busy.Store(nil)
		close(until)
	}
	var kept int
	for range 3000 {
		m.on(func() { kept = len(m.attached) + len(m.attaching) })
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
	c := m.connect(t)
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
	m := serving(t, func(_ *member, h *Handlers) {
		h.Serve = func(_ context.Context, r *wire.Request, _ Answer) error {
			if r.GetKind() == "panic" {
				panic("for a test")
			}
			return errors.New(string(r.GetBody()))
		}
		h.Failure = func(err error) (wire.Failure, string) { return wire.Failure_FAILURE_OTHER, err.Error() }
	})
	c := m.connect(t)
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
	for i, views := range []bool{true, false} {
		members := i + 1
		c := m.dial(t)
		c.Send(&wire.ClientFrame{Body: &wire.ClientFrame_Attach{Attach: &wire.Attach{Views: views}}}, 0)
		f := new(wire.MemberFrame)
		if err := c.Read(f); err != nil || f.GetAttached().GetLeaderless() || len(f.GetAttached().GetMembers()) != members {
			t.Fatal(f, err)
		}
		m.on(func() { m.members = append(m.members, "another") })
		// A tick sends views, and proposes renewals: the answer to this one follows.
		c.Send(&wire.ClientFrame{Body: &wire.ClientFrame_Renew{Renew: 7}}, 0)
		viewed := false
		for f.GetRenewed() == nil {
			f = new(wire.MemberFrame)
			if err := c.Read(f); err != nil {
				t.Fatal(err)
			}
			if v := f.GetView(); v != nil {
				if viewed = true; v.GetLeaderless() || v.GetLevel() != wire.FeatureLevel || len(v.GetMembers()) != members+1 {
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
	m := serving(t, func(m *member, _ *Handlers) {
		m.ticked = func() {
			if until := busy.Load(); until != nil {
				select {
				case entered <- struct{}{}:
				default:
				}
				<-*until
			}
		}
	})
	c := m.connect(t)
	if err := c.Read(new(wire.MemberFrame)); err != nil {
		t.Fatal(err)
	}
	until := make(chan struct{})
	busy.Store(&until)
	<-entered
	before := len(m.queue)
	for range 100 {
		c.Send(&wire.ClientFrame{Body: &wire.ClientFrame_Submission{Submission: &wire.Submission{}}}, 0)
	}
	for end := time.Now().Add(30 * time.Second); len(m.queue) == before && time.Now().Before(end); {
		pass(time.Millisecond)
	}
	pass(5 * heartbeat) // more would follow
	if n := len(m.queue) - before; n != 1 {
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
			c := m.dial(t)
			for _, f := range frames {
				c.Send(f, 0)
			}
			stays := errors.New("the connection stays open")
			defer time.AfterFunc(5*time.Minute, func() { c.Close(stays) }).Stop()
			for c.Read(new(wire.MemberFrame)) == nil {
			}
			if err := c.Err(); errors.Is(err, stays) {
				t.Error(err)
			}
			m.on(func() {
				if len(m.attached)+len(m.attaching) > len(frames)-1 {
					t.Error("the client is attached")
				}
			})
		})
	}
}
