package conclaveleader

import (
	"fmt"
	"net/http"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (l *Lock) fault(op string, err error) error {
	return fmt.Errorf("conclaveleader: %s %q: %w", op, l.name, err)
}

// statusError is an answer as client-go expects it of an API server: it implements APIStatus of
// k8s.io/apimachinery/pkg/api/errors.
type statusError struct {
	status meta.Status
	cause  error
}

func (l *Lock) status(reason meta.StatusReason, cause error) error {
	code, text := int32(http.StatusConflict), "the record was replaced by another candidate"
	switch reason {
	case meta.StatusReasonNotFound:
		code, text = http.StatusNotFound, "no record"
	case meta.StatusReasonAlreadyExists:
		text = "the record exists already"
	}
	return &statusError{cause: cause, status: meta.Status{
		Status: meta.StatusFailure, Code: code, Reason: reason,
		Message: fmt.Sprintf("conclaveleader: %s %q: %s", l.Describe(), l.config.Identity, text),
		Details: &meta.StatusDetails{Name: l.name, Kind: "leases"},
	}}
}

// Error implements error.
func (e *statusError) Error() string { return e.status.Message }

// Status implements APIStatus.
func (e *statusError) Status() meta.Status { return e.status }

// Unwrap returns conclave's error.
func (e *statusError) Unwrap() error { return e.cause }
