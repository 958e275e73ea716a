// Command worker is a program as it is written for Consul, with HashiCorp's client and nothing else: it
// campaigns for leadership, counts its terms, and works under a semaphore. Its agent is the one that
// CONSUL_HTTP_ADDR names. It checks itself: it exits with status 1 when another leader or more workers
// than the limit are active beside it.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/hashicorp/consul/api"
)

var (
	name  = flag.String("name", "worker", "of this process")
	terms = flag.Int("terms", 2, "how often to lead")
	jobs  = flag.Int("jobs", 2, "how often to work under the semaphore")
	limit = flag.Int("limit", 2, "workers at a time")
	hold  = flag.Bool("hold", false, "lead until the standard input ends")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", *name, err)
		os.Exit(1)
	}
	fmt.Println("done")
}

func run() error {
	client, err := api.NewClient(api.DefaultConfig())
	if err != nil {
		return err
	}
	for term := range *terms {
		if err := lead(client); err != nil {
			return fmt.Errorf("term %d: %w", term, err)
		}
	}
	for job := range *jobs {
		if err := work(client); err != nil {
			return fmt.Errorf("job %d: %w", job, err)
		}
	}
	return nil
}

// lead is one term: elected, at work, resigned.
func lead(client *api.Client) error {
	lock, err := client.LockOpts(&api.LockOptions{
		Key: "service/worker/leader", Value: []byte(*name),
		SessionName: *name, SessionTTL: "10s", LockDelay: 100 * time.Millisecond,
		MonitorRetries: 5, MonitorRetryTime: 200 * time.Millisecond, LockWaitTime: 2 * time.Second,
	})
	if err != nil {
		return err
	}
	lost, err := lock.Lock(nil)
	if err != nil {
		return err
	}
	fmt.Println("leading")
	if *hold {
		if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
			return err
		}
	}
	if err := count(client, "service/worker/terms"); err != nil {
		return err
	}
	select {
	case <-lost:
		return fmt.Errorf("leadership was lost")
	default:
	}
	fmt.Println("resigning")
	return lock.Unlock()
}

// count increments a key in two calls, which only a single leader may do.
func count(client *api.Client, key string) error {
	pair, _, err := client.KV().Get(key, nil)
	if err != nil {
		return err
	}
	n := 0
	if pair != nil {
		if n, err = strconv.Atoi(string(pair.Value)); err != nil {
			return err
		}
	}
	if _, err = client.KV().Put(&api.KVPair{Key: key, Value: []byte(strconv.Itoa(n + 1))}, nil); err != nil {
		return err
	}
	pair, _, err = client.KV().Get(key, nil)
	if err == nil && (pair == nil || string(pair.Value) != strconv.Itoa(n+1)) {
		err = fmt.Errorf("%s: %+v, want %d: there is another leader", key, pair, n+1)
	}
	return err
}

// work is one job under the semaphore.
func work(client *api.Client) error {
	semaphore, err := client.SemaphoreOpts(&api.SemaphoreOptions{
		Prefix: "service/worker/slots", Limit: *limit, Value: []byte(*name), SessionName: *name, SessionTTL: "10s",
		MonitorRetries: 5, MonitorRetryTime: 200 * time.Millisecond, SemaphoreWaitTime: 2 * time.Second,
	})
	if err != nil {
		return err
	}
	if _, err := semaphore.Acquire(nil); err != nil {
		return err
	}
	active := "service/worker/active/" + *name
	if _, err := client.KV().Put(&api.KVPair{Key: active}, nil); err != nil {
		return err
	}
	keys, _, err := client.KV().Keys("service/worker/active/", "", nil)
	if err != nil {
		return err
	}
	if len(keys) > *limit {
		return fmt.Errorf("%q are active, the limit is %d", keys, *limit)
	}
	if _, err := client.KV().Delete(active, nil); err != nil {
		return err
	}
	fmt.Println("worked")
	return semaphore.Release()
}
