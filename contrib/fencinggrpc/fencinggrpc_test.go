package fencinggrpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/contrib/fencinggrpc"
	"github.com/conclave-go/conclave/fencing"
)

// resource is a server with one unary and one streaming method. It reports what its handlers found
// in their contexts.
type resource struct {
	health.UnimplementedHealthServer
	tokens chan []fencing.Token
}

func (r *resource) Check(ctx context.Context, _ *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	r.tokens <- fencing.TokensFromContext(ctx)
	return &health.HealthCheckResponse{}, nil
}

func (r *resource) Watch(_ *health.HealthCheckRequest, stream grpc.ServerStreamingServer[health.HealthCheckResponse]) error {
	r.tokens <- fencing.TokensFromContext(stream.Context())
	return stream.Send(&health.HealthCheckResponse{})
}

// call is a client's call, of either kind.
type call func(ctx context.Context, service string) error

// start starts a server over a connection in memory. It returns its calls by kind, made with the
// client's interceptors for the lock.
func start(t *testing.T, s fencinggrpc.Server, lock string) (*resource, map[string]call) {
	t.Helper()
	server := grpc.NewServer(grpc.UnaryInterceptor(fencinggrpc.UnaryServerInterceptor(s)), grpc.StreamInterceptor(fencinggrpc.StreamServerInterceptor(s)))
	r := &resource{tokens: make(chan []fencing.Token, 1)}
	health.RegisterHealthServer(server, r)
	listener, ended := bufconn.Listen(1<<20), make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:resource", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithUnaryInterceptor(fencinggrpc.UnaryClientInterceptor(lock)), grpc.WithStreamInterceptor(fencinggrpc.StreamClientInterceptor(lock)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		errClose := conn.Close()
		server.Stop()
		if err := errors.Join(errClose, <-ended); err != nil {
			t.Error(err)
		}
	})
	client := health.NewHealthClient(conn)
	return r, map[string]call{
		"unary": func(ctx context.Context, service string) error {
			_, err := client.Check(ctx, &health.HealthCheckRequest{Service: service})
			return err
		},
		"stream": func(ctx context.Context, service string) error {
			stream, err := client.Watch(ctx, &health.HealthCheckRequest{Service: service})
			if err != nil {
				return err
			}
			_, err = stream.Recv()
			return err
		},
	}
}

func TestInterceptors_Decide(t *testing.T) {
	const lock = "invoices, \n=ß😀"
	for _, kind := range []string{"unary", "stream"} {
		t.Run(kind, func(t *testing.T) {
			r, calls := start(t, fencinggrpc.Server{Policy: fencing.Policy{Guard: new(conclave.Guard), Required: true}}, lock)
			for _, step := range []struct {
				name  string
				fence conclave.Fence
				want  error
				code  codes.Code
			}{
				{"first", 5, nil, codes.OK},
				{"equal", 5, nil, codes.OK},
				{"newer", 1 << 48, nil, codes.OK},
				{"stale", 6, conclave.ErrStaleFence, codes.FailedPrecondition},
				{"missing", 0, fencing.ErrMissing, codes.FailedPrecondition},
			} {
				ctx := metadata.AppendToOutgoingContext(t.Context(), "other", "kept")
				if step.fence != 0 {
					ctx = conclave.ContextWithFence(ctx, step.fence)
				}
				err := calls[kind](ctx, "")
				if !errors.Is(err, step.want) || status.Code(err) != step.code {
					t.Fatalf("%s: got %v, want %v and %v", step.name, err, step.want, step.code)
				}
				if err == nil {
					if got := <-r.tokens; !slices.Equal(got, []fencing.Token{{Lock: lock, Fence: step.fence}}) {
						t.Errorf("%s: the handler has %v", step.name, got)
					}
				}
				var stale *conclave.StaleFenceError
				if errors.As(err, &stale) && (stale.Presented != 6 || stale.Largest != 1<<48) {
					t.Errorf("%s: got %v", step.name, stale)
				}
			}
		})
	}
}

