package remote

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// The end of a link may find a question at any moment, also while it is being added. One with a
// function instead of a reader does not remain.
func TestAsking_LinkLostMeanwhile(t *testing.T) {
	for range 200 {
		a, l := newAsking(), new(link)
		var both sync.WaitGroup
		both.Go(func() { a.lost(l) })
		both.Go(func() { a.add(context.Background(), l, false, func(*question, error) {}) })
		both.Wait()
		if a.lost(l); len(a.pending) > 0 {
			t.Fatal("a question of a link that was lost remains")
		}
	}
}

// What no member answers is refused at once, without one.
func TestAsking_LongRequest(t *testing.T) {
	g := new(Group)
	_, err := g.begin(t.Context(), &wire.Request{Body: make([]byte, wire.MaxRequest+1)}, false)
	var refused *RequestError
	if !errors.As(err, &refused) || refused.Failure != wire.Failure_FAILURE_TOO_LARGE {
		t.Error(err)
	}
}
