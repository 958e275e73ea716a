package grouptest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/storage"
)

// wantNothingLeft checks that run, which opens nodes of these configurations, leaves no
// goroutine, open file, port or locked directory behind. It counts those of the whole
// process, so that no other test may run beside it.
func wantNothingLeft(t *testing.T, configs []conclave.Config, run func()) {
	t.Helper()
	before, files := goleak.IgnoreCurrent(), openFiles()
	run()
	for _, c := range configs {
		l, err := net.Listen("tcp", c.Bind)
		if err != nil {
			t.Errorf("the port is still taken: %v", err)
			continue
		}
		l.Close()
		store, err := storage.Open(storage.Options{Dir: c.Dir})
		if errors.Is(err, storage.ErrInUse) {
			t.Error(err)
		}
		if err == nil {
			store.Close()
		}
	}
	if err := goleak.Find(before); err != nil { // retries for a while
		t.Error(err)
	}
	if now := openFiles(); now > files {
		t.Errorf("%d files and sockets are open, %d were before", now, files)
	}
}

// openFiles counts this process's open files, on Linux.
func openFiles() int {
	list, _ := os.ReadDir("/proc/self/fd")
	return len(list)
}

func TestClose_ManyTimes(t *testing.T) {
	c := SoloConfig(t)
	wantNothingLeft(t, []conclave.Config{c}, func() {
		for i := range often(50) {
			n, err := conclave.Open(Bounded(t), &c)
			if err != nil {
				t.Fatalf("time %d: %v", i, err)
			}
			if i%10 == 0 {
				MustLock(t, n.FencedLock("x"))
			}
			ctx := t.Context()
			if i%2 == 0 {
				ctx = cluster.WithCrash(ctx)
			}
			if err := n.Close(ctx); err != nil {
				t.Fatalf("time %d: %v", i, err)
			}
		}
	})
}

// Close is called by many goroutines under load. Each returns only when the node has
// stopped.
func TestClose_Concurrent(t *testing.T) {
	c := SoloConfig(t)
	wantNothingLeft(t, []conclave.Config{c}, func() {
		n, err := conclave.Open(Bounded(t), &c)
		if err != nil {
			t.Fatal(err)
		}
		defer Kill(n) // ends the goroutines
		var wg sync.WaitGroup
		for i := range 8 {
			l := n.FencedLock(fmt.Sprint(i % 3))
			wg.Go(func() {
				for {
					if _, err := l.Lock(t.Context()); errors.Is(err, conclave.ErrClosed) {
						return
					}
					_ = l.Unlock(t.Context()) // may come after Close
				}
			})
		}
		busy := n.FencedLock("busy")
		for range 20 {
			MustLock(t, busy)
			MustUnlock(t, busy)
		}
		for i := range 16 {
			ctx := []context.Context{t.Context(), Expired()}[i%2]
			wg.Go(func() {
				if err := n.Close(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				select {
				case <-n.Done():
				default:
					t.Error("Close returned before Done was closed")
				}
			})
		}
		wg.Wait()
		if err := n.Close(t.Context()); err != nil {
			t.Errorf("Close of a closed node: %v", err)
		}
		WantError(t, n.Err(), conclave.ErrClosed)
	})
}

// trio returns the configurations of three founders.
func trio(t *testing.T) []conclave.Config {
	t.Helper()
	configs := []conclave.Config{SoloConfig(t), SoloConfig(t), SoloConfig(t)}
	for i := range configs {
		configs[i].Expect = len(configs)
		for _, c := range configs {
			configs[i].Join = append(configs[i].Join, c.Bind)
		}
	}
	return configs
}

// openAll opens members at the same time and kills those that were opened.
func openAll(ctx context.Context, t *testing.T, configs []conclave.Config) {
	t.Helper()
	var wg sync.WaitGroup
	var opened sync.WaitGroup // a member needs the others until it is open
	opened.Add(len(configs))
	for _, c := range configs {
		wg.Go(func() {
			n, err := conclave.Open(ctx, &c)
			opened.Done()
			if err != nil {
				wantUnavailable(t, err)
				return
			}
			opened.Wait()
			Kill(n)
		})
	}
	wg.Wait()
}

func wantUnavailable(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, conclave.ErrUnavailable) || !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v; want ErrUnavailable and the context's error", err)
	}
}

