package scale

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// clientsVariable makes this test binary a process with clients: it has their number and the
// addresses of the members.
const clientsVariable = "CONCLAVE_TEST_CLIENTS"

func TestMain(m *testing.M) {
	if v := os.Getenv(clientsVariable); v != "" {
		if err := runClients(v); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// runClients opens clients, each of which holds a lock, reports how long that took, and keeps
// them until standard input ends.
func runClients(variable string) error {
	var n int
	var addresses string
	if _, err := fmt.Sscan(variable, &n, &addresses); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	began := time.Now()
	clients := make([]*conclave.Client, n)
	failures := make(chan error, n)
	next := make(chan int, n)
	for i := range n {
		next <- i
	}
	close(next)
	var dialers sync.WaitGroup
	for range 64 {
		dialers.Go(func() {
			for i := range next {
				c, err := conclave.Dial(ctx, &conclave.ClientConfig{Addresses: strings.Split(addresses, ",")})
				if err == nil {
					clients[i] = c
					_, err = c.FencedLock(fmt.Sprint("lock-", i)).Lock(ctx)
				}
				failures <- err
			}
		})
	}
	dialers.Wait()
	for range n {
		if err := <-failures; err != nil {
			return err
		}
	}
	fmt.Println(time.Since(began))
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// BenchmarkClients measures what 10,000 clients of another process, each with a session and a
// lock, cost three members in this one: to connect, to register and lock, and then for their
// renewals.
func BenchmarkClients(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchmarkClients(b, n) })
	}
}

func benchmarkClients(b *testing.B, n int) {
	g := grouptest.Start(b, 3, grouptest.Edit(func(_ int, c *conclave.Config, _ *cluster.Seams) {
		c.HeartbeatInterval, c.ElectionTimeout, c.SessionTTL = 100*time.Millisecond, time.Second, 10*time.Second
	}))
	grouptest.Dial(b, &conclave.ClientConfig{}, g.Nodes...) // the group knows of clients
	var addresses []string
	for _, node := range g.Nodes {
		addresses = append(addresses, node.Addr())
	}
	before, leader := memory(), g.Nodes[g.Leader()]
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", clientsVariable, n, strings.Join(addresses, ",")))
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	grouptest.Must(b, err)
	out, err := child.StdoutPipe()
	grouptest.Must(b, err)
	grouptest.Must(b, child.Start())
	defer func() {
		_ = in.Close()
		_ = child.Wait()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	grouptest.Must(b, err)
	took, err := time.ParseDuration(strings.TrimSpace(line))
	if err != nil {
		b.Fatal(line)
	}
	memory := memory() - before
	entries, cpu, began := leader.Metrics().EntryCommands.Count(), processorTime(), time.Now()
	for b.Loop() {
		select {
		case <-time.After(5 * time.Minute):
		case <-b.Context().Done():
		}
	}
	passed := time.Since(began).Seconds()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(n)/took.Seconds(), "clients/s")
	b.ReportMetric(float64(memory)/float64(n)/1024, "KiB/client")
	b.ReportMetric(100*(processorTime()-cpu).Seconds()/passed, "%cpu")
	b.ReportMetric(float64(leader.Metrics().EntryCommands.Count()-entries)/passed, "entries/s")
	b.ReportMetric(float64(leader.Metrics().Sessions), "sessions")
}

// memory returns what the Go runtime uses, after a collection.
func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
