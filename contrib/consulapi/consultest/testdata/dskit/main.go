// Command dskit is an instance of a ring, as the programs of Grafana's dskit (Loki, Mimir, Tempo) keep it in
// Consul. It prints the instances that it sees, each time they change, and leaves the ring at the end of its
// standard input.
//
// The test compiles it as a module of its own, outside of the tree.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-kit/log"
	"github.com/grafana/dskit/kv"
	"github.com/grafana/dskit/kv/consul"
	"github.com/grafana/dskit/ring"
	"github.com/grafana/dskit/services"
)

const (
	heartbeat = time.Second
	timeout   = 20 * time.Second // after which an instance without heartbeats counts no more
	tokens    = 32
)

func main() {
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("done")
}

func run(ctx context.Context, name string) error {
	logger := log.NewLogfmtLogger(os.Stderr)
	store := kv.Config{Store: "consul", Prefix: "collectors/", StoreConfig: kv.StoreConfig{
		// After the default of 10 attempts an instance ends, though others only write faster. An instance that leaves
		// makes the rest of them, each after the delay, with a context that has ended.
		Consul: consul.Config{Host: os.Getenv("CONSUL_HTTP_ADDR"), HTTPClientTimeout: 3 * time.Minute, CasRetryDelay: time.Second / 2, MaxCasRetries: 50},
	}}
	client, err := kv.NewClient(store, ring.GetCodec(), nil, logger)
	if err != nil {
		return err
	}
	instance, err := ring.NewBasicLifecycler(ring.BasicLifecyclerConfig{
		ID: name, Addr: name + ".example:9095", HeartbeatPeriod: heartbeat, HeartbeatTimeout: timeout, NumTokens: tokens,
	}, "test", "ring", client, ring.NewInstanceRegisterDelegate(ring.ACTIVE, tokens), logger, nil)
	if err != nil {
		return err
	}
	if err := services.StartAndAwaitRunning(ctx, instance); err != nil {
		return err
	}
	seen, err := ring.New(ring.Config{KVStore: store, HeartbeatTimeout: timeout, ReplicationFactor: 1}, "test", "ring", logger, nil)
	if err != nil {
		return err
	}
	if err := services.StartAndAwaitRunning(ctx, seen); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	report(seen, ended)
	return services.StopAndAwaitTerminated(ctx, instance)
}

// report prints the instances until ended is closed.
func report(seen *ring.Ring, ended <-chan struct{}) {
	var last string
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		var names []string
		if all, err := seen.GetAllHealthy(ring.Read); err == nil {
			for _, i := range all.Instances {
				names = append(names, i.Id)
			}
		}
		slices.Sort(names)
		if now := strings.Join(names, " "); now != last {
			last = now
			fmt.Println("instances", now)
		}
	}
}