// Open is abandoned: with a context that has ended, while it looks for other founders,
// while the group forms, and while it waits for a quorum, at random moments.
func TestOpen_Abandoned(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	moment := func(longest time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.Int64N(int64(longest))))
		t.Cleanup(cancel)
		return ctx
	}
	t.Run("context ended before", func(t *testing.T) {
		configs := trio(t)
		wantNothingLeft(t, configs, func() { openAll(Expired(), t, configs) })
	})
	t.Run("without other founders", func(t *testing.T) {
		configs := trio(t)
		wantNothingLeft(t, configs[:1], func() {
			for range 10 {
				openAll(moment(300*time.Millisecond), t, configs[:1])
			}
		})
	})
	t.Run("while forming", func(t *testing.T) {
		for range 6 {
			configs := trio(t)
			wantNothingLeft(t, configs, func() { openAll(moment(700*time.Millisecond), t, configs) })
		}
	})
	t.Run("without a quorum", func(t *testing.T) {
		configs := trio(t)
		wantNothingLeft(t, configs, func() {
			openAll(Bounded(t), t, configs) // forms the group
			for range 10 {
				openAll(moment(300*time.Millisecond), t, configs[:1])
			}
			openAll(Bounded(t), t, configs) // the group is unharmed
		})
	})
}

// Open fails at different stages and undoes the earlier ones.
func TestOpen_FailedLeavesNothing(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, spoil := range map[string]func(t *testing.T, c *conclave.Config){
		"settings":  func(_ *testing.T, c *conclave.Config) { c.Voters = 4 },
		"directory": func(t *testing.T, c *conclave.Config) { c.Dir = foreignDirectory(t) },
		"group":     func(t *testing.T, c *conclave.Config) { formed(t, *c); c.Group = "other" },
		"damage": func(t *testing.T, c *conclave.Config) {
			formed(t, *c)
			spoil(t, filepath.Join(c.Dir, "*.log"), flipped)
		},
		"gossip": func(_ *testing.T, c *conclave.Config) {
			c.Advertise = strings.Repeat("x", 500) + ":1"
			c.Insecure = true
		},
		"port": func(_ *testing.T, c *conclave.Config) { c.Bind = taken.Addr().String() },
	} {
		t.Run(name, func(t *testing.T) {
			c := SoloConfig(t)
			free := conclave.Config{Dir: c.Dir, Bind: c.Bind}
			spoil(t, &c)
			if name == "directory" {
				free.Dir = filepath.Join(t.TempDir(), "data")
			}
			wantNothingLeft(t, []conclave.Config{free}, func() {
				n, err := conclave.Open(Bounded(t), &c)
				if err == nil {
					Kill(n)
					t.Fatal("opened")
				}
				if name == "port" && !errors.Is(err, syscall.EADDRINUSE) {
					t.Error(err)
				}
			})
		})
	}
}

// Open owns Config.Listener also when it fails.
func TestOpen_FailedClosesListener(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(c *conclave.Config){
		"settings":  func(c *conclave.Config) { c.Voters = 4 },
		"directory": func(c *conclave.Config) { c.Dir = foreignDirectory(t) },
	} {
		t.Run(name, func(t *testing.T) {
			c := SoloConfig(t)
			l, err := net.Listen("tcp", c.Bind)
			if err != nil {
				t.Fatal(err)
			}
			c.Listener = l
			spoil(&c)
			if n, err := conclave.Open(Bounded(t), &c); err == nil {
				Kill(n)
				t.Fatal("opened")
			}
			if err := l.(*net.TCPListener).SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the listener is not closed: %v", err)
			}
		})
	}
}
