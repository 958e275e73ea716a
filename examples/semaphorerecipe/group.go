package main

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/conclave-go/conclave"
)

// openGroup opens members in memory, all at once: Open returns when a majority
// is there. The nodes have to be killed also after an error.
func openGroup(ctx context.Context, names ...string) ([]*conclave.Node, error) {
	var listeners []net.Listener
	var addrs []string
	for range names {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		listeners = append(listeners, l)
		addrs = append(addrs, l.Addr().String())
	}
	nodes := make([]*conclave.Node, len(names))
	errs := make([]error, len(names))
	var opening sync.WaitGroup
	for i, name := range names {
		cfg := &conclave.Config{Name: name, Listener: listeners[i], Join: addrs, Expect: len(names)}
		opening.Go(func() { nodes[i], errs[i] = conclave.Open(ctx, cfg) })
	}
	opening.Wait()
	return nodes, errors.Join(errs...)
}

// kill ends members without farewell, as a crash of their processes would. Close
// says farewell for as long as its context allows, so one that has ended makes it
// none.
func kill(nodes ...*conclave.Node) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, n := range nodes {
		if n != nil {
			_ = n.Close(ended) // it could only tell that there was no farewell
		}
	}
}