func TestInterceptors_RefusalHasDetails(t *testing.T) {
	var guard conclave.Guard
	if err := guard.Check("a", 7); err != nil {
		t.Fatal(err)
	}
	_, calls := start(t, fencinggrpc.Server{Policy: fencing.Policy{Guard: &guard}}, "a")
	s := status.Convert(calls["unary"](conclave.ContextWithFence(t.Context(), 6), ""))
	if len(s.Details()) != 1 {
		t.Fatalf("got %v", s)
	}
	info, ok := s.Details()[0].(*errdetails.ErrorInfo)
	if !ok || info.GetReason() != fencinggrpc.ReasonStale || info.GetDomain() != fencinggrpc.Domain ||
		info.GetMetadata()["lock"] != "a" || info.GetMetadata()["presented"] != "6" || info.GetMetadata()["largest"] != "7" {
		t.Errorf("got %v", s.Details())
	}
}

func TestInterceptors_MalformedMetadata(t *testing.T) {
	for kind, malformed := range map[string]string{"unary": "a", "stream": "a=1, a=1"} {
		_, calls := start(t, fencinggrpc.Server{Policy: fencing.Policy{Guard: new(conclave.Guard)}}, "")
		err := calls[kind](metadata.AppendToOutgoingContext(t.Context(), fencinggrpc.Key, malformed), "")
		if !errors.Is(err, fencing.ErrMalformed) || status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: got %v", kind, err)
		}
		err = calls[kind](fencing.ContextWithLock(t.Context(), "a"), "")
		if !errors.Is(err, fencing.ErrMissing) || status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: a lock without a fence: got %v", kind, err)
		}
	}
}

func TestInterceptors_LocksOfTheRequest(t *testing.T) {
	locks := func(_ context.Context, method string, req any) []string {
		if m, ok := req.(*health.HealthCheckRequest); ok && strings.HasSuffix(method, "/Check") && m.GetService() != "" {
			return []string{m.GetService()}
		}
		return nil
	}
	r, calls := start(t, fencinggrpc.Server{Policy: fencing.Policy{Guard: new(conclave.Guard), Required: true}, Locks: locks}, "a")
	ctx := conclave.ContextWithFence(t.Context(), 1)
	if err := calls["unary"](ctx, "a"); err != nil || len(<-r.tokens) != 1 {
		t.Error(err)
	}
	if err := calls["unary"](ctx, ""); err != nil || len(<-r.tokens) != 0 {
		t.Error(err)
	}
	if err := calls["unary"](ctx, "b"); !errors.Is(err, fencing.ErrMissing) {
		t.Errorf("another lock: %v", err)
	}
	if err := calls["stream"](ctx, "b"); err != nil || len(<-r.tokens) != 0 {
		t.Error(err)
	}
}

// broken is a guard that cannot decide.
type broken struct{ err error }

func (b broken) Check(string, conclave.Fence) error { return b.err }

// The call has not ended in any of these cases: also a guard's own deadline is its failure.
func TestInterceptors_GuardFails(t *testing.T) {
	for _, cause := range []error{
		errors.New("secret"), fmt.Errorf("secret: %w", context.Canceled), fmt.Errorf("secret: %w", context.DeadlineExceeded),
	} {
		var failed error
		_, calls := start(t, fencinggrpc.Server{
			Policy: fencing.Policy{Guard: broken{cause}},
			Failed: func(_ context.Context, _ string, err error) { failed = err },
		}, "a")
		err := calls["unary"](conclave.ContextWithFence(t.Context(), 1), "")
		if status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "secret") || fencinggrpc.ErrorOf(err) != nil {
			t.Errorf("%v: got %v, want Unavailable", cause, err)
		}
		if !errors.Is(failed, cause) {
			t.Errorf("%v: Failed got %v", cause, failed)
		}
	}
}

func TestInterceptors_CallEndsDuringCheck(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for want, ctx := range map[codes.Code]context.Context{codes.Canceled: cancelled, codes.DeadlineExceeded: late} {
		intercept := fencinggrpc.UnaryServerInterceptor(fencinggrpc.Server{
			Policy: fencing.Policy{Guard: broken{fmt.Errorf("secret: %w", ctx.Err())}},
			Failed: func(_ context.Context, _ string, err error) { t.Errorf("%v: Failed got %v", want, err) },
		})
		ctx = metadata.NewIncomingContext(ctx, metadata.Pairs(fencinggrpc.Key, "a=1"))
		_, err := intercept(ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { return nil, errors.New("called") })
		if status.Code(err) != want || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}

func TestErrorOf_OtherErrors(t *testing.T) {
	for _, err := range []error{nil, errors.New("x"), status.Error(codes.FailedPrecondition, "x")} {
		if got := fencinggrpc.ErrorOf(err); got != nil {
			t.Errorf("%v: got %v", err, got)
		}
	}
}
