// Package fencinggrpc does for gRPC what package fencing does for HTTP: interceptors of a client
// send the fences of a call's context, and interceptors of a server refuse stale ones. It is a module of
// its own, so that gRPC is not linked into programs that do not use it.
//
//	grpc.NewClient(target, grpc.WithChainUnaryInterceptor(fencinggrpc.UnaryClientInterceptor("invoices")), ...)
//	grpc.NewServer(grpc.ChainUnaryInterceptor(fencinggrpc.UnaryServerInterceptor(fencinggrpc.Server{Policy: policy})), ...)
//
// The metadata key is fencing-token, and its values are those of the HTTP header. A refused call fails with
//
//   - FAILED_PRECONDITION for a stale fence, and for a missing one that is required,
//   - INVALID_ARGUMENT for malformed metadata,
//   - CANCELED or DEADLINE_EXCEEDED if the call ends before the guard has decided,
//   - UNAVAILABLE if the guard fails for any other reason.
//
// The first two have the detail google.rpc.ErrorInfo with the domain [Domain], a reason, and the
// lock, the presented and the largest fence as its metadata.
package fencinggrpc
