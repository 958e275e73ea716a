package fencinggrpc

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/conclave-go/conclave/fencing"
)

// Server configures the interceptors of a server.
type Server struct {
	fencing.Policy
	// Locks returns the names of the locks that protect what a call asks for, which is none for calls
	// that need no fence. The method is the full one, as /package.Service/Method; req is the
	// request's message, and nil for streams. Default nil: every lock that the call names is
	// verified, see fencing.Policy.VerifyAll.
	Locks func(ctx context.Context, method string, req any) []string
	// Failed is called, if it is set, with the reason of each failure with UNAVAILABLE, which the client does
	// not get.
	Failed func(ctx context.Context, method string, err error)
}

var errGuardEnded = errors.New("the guard's context ended")

// UnaryServerInterceptor verifies the tokens of each call before its handler, which gets the verified
// ones in its context. See fencing.Middleware: a later holder may come between the check and the write.
func UnaryServerInterceptor(s Server) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		ctx, err := s.verify(ctx, info.FullMethod, req)
		if err != nil {
			return nil, err
		}
		return handle(ctx, req)
	}
}

// StreamServerInterceptor verifies the tokens of each stream at its beginning. A stream may outlive its
// client's hold, so a handler that writes for each message has to check the fence again for each.
func StreamServerInterceptor(s Server) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		ctx, err := s.verify(stream.Context(), info.FullMethod, nil)
		if err != nil {
			return err
		}
		return handle(srv, serverStream{stream, ctx})
	}
}

type serverStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s serverStream) Context() context.Context { return s.ctx }

func (s Server) verify(ctx context.Context, method string, req any) (context.Context, error) {
	values := metadata.ValueFromIncomingContext(ctx, Key)
	verified, err := ctx, error(nil)
	if s.Locks == nil {
		verified, err = s.VerifyAll(ctx, values)
	} else {
		verified, err = s.Verify(ctx, values, s.Locks(ctx, method, req)...)
	}
	if err == nil {
		return verified, nil
	}
	refusal := StatusOf(err)
	if code := refusal.Code(); ctx.Err() == nil && (code == codes.Canceled || code == codes.DeadlineExceeded) {
		refusal = StatusOf(errGuardEnded) // the guard's own deadline has passed, not the call's
	}
	if refusal.Code() == codes.Unavailable && s.Failed != nil {
		s.Failed(ctx, method, err)
	}
	return ctx, refusal.Err()
}
