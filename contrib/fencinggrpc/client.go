package fencinggrpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/conclave-go/conclave/fencing"
)

// Key is the metadata key: fencing.Header in lower case.
const Key = "fencing-token"

// UnaryClientInterceptor sends the tokens of a call's context. Where the context has none, its fence
// (conclave.FenceFromContext) belongs to the named lock; with the name "" only tokens are sent. A call
// whose context carries no fence is made as it is; one whose fence cannot be sent fails with the
// error of fencing.Outgoing and the code INVALID_ARGUMENT, and is not made. A refusal by the server is
// an error that wraps what [ErrorOf] returns.
func UnaryClientInterceptor(lock string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		ctx, err := outgoing(ctx, lock)
		if err != nil {
			return err
		}
		return explained(invoke(ctx, method, req, reply, cc, opts...))
	}
}

// StreamClientInterceptor is [UnaryClientInterceptor] for streams. RecvMsg returns the refusal.
func StreamClientInterceptor(lock string) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		ctx, err := outgoing(ctx, lock)
		if err != nil {
			return nil, err
		}
		stream, err := open(ctx, desc, cc, method, opts...)
		if err != nil {
			return nil, explained(err)
		}
		return clientStream{stream}, nil
	}
}

type clientStream struct{ grpc.ClientStream }

func (s clientStream) RecvMsg(m any) error { return explained(s.ClientStream.RecvMsg(m)) }

func outgoing(ctx context.Context, lock string) (context.Context, error) {
	value, err := fencing.Outgoing(ctx, lock)
	if err != nil {
		return ctx, &refusal{status.Error(codes.InvalidArgument, "the call was not made"), err}
	}
	if value == "" {
		return ctx, nil
	}
	md, _ := metadata.FromOutgoingContext(ctx) // a copy
	if md == nil {
		md = make(metadata.MD)
	}
	md.Set(Key, value)
	return metadata.NewOutgoingContext(ctx, md), nil
}
