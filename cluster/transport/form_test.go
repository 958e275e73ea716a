package transport

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

func TestForm(t *testing.T) {
	id := identity(1)
	id.Cluster = wire.ID{}
	a := start(t, id, listenTCP(t), nil)
	b := start(t, identity(2), listenTCP(t), nil) // belongs to a cluster: its handler decides
	req := &wire.FormRequest{Proposal: &wire.Proposal{Cluster: testCluster[:], Voters: 3}}
	b.events.form = func(got *wire.FormRequest) *wire.FormReply {
		if !proto.Equal(got, req) {
			t.Errorf("got %v, want %v", got, req)
		}
		return &wire.FormReply{Refusal: "formed already"}
	}
	reply, err := a.Form(context.Background(), b.addr, req)
	if err != nil || reply.GetAccepted() || reply.GetRefusal() != "formed already" {
		t.Errorf("got %v, %v", reply, err)
	}
	if _, err := a.Form(context.Background(), a.addr, req); err == nil {
		t.Error("a proposal to itself was delivered")
	} else {
		checkRefusal(t, err, ReasonSelf, "leads back")
	}
	req.Proposal.Founders = []*wire.Founder{{Name: string(make([]byte, maxForm))}}
	if _, err := a.Form(context.Background(), b.addr, req); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a proposal over the limit: %v", err)
	}
}

// The caller's context ends the wait for an answer.
func TestFormIsBounded(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), nil)
	b := start(t, identity(2), listenTCP(t), nil)
	ctx, cancel := context.WithCancelCause(context.Background())
	asked, release := make(chan struct{}), make(chan struct{})
	b.events.form = func(*wire.FormRequest) *wire.FormReply {
		close(asked)
		<-release
		return &wire.FormReply{}
	}
	defer close(release)
	changedMind := errors.New("changed my mind")
	go func() {
		<-asked
		cancel(changedMind)
	}()
	if _, err := a.Form(ctx, b.addr, &wire.FormRequest{}); !errors.Is(err, changedMind) {
		t.Error(err)
	}
	a.cfg.Timing.Form = time.Nanosecond
	if _, err := a.Form(context.Background(), b.addr, &wire.FormRequest{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
