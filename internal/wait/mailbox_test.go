package wait

import (
	"slices"
	"sync"
	"testing"
)

// Each event is either fetched, in order, or refused, or returned by Close.
func TestMailbox_DeliveredOnce(t *testing.T) {
	const posters, each = 4, 200
	b := NewMailbox[[2]int]()
	var mu sync.Mutex
	fates := make(map[[2]int]int)
	fate := func(e [2]int) {
		mu.Lock()
		defer mu.Unlock()
		fates[e]++
	}
	var all sync.WaitGroup
	for p := range posters {
		all.Go(func() {
			for i := range each {
				if e := [2]int{p, i}; !b.Post(e) {
					fate(e)
				}
			}
		})
	}
	last := make([]int, posters)
	for fetched := 0; fetched < posters*each/2; {
		<-b.Ready()
		for _, e := range b.Fetch() {
			if e[1] < last[e[0]] {
				t.Errorf("poster %d: %d after %d", e[0], e[1], last[e[0]])
			}
			last[e[0]] = e[1]
			fate(e)
			fetched++
		}
	}
	for _, e := range b.Close() {
		fate(e)
	}
	all.Wait()
	if len(fates) != posters*each {
		t.Errorf("%d of %d delivered or refused", len(fates), posters*each)
	}
	for which, n := range fates {
		if n != 1 {
			t.Errorf("%v delivered or refused %d times", which, n)
		}
	}
}

// A callback of the loop may post: its event is fetched the next time, and the signal is set.
func TestMailbox_PostFromCallback(t *testing.T) {
	b := NewMailbox[func()]()
	var order []int
	b.Post(func() {
		order = append(order, 1)
		b.Post(func() { order = append(order, 3) })
	})
	b.Post(func() { order = append(order, 2) })
	for range 2 {
		<-b.Ready()
		for _, run := range b.Fetch() {
			run()
		}
	}
	if !slices.Equal(order, []int{1, 2, 3}) {
		t.Errorf("%v", order)
	}
	if rest := b.Close(); len(rest) > 0 || b.Post(func() {}) || len(b.Close()) > 0 {
		t.Errorf("a closed mailbox has %d events, or takes another", len(rest))
	}
}
