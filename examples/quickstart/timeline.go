package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// timeline prints what happens, with the time since the beginning.
type timeline struct {
	began time.Time

	mu sync.Mutex // one line at a time
	w  io.Writer
}

func newTimeline(w io.Writer) *timeline { return &timeline{began: time.Now(), w: w} }

func (t *timeline) elapsed() time.Duration { return time.Since(t.began) }

func (t *timeline) print(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.w, format, args...)
}

func (t *timeline) chapter(number int, title, meaning string) {
	t.print("\n%d. %s\n   %s\n\n", number, title, meaning)
}

// event says who did what, and what came of it.
func (t *timeline) event(who, what, format string, args ...any) {
	t.print("%7.2f s   %-9s %-13s %s\n", t.elapsed().Seconds(), who, what, fmt.Sprintf(format, args...))
}

func (t *timeline) end(format string, args ...any) {
	t.print("\n"+format+"\n", args...)
}

// await runs something that may take a while and says so each second, so that
// nobody has to wonder whether it hangs.
func await(t *timeline, what string, f func() error) error {
	done := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
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
	telling.Wait()
	return err
}
