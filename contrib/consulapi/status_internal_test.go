package consulapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

func TestStatusOf(t *testing.T) {
	wrapped := func(sentinel, ctx error) error {
		return &conclave.Error{Op: "put", Name: "a", Err: fmt.Errorf("%w: %w", sentinel, ctx)}
	}
	for _, c := range []struct {
		err    error
		status int
		text   string
	}{
		{wrapped(conclave.ErrUnknown, context.DeadlineExceeded), 500, "outcome unknown: "},
		{wrapped(conclave.ErrUnavailable, context.DeadlineExceeded), 500, "No cluster leader"},
		{wrapped(conclave.ErrClosed, errors.New("x")), 500, "conclave: put"},
		{wrapped(conclave.ErrBusy, errors.New("x")), 429, "conclave: put"},
		{wrapped(conclave.ErrTooLarge, errors.New("x")), 413, "conclave: put"},
		{wrapped(conclave.ErrInvalid, errors.New("x")), 400, "conclave: put"},
		{context.Canceled, 500, "context canceled"},
	} {
		if status, text := statusOf(c.err); status != c.status || !strings.HasPrefix(text, c.text) {
			t.Errorf("%v: %d %q", c.err, status, text)
		}
	}
}

func TestWaitTime(t *testing.T) {
	for _, c := range []struct{ wait, least, most time.Duration }{
		{0, 5 * time.Minute, 5*time.Minute + 5*time.Minute/16},
		{time.Hour, 10 * time.Minute, 10*time.Minute + 10*time.Minute/16},
		{16 * time.Second, 16 * time.Second, 17 * time.Second},
		{1, 1, 2},
	} {
		if got := (&call{wait: c.wait}).waitTime(); got < c.least || got > c.most {
			t.Errorf("%v: %v, want %v to %v", c.wait, got, c.least, c.most)
		}
	}
}
