package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// timeline prints events with the time since the start.
type timeline struct {
	start time.Time

	mu sync.Mutex // one line at a time
	w  io.Writer
}

func newTimeline(w io.Writer) *timeline { return &timeline{start: time.Now(), w: w} }

func (t *timeline) elapsed() time.Duration { return time.Since(t.start) }

func (t *timeline) print(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.w, format, args...)
}

func (t *timeline) chapter(number int, title, summary string) {
	t.print("\n%d. %s\n   %s\n\n", number, title, summary)
}

// event prints an actor, its action and the result.
func (t *timeline) event(actor, action, format string, args ...any) {
	t.print("%7.2f s   %-9s %-13s %s\n", t.elapsed().Seconds(), actor, action, fmt.Sprintf(format, args...))
}

func (t *timeline) end(format string, args ...any) {
	t.print("\n"+format+"\n", args...)
}

// await runs f, which may block for a while, and prints each second what it
// waits for.
func await(t *timeline, what string, f func() error) error {
	done := make(chan struct{})
	var printing sync.WaitGroup
	printing.Go(func() {
		second := time.NewTicker(time.Second)
		defer second.Stop()
		for {
			select {
			case <-second.C:
				t.event("…", "", "still waiting %s", what)
			case <-done:
				return
			}
		}
	})
	err := f()
	close(done)
	printing.Wait()
	return err
}
