package client

import "time"

// recall closes a tenure; number 0: all tenures.
func (k *keeper) recall(name string, number uint64) {
	k.mu.Lock()
	var (
		recalled []*tenure
		shared   []*sharedTenure
	)
	if n := k.names[name]; n != nil {
		for _, t := range n.tenures {
			if t.number == number || number == 0 {
				recalled = append(recalled, t)
				n.wanted = time.Now()
			}
		}
		for _, t := range n.sharedTenures {
			if t.number == number || number == 0 {
				shared = append(shared, t)
				n.wanted = time.Now()
			}
		}
	}
	k.mu.Unlock()
	for _, t := range recalled {
		t.change(t.Close)
	}
	for _, t := range shared {
		t.change(t.close)
	}
}

// recallAll closes all tenures: a recall may have been among the entries that a snapshot
// stands for.
func (k *keeper) recallAll() {
	k.mu.Lock()
	names := make([]string, 0, len(k.names))
	for name := range k.names { // order: the tenures are independent of each other
		names = append(names, name)
	}
	k.mu.Unlock()
	for _, name := range names {
		k.recall(name, 0)
	}
}
