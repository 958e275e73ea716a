package fencinggrpc

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/fencing"
)

// Domain is the domain of the google.rpc.ErrorInfo of a refusal.
const Domain = "github.com/conclave-go/conclave"

// Reasons of refusals in google.rpc.ErrorInfo.
const (
	ReasonStale     = "STALE_FENCE"
	ReasonMissing   = "MISSING_FENCING_TOKEN"
	ReasonMalformed = "MALFORMED_FENCING_TOKEN"
)

// Keys of the metadata of google.rpc.ErrorInfo.
const (
	keyLock      = "lock"
	keyPresented = "presented"
	keyLargest   = "largest"
)

// StatusOf returns the status with which the server's interceptors fail a call for the error, also
// if a handler got it from fencing.SQL or from a guard of its own. A context's error is taken to be that of the
// call. No other text of the error than that of malformed metadata is in the status.
func StatusOf(err error) *status.Status {
	p := fencing.ProblemOf(err)
	code, reason := codes.FailedPrecondition, ReasonStale
	switch p.Status {
	case http.StatusPreconditionFailed:
	case http.StatusPreconditionRequired:
		reason = ReasonMissing
	case http.StatusBadRequest:
		code, reason = codes.InvalidArgument, ReasonMalformed
	default:
		for _, ended := range []error{context.DeadlineExceeded, context.Canceled} {
			if errors.Is(err, ended) {
				return status.FromContextError(ended) // err may name a database's host and account
			}
		}
		return status.New(codes.Unavailable, p.Detail)
	}
	info := &errdetails.ErrorInfo{Reason: reason, Domain: Domain, Metadata: make(map[string]string)}
	if p.Lock != "" {
		info.Metadata[keyLock] = p.Lock
	}
	if p.Presented != 0 {
		info.Metadata[keyPresented] = p.Presented.String()
	}
	if p.Largest != 0 {
		info.Metadata[keyLargest] = p.Largest.String()
	}
	s := status.New(code, p.Detail)
	if detailed, err := s.WithDetails(info); err == nil {
		return detailed
	}
	return s // not reached: the detail is a valid message
}

// ErrorOf returns the reason why a server's interceptor refused the call that failed with err, or
// nil for any other error. It wraps conclave.ErrStaleFence with a *conclave.StaleFenceError,
// fencing.ErrMissing, or fencing.ErrMalformed. The client's interceptors apply it: their errors wrap the
// reason beside the status.
func ErrorOf(err error) error {
	s, ok := status.FromError(err)
	if !ok {
		return nil
	}
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == Domain {
			return reason(info, s.Message())
		}
	}
	return nil
}

func reason(info *errdetails.ErrorInfo, message string) error {
	lock := info.GetMetadata()[keyLock]
	switch info.GetReason() {
	case ReasonStale:
		stale := &conclave.StaleFenceError{}
		stale.Presented, _ = conclave.ParseFence(info.GetMetadata()[keyPresented]) // 0: the server does not know
		stale.Largest, _ = conclave.ParseFence(info.GetMetadata()[keyLargest])
		return &conclave.Error{Op: "check", Name: lock, Err: stale}
	case ReasonMissing:
		return &conclave.Error{Op: "check", Name: lock, Err: fencing.ErrMissing}
	case ReasonMalformed:
		return fmt.Errorf("%w: the server reports: %.256q", fencing.ErrMalformed, message)
	}
	return nil
}

// refusal is a call's error that wraps the reason and keeps the status.
type refusal struct{ call, reason error }

func (r *refusal) Error() string              { return fmt.Sprintf("%v: %v", r.call, r.reason) }
func (r *refusal) Unwrap() []error            { return []error{r.call, r.reason} }
func (r *refusal) GRPCStatus() *status.Status { return status.Convert(r.call) }

func explained(err error) error {
	if why := ErrorOf(err); why != nil {
		return &refusal{err, why}
	}
	return err
}
