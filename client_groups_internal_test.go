package conclave

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/remote"
)

// The answer to a client's CreateGroup comes late: the group has been deleted, and the client uses a later one of the name. Its handle to
// that one must not end, and the late one must not work.
func TestClientGroups_LateAnswer(t *testing.T) {
	n, err := Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close(context.Background())
	c, err := Dial(t.Context(), &ClientConfig{Addresses: []string{n.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if _, err := c.CreateGroup(t.Context(), "x", GroupConfig{}); err != nil {
		t.Fatal(err)
	}
	earlier := c.groups.door("x").number
	if err := c.DeleteGroup(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	later, err := c.CreateGroup(t.Context(), "x", GroupConfig{})
	if err != nil {
		t.Fatal(err)
	}
	late := c.groups.numbered("x", earlier)
	if err := late.reachNumber(t.Context(), earlier); !errors.Is(convert(err), ErrGroupNotFound) {
		t.Errorf("the late answer reaches a group: %v", err)
	}
	if _, err := late.group.KV().Put(t.Context(), "k", nil); !errors.Is(err, ErrGroupNotFound) {
		t.Errorf("a key of the deleted group: %v", err)
	}
	if err := c.groups.door("x").reachNumber(t.Context(), earlier); err != nil {
		t.Errorf("a call that waits for the group got a late answer: %v", err)
	}
	if _, err := later.KV().Put(t.Context(), "k", nil); err != nil {
		t.Errorf("the later group: %v", err)
	}
}

// A client creates a group, and has not learned yet that the one of that name which it has used is deleted. A stale read by the new handle finds the deleted one at a
// member that lags. The use of that one has ended, so Close leaves no connection to it.
func TestClientGroups_StaleReadFindsEarlier(t *testing.T) {
	l := newLateAnswers(t)
	c := l.client
	if _, err := c.WithGroup("x").KV().Put(t.Context(), "k", nil); err != nil {
		t.Fatal(err)
	}
	used := c.groups.door("x")
	created := c.groups.numbered("x", l.later+1) // by the answer to CreateGroup
	if err := created.reach(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := used.client.Usable(); err == nil {
		t.Error("Close has not ended the use of the deleted group")
	}
}

// lateAnswers is a client that has never used the group "x", of which there was one and is a later one.
type lateAnswers struct {
	client         *Client
	earlier, later uint32        // their numbers
	hold           chan struct{} // closed: connections are held back from then on
	held           chan struct{} // gets a value for each
	resume         chan struct{} // closed: they go on
}

func newLateAnswers(t *testing.T) *lateAnswers {
	n, err := Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close(context.Background()) })
	l := &lateAnswers{hold: make(chan struct{}), held: make(chan struct{}, 100), resume: make(chan struct{})}
	l.client, err = Dial(t.Context(), &ClientConfig{Addresses: []string{n.Addr()}, Dial: l.dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.client.Close(context.Background()) })
	for _, number := range []*uint32{&l.earlier, &l.later} {
		if err := n.DeleteGroup(t.Context(), "x"); err != nil && !errors.Is(err, ErrGroupNotFound) {
			t.Fatal(err)
		}
		if _, err := n.CreateGroup(t.Context(), "x", GroupConfig{}); err != nil {
			t.Fatal(err)
		}
		if *number, err = findGroup(t.Context(), n.Group, "x", false); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func (l *lateAnswers) dial(ctx context.Context, addr string) (net.Conn, error) {
	select {
	case <-l.hold:
		l.held <- struct{}{}
		select {
		case <-l.resume:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	default:
	}
	return new(net.Dialer).DialContext(ctx, "tcp", addr)
}

// The answer to the first CreateGroup of a client is late, and the client is about to connect to the group of that number, when another
// call finds the later group of the name. Both calls reach that one.
func TestClientGroups_LateAnswerToFirstUse(t *testing.T) {
	l := newLateAnswers(t)
	close(l.hold)
	late := l.client.groups.numbered("x", l.earlier)
	reached := make(chan error, 2)
	go func() { reached <- late.reachNumber(t.Context(), l.earlier) }()
	<-l.held
	other := l.client.WithGroup("x")
	go func() {
		_, err := other.KV().Put(t.Context(), "k", nil)
		reached <- err
	}()
	<-l.held // the connection to the later group
	close(l.resume)
	for range 2 {
		if err := <-reached; err != nil {
			t.Errorf("a call that began before the later group was found, or found it: %v", err)
		}
	}
	if late.group != other {
		t.Error("the late answer belongs to another group")
	}
}

// A member states that the group of a late answer is deleted: the call fails, and handles to the name, which have reached no group, can
// reach the later one.
func TestClientGroups_LateAnswerRefused(t *testing.T) {
	l := newLateAnswers(t)
	other := l.client.WithGroup("x")
	late := l.client.groups.numbered("x", l.earlier)
	if err := late.reachNumber(t.Context(), l.earlier); !errors.Is(convert(err), ErrGroupNotFound) {
		t.Errorf("the late answer reaches a group: %v", err)
	}
	if _, err := other.KV().Put(t.Context(), "k", nil); err != nil {
		t.Errorf("a call by another handle: %v", err)
	}
	if number := l.client.groups.door("x").number; number != l.later {
		t.Errorf("the name stands for group %d, want %d", number, l.later)
	}
}

// A call that is submitted once the connection to a deleted group has ended, and before the client knows, has no effect, and its error says so.
func TestClientGroups_DeletedMeanwhile(t *testing.T) {
	l := newLateAnswers(t)
	c := l.client
	g := c.WithGroup("x")
	if _, err := g.KV().Put(t.Context(), "k", nil); err != nil {
		t.Fatal(err)
	}
	c.groups.door("x").last.remote.Close(remote.ErrDeleted)
	if _, err := g.KV().Put(t.Context(), "k", nil); !errors.Is(err, ErrGroupNotFound) || errors.Is(err, ErrUnknown) {
		t.Errorf("put: %v", err)
	}
}

// A client is closed while it registers in a group: what waits for that has no effect, whatever becomes of the registration.
func TestClientGroups_ClosedWhileRegistering(t *testing.T) {
	c := newLateAnswers(t).client
	f := c.groups.door("x")
	if err := f.reach(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	a := &attempt{remote: f.last.remote, done: make(chan struct{})}
	c.groups.mu.Lock()
	f.last = a
	c.groups.mu.Unlock()
	c.groups.close()
	c.groups.ended(f, a, &client.Fault{Kind: client.Unknown, Cause: remote.ErrClosed})
	if err := convert(a.err); !errors.Is(err, ErrClosed) || errors.Is(err, ErrUnknown) {
		t.Errorf("%v", err)
	}
}
