package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-go/conclave"
)

// errTooLate is what the library returns for a grant whose time to hold was over when it came.
var errTooLate = fmt.Errorf("conclave: lock x: %w", conclave.ErrHoldExpired)

// contending returns a contender for a lock with a time to hold, and what it prints.
func contending(t *testing.T, o tenancy) (*contender, *bytes.Buffer) {
	t.Helper()
	n, errs := member(t, ""), new(bytes.Buffer)
	p := &program{stderr: errs, connection: connection{timeout: patience}}
	client, err := conclave.Dial(within(t), &conclave.ClientConfig{Addresses: []string{n.Addr()}})
	must0(t, err)
	t.Cleanup(func() { p.closeClient(groupClient{client, client.Group}) })
	o.ttl, o.maxHold = 10*time.Second, time.Millisecond
	return &contender{program: p, client: groupClient{client, client.Group}, tenancy: o}, errs
}

// With --try a hold that was over before its grant was known is a failure, which says what to do.
func TestContender_HoldOverAtGrant_Try(t *testing.T) {
	c, errs := contending(t, tenancy{try: true})
	attempts := 0
	_, err := c.acquire(t.Context(), func(context.Context, *conclave.Session) (lease, error) {
		if attempts++; attempts > 1 {
			t.Fatal("tried again")
		}
		return lease{}, errTooLate
	})
	code := c.exit(&cobra.Command{Annotations: map[string]string{runsChild: "yes"}}, err)
	want(t, result{err: errs.String(), code: code}, exitItself, "--max-hold 1ms was over")
}

// Without --try the next attempt follows, under another session and after a pause, and one message says so.
func TestContender_HoldOverAtGrant(t *testing.T) {
	c, errs := contending(t, tenancy{})
	sessions := make(map[conclave.SessionID]bool)
	_, err := c.acquire(t.Context(), func(_ context.Context, s *conclave.Session) (lease, error) {
		if sessions[s.ID()] = true; len(sessions) < 3 {
			return lease{}, errTooLate
		}
		return lease{}, nil
	})
	must0(t, err)
	if n := strings.Count(errs.String(), "set a longer one"); n != 1 || len(sessions) != 3 {
		t.Errorf("%d messages after %d sessions, want 1 after 3:\n%s", n, len(sessions), errs)
	}
}
