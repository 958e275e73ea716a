package conclave

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/conclave-go/conclave/internal/remote"
)

const (
	// maxCredit bounds what a client may let a member send before it has read it.
	maxCredit = 64 << 20
	// creditPatience is how long a member waits for credit: while a client reads a backup, the database keeps what
	// it would otherwise discard.
	creditPatience = 10 * time.Minute
)

var errNoCredit = fmt.Errorf("the client has read nothing for %v", creditPatience)

// credit is how much of an answer may be sent before the client has read more of it: its connection is also that
// of its locks, so a client whose program reads slowly cannot stop reading that. A nil credit has no bound.
type credit struct {
	given chan struct{} // holds a token when some was given

	mu    sync.Mutex
	bytes int // guarded by mu; below 0: more was sent than the credit, at most by one write
}

// newCredit returns the credit of a StreamBody; nil if the client does not know of it.
func newCredit(body []byte) (*credit, error) {
	if len(body) == 0 {
		return nil, nil
	}
	var s remote.StreamBody
	if err := json.Unmarshal(body, &s); err != nil {
		return nil, fmt.Errorf("%w request: %w", ErrInvalid, err)
	}
	if s.Credit < 0 || s.Credit > maxCredit {
		return nil, fmt.Errorf("%w credit: want up to %d bytes, got %d", ErrInvalid, maxCredit, s.Credit)
	}
	if s.Credit == 0 {
		return nil, nil
	}
	return &credit{given: make(chan struct{}, 1), bytes: s.Credit}, nil
}

func (c *credit) give(bytes int) {
	if c == nil || bytes <= 0 {
		return
	}
	c.mu.Lock()
	c.bytes = min(c.bytes+min(bytes, maxCredit), maxCredit)
	c.mu.Unlock()
	select {
	case c.given <- struct{}{}:
	default:
	}
}

// take waits until there is credit, and takes the bytes of a write from it.
func (c *credit) take(ctx context.Context, bytes int) error {
	if c == nil {
		return nil
	}
	timer := time.NewTimer(creditPatience)
	defer timer.Stop()
	for {
		c.mu.Lock()
		has := c.bytes > 0
		if has {
			c.bytes -= bytes
		}
		c.mu.Unlock()
		if has {
			return nil
		}
		select {
		case <-c.given:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			return errNoCredit
		}
	}
}

// creditWriter writes as there is credit.
type creditWriter struct {
	ctx context.Context
	io.Writer
	credit *credit
}

// Write implements io.Writer.
func (w creditWriter) Write(b []byte) (int, error) {
	if err := w.credit.take(w.ctx, len(b)); err != nil {
		return 0, err
	}
	return w.Writer.Write(b)
}
