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
	b := start(t, identity(2), listenTCP(t), nil) // in a cluster: its handler decides
	req := &wire.FormRequest{Proposal: &wire.Proposal{Cluster: testCluster[:], Voters: 3}}
	b.events.form = func(got *wire.FormRequest) *wire.FormReply {
		if !proto.Equal(got, req) {
			t.Errorf("got %v, want %v", got, req)
		}
		return &wire.FormReply{Refusal: "formed already"}
	}
	reply, err := a.Form(context.Background(), Target{Addr: b.addr}, req)
	if err != nil || reply.GetAccepted() || reply.GetRefusal() != "formed already" {
		t.Errorf("got %v, %v", reply, err)
	}
	if _, err := a.Form(context.Background(), Target{Addr: a.addr}, req); err == nil {
		t.Error("a proposal to this member itself was delivered")
	} else {
		checkRefusal(t, err, ReasonSelf, "member that dialed it")
	}
	req.Proposal.Founders = []*wire.Founder{{Name: string(make([]byte, maxForm))}}
	if _, err := a.Form(context.Background(), Target{Addr: b.addr}, req); !errors.Is(err, ErrTooLarge) {
		t.Errorf("an oversized proposal: %v", err)
	}
}

// Form returns when its context or its timeout ends, with the cause.
func TestForm_ContextDone(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), nil)
	b := start(t, identity(2), listenTCP(t), nil)
	ctx, cancel := context.WithCancelCause(context.Background())
	received, release := make(chan struct{}), make(chan struct{})
	b.events.form = func(*wire.FormRequest) *wire.FormReply {
		close(received)
		<-release
		return &wire.FormReply{}
	}
	defer close(release)
	cause := errors.New("the cause")
	go func() {
		<-received
		cancel(cause)
	}()
	if _, err := a.Form(ctx, Target{Addr: b.addr}, &wire.FormRequest{}); !errors.Is(err, cause) {
		t.Error(err)
	}
	a.cfg.Timing.Form = time.Nanosecond
	if _, err := a.Form(context.Background(), Target{Addr: b.addr}, &wire.FormRequest{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// What a process states about itself must be what its connection has proven.
func TestForm_StatesAnotherMember(t *testing.T) {
	a := start(t, identity(1), listenTCP(t), nil)
	b := start(t, identity(2), listenTCP(t), nil)
	lie := &wire.GossipMeta{Member: m(3), Key: publicOf(testKeys[3]), Advertise: b.addr}
	truth := &wire.GossipMeta{Member: m(1), Key: publicOf(testKeys[1]), Advertise: a.addr}
	b.events.form = func(r *wire.FormRequest) *wire.FormReply {
		if r.GetCandidate().GetMember() != m(1) {
			t.Errorf("the handler was asked for %v", r)
		}
		return &wire.FormReply{Member: m(3), Candidate: lie}
	}
	if _, err := a.Form(t.Context(), Target{Addr: b.addr}, &wire.FormRequest{Candidate: lie}); err == nil {
		t.Error("a request of another member was answered")
	}
	if _, err := a.Form(t.Context(), Target{Addr: b.addr}, &wire.FormRequest{Candidate: truth}); !errors.Is(err, ErrUnproven) {
		t.Errorf("got %v, want %v", err, ErrUnproven)
	}
	lie.Member, lie.Key, lie.Advertise = m(2), publicOf(testKeys[2]), "192.0.2.1:7000"
	if _, err := a.Form(t.Context(), Target{Addr: b.addr}, &wire.FormRequest{Candidate: truth}); !errors.Is(err, ErrUnproven) {
		t.Errorf("another address is stated: got %v, want %v", err, ErrUnproven)
	}
	b.events.form = func(*wire.FormRequest) *wire.FormReply { return &wire.FormReply{Member: m(3)} }
	if reply, err := a.Form(t.Context(), Target{Addr: b.addr}, &wire.FormRequest{Candidate: truth}); err != nil || reply.GetMember() != m(2) {
		t.Errorf("got %v, %v, want an answer of member 2", reply, err)
	}
}
