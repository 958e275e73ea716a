package conclavehttp

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	pageReads   = 100 * time.Millisecond // between two reads for requests
	streamReads = 125 * time.Millisecond // between two reads for streams
	readTimeout = 2 * time.Second        // a group without a quorum does not answer
	maxAhead    = 2 * time.Second        // for which a request waits for its turn
)

var errBusyConsole = errors.New("too many requests for this console: try again")

// pacer spaces reads through the group, whatever asks for them: each is a short piece of
// work for the goroutine that applies the log.
type pacer struct {
	interval time.Duration

	mu   sync.Mutex
	next time.Time // guarded by mu
}

func newPacer(interval time.Duration) *pacer { return &pacer{interval: interval} }

// wait blocks until the caller's turn.
func (p *pacer) wait(ctx context.Context) error {
	now := time.Now()
	p.mu.Lock()
	at := p.next
	if at.Before(now) {
		at = now
	}
	if at.Sub(now) > maxAhead {
		p.mu.Unlock()
		return errBusyConsole
	}
	p.next = at.Add(p.interval)
	p.mu.Unlock()
	return sleep(ctx, at.Sub(now))
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// gatherer keeps the board up to date while at least one stream is connected.
type gatherer struct {
	cancel   context.CancelFunc
	routines sync.WaitGroup
}

// connect counts a stream, and starts the gatherer with the first one.
func (h *ConsoleHandler) connect() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.connected++; h.connected > 1 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	g := &gatherer{cancel: cancel}
	h.gathering = g
	g.routines.Go(func() { h.board.watch(ctx) })
	g.routines.Go(func() { h.board.readAll(ctx) })
}

// disconnect stops the gatherer with the last stream, and returns when it has ended.
func (h *ConsoleHandler) disconnect() {
	h.mu.Lock()
	var last *gatherer
	if h.connected--; h.connected == 0 {
		last, h.gathering = h.gathering, nil
	}
	h.mu.Unlock()
	if last != nil {
		last.cancel()
		last.routines.Wait()
	}
}

// watch takes what the node knows once a second.
func (b *board) watch(ctx context.Context) {
	ticker := time.NewTicker(refresh)
	defer ticker.Stop()
	for {
		b.mu.Lock()
		b.gather(time.Now())
		b.mu.Unlock()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// readAll reads what streams show, one pane after the other. It is apart from watch, since a
// group without a quorum does not answer, which the other parts show.
func (b *board) readAll(ctx context.Context) {
	pace := newPacer(streamReads)
	for ctx.Err() == nil {
		q, at := b.due()
		if q != nil && !at.After(time.Now()) {
			b.read(ctx, *q, pace)
			continue
		}
		var turn <-chan time.Time
		if q != nil {
			turn = time.After(time.Until(at))
		}
		select {
		case <-turn:
		case <-b.added:
		case <-ctx.Done():
		}
	}
}
