package cluster

import (
	"slices"
	"sync"
	"testing"

	"github.com/conclave-go/conclave/cluster/core"
)

// Each event is either fetched, in order, or lost.
func TestMailbox_DeliveredOrLost(t *testing.T) {
	const posters, each = 4, 200
	b := mailbox{signal: make(chan struct{}, 1)}
	var mu sync.Mutex
	fates := make(map[[2]int]int)
	last := make([]int, posters)
	fate := func(poster, i int) {
		mu.Lock()
		defer mu.Unlock()
		fates[[2]int{poster, i}]++
	}
	var wg sync.WaitGroup
	for p := range posters {
		wg.Go(func() {
			for i := range each {
				b.post(event{
					run: func(*core.Core) {
						if i < last[p] {
							t.Errorf("poster %d: %d after %d", p, i, last[p])
						}
						last[p] = i
						fate(p, i)
					},
					lost: func() { fate(p, i) },
				})
			}
		})
	}
	for fetched := 0; fetched < posters*each/2; {
		<-b.signal
		for _, e := range b.fetch() {
			e.run(nil)
			fetched++
		}
	}
	b.close()
	wg.Wait()
	if len(fates) != posters*each {
		t.Errorf("%d of %d delivered or lost", len(fates), posters*each)
	}
	for which, n := range fates {
		if n != 1 {
			t.Errorf("%v delivered or lost %d times", which, n)
		}
	}
}

// A callback of the loop may post: its event is fetched the next time, and the signal is
// set.
func TestMailbox_PostFromCallback(t *testing.T) {
	b := mailbox{signal: make(chan struct{}, 1)}
	var order []int
	b.post(event{run: func(*core.Core) {
		order = append(order, 1)
		b.post(event{run: func(*core.Core) { order = append(order, 3) }})
	}})
	b.post(event{run: func(*core.Core) { order = append(order, 2) }})
	for range 2 {
		<-b.signal
		for _, e := range b.fetch() {
			e.run(nil)
		}
	}
	if !slices.Equal(order, []int{1, 2, 3}) {
		t.Errorf("%v", order)
	}
	b.close()
	b.close()
	b.post(event{run: func(*core.Core) { t.Error("run after the end") }})
}
