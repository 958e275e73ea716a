package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
)

// footprint is what a member's process takes of its machine.
type footprint struct {
	disk uint64 // bytes allocated for the files of its directory
	rss  uint64 // resident memory, with the program's pages
	heap uint64 // live and dead Go objects
}

// max returns the larger one of each.
func (f footprint) max(g footprint) footprint {
	return footprint{max(f.disk, g.disk), max(f.rss, g.rss), max(f.heap, g.heap)}
}

func (f footprint) String() string {
	return fmt.Sprintf("%12.1f %12.1f %12.1f", mb(f.disk), mb(f.rss), mb(f.heap))
}

func mb(bytes uint64) float64 { return float64(bytes) / 1e6 }

// runFootprint measures the disk and memory of three members, each a process of the agent, before and
// while a client locks and unlocks at a fixed rate. The state stays empty but for what is held.
func runFootprint(ctx context.Context, o options, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	dir := filepath.Join(o.dir, "footprint")
	defer func() { _ = os.RemoveAll(dir) }() // of this program
	agents, err := startAgents(ctx, o.agent, dir)
	defer func() {
		stop()
		for _, a := range agents {
			<-a.ended
		}
	}()
	if err != nil {
		return err
	}
	c, err := dialAgents(ctx, agents)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(ctx) }()
	fmt.Fprintf(out, "the largest of %d members, in MB (10^6 bytes): %21s %12s %12s\n", members, "disk", "RSS", "Go heap")
	idle, err := watchAgents(ctx, agents, o.footprint/4)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%-46s %s\n", fmt.Sprintf("without a call, for %v", o.footprint/4), idle)
	pacing, end := context.WithTimeout(ctx, o.footprint)
	defer end()
	calls := make(chan int, 1)
	go func() { calls <- pace(pacing, c, o.rate) }()
	busy, err := watchAgents(ctx, agents, o.footprint)
	if err != nil {
		return err
	}
	rate := float64(<-calls) / o.footprint.Seconds()
	_, err = fmt.Fprintf(out, "%-46s %s\n", fmt.Sprintf("%.0f calls a second, for %v", rate, o.footprint), busy)
	return err
}

// paced is how many callers share the rate.
const paced = 16

// pace has callers lock and unlock, each its lock, at a rate that all of them share, until ctx
// is done. It returns the number of calls that have returned without an error.
func pace(ctx context.Context, c *conclave.Client, rate int) (calls int) {
	due := make(chan struct{}, rate)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range paced {
		l := c.FencedLock(fmt.Sprint("footprint/", i))
		wg.Go(func() {
			for range due {
				_, err := l.Lock(ctx)
				if err == nil {
					err = l.Unlock(ctx)
				}
				if err == nil {
					mu.Lock()
					calls += 2
					mu.Unlock()
				}
			}
		})
	}
	const slice = 10 * time.Millisecond
	ticker := time.NewTicker(slice)
	defer ticker.Stop()
	began, cycles := time.Now(), 0
	for ctx.Err() == nil {
		for want := int(time.Since(began).Seconds() * float64(rate) / 2); cycles < want; cycles++ {
			select {
			case due <- struct{}{}:
			default: // the group is slower than the rate
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
	close(due)
	wg.Wait()
	return calls
}

// agent is one process of conclave agent.
type agent struct {
	dir, bind, http string
	log             string // file
	ended           chan struct{}
	err             error // what ended it
}

// startAgents starts the members of a group. Their ports were free a moment before.
func startAgents(ctx context.Context, program, dir string) ([]*agent, error) {
	listeners, addresses, err := listen(2 * members)
	if err != nil {
		return nil, err
	}
	for _, l := range listeners {
		l.Close()
	}
	var agents []*agent
	for i := range members {
		a := &agent{
			dir: filepath.Join(dir, fmt.Sprint("m", i)), bind: addresses[i], http: addresses[members+i],
			log: filepath.Join(dir, fmt.Sprint("m", i, ".log")), ended: make(chan struct{}),
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return agents, err
		}
		log, err := os.Create(a.log)
		if err != nil {
			return agents, err
		}
		cmd := exec.CommandContext(ctx, program, "agent", "--dir", a.dir, "--bind", a.bind, "--http", a.http,
			"--join", strings.Join(addresses[:members], ","), "--expect", fmt.Sprint(members))
		cmd.Stdout, cmd.Stderr = log, log
		dieWithParent(cmd)
		agents = append(agents, a)
		go a.run(cmd, log)
	}
	return agents, nil
}

// run is as zooKeeperServer.run.
func (a *agent) run(cmd *exec.Cmd, log io.Closer) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(a.ended)
	a.err = errors.Join(cmd.Run(), log.Close())
}

// dialAgents connects once the group has formed.
func dialAgents(ctx context.Context, agents []*agent) (*conclave.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var addresses []string
	for _, a := range agents {
		addresses = append(addresses, a.bind)
	}
	c, err := conclave.Dial(ctx, &conclave.ClientConfig{Name: "footprint", Addresses: addresses})
	if err == nil {
		return c, nil
	}
	text, _ := os.ReadFile(agents[0].log)
	return nil, fmt.Errorf("%w: log of a member:\n%s", err, text)
}

// watchAgents returns the largest footprint of any agent, looked at once a second.
func watchAgents(ctx context.Context, agents []*agent, d time.Duration) (largest footprint, err error) {
	for end := time.Now().Add(d); ; {
		for _, a := range agents {
			f, err := a.footprint(ctx)
			if err != nil {
				return footprint{}, err
			}
			largest = largest.max(f)
		}
		if time.Now().After(end) {
			return largest, nil
		}
		if err := pass(ctx, time.Second); err != nil {
			return footprint{}, err
		}
	}
}

// plain asks for no compression, which would cost the agent more memory than what it is asked.
var plain = http.Client{Transport: &http.Transport{DisableCompression: true}}

// footprint takes the memory from the agent's metrics. Systems whose memory the collector of
// processes does not know have 0 there.
func (a *agent) footprint(ctx context.Context) (f footprint, err error) {
	select {
	case <-a.ended:
		return f, fmt.Errorf("a member has ended: %v: see %s", a.err, a.log)
	default:
	}
	if f.disk, err = allocated(a.dir); err != nil {
		return f, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.http+"/metrics", nil)
	if err != nil {
		return f, err
	}
	r, err := plain.Do(request)
	if err != nil {
		return f, err
	}
	defer r.Body.Close()
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		switch name {
		case "process_resident_memory_bytes":
			f.rss = uint64(n)
		case "go_memstats_heap_inuse_bytes":
			f.heap = uint64(n)
		}
	}
	return f, nil
}

// allocated returns the bytes that the files below a directory take on the disk. A file that
// is removed meanwhile takes none.
func allocated(dir string) (n uint64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err == nil {
			var info os.FileInfo
			if info, err = d.Info(); err == nil {
				n += blocks(info)
			}
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
	return n, err
}
