package grouptest

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
)

// outsider is the place in the network of a client.
const outsider = 3

// The documented limits of a Close in a bubble: the graceful part, and functions of the
// application that have not returned.
const (
	gossipEnd          = time.Second // its announcement, and its last probe
	longestClose       = 3*BubbleElection + 7*time.Second + gossipEnd
	longestClientClose = 3*time.Second + 7*time.Second
)

// hosted is a group whose members, and a client, have every function that an application can
// pass to them.
type hosted struct {
	*Group
	apps   []*Application // of the members
	ours   *authority
	client *Application
}

func inHostedBubble(t *testing.T, test func(h *hosted)) {
	h := new(hosted)
	InBubble(t, outsider+1, func(g *Group) {
		defer h.release()
		test(h)
	}, Newcomers(1), Edit(func(i int, c *conclave.Config, _ *cluster.Seams) {
		if h.ours == nil {
			h.ours, h.client = newAuthority(h.T), NewApplication() // in the bubble
		}
		h.apps = append(h.apps, NewApplication())
		c.TLS = h.tls()
		h.apps[i].Configure(c)
	}), func(g *Group) {
		h.Group = g
		g.listener = func(i int, l net.Listener) net.Listener { return h.apps[i].Listen(l) }
	})
}

func (h *hosted) tls() *tls.Config {
	return &tls.Config{Certificates: h.ours.issue(h.T), RootCAs: h.ours.pool}
}

// release lets every goroutine of the bubble end.
func (h *hosted) release() {
	h.client.Release()
	for _, a := range h.apps {
		a.Release()
	}
}

// clientConfig configures a client of a member.
func (h *hosted) clientConfig(app *Application, member int) *conclave.ClientConfig {
	c := &conclave.ClientConfig{
		Addresses: []string{h.Configs[member].Bind}, TLS: h.tls(), Dial: h.Net.Dialer(outsider), SessionTTL: BubbleTTL,
	}
	app.ConfigureClient(c)
	return c
}

// unconnected excludes the connections that exist: without them a member is partitioned.
func unconnected(name string) bool { return !strings.HasPrefix(name, "Conn.") }

func everything(string) bool { return true }

// While no function of the application returns, a member and a client keep what they hold and
// get more, the others go on, and Close ends in its time.
func TestApplication_Blocks(t *testing.T) {
	for name, blocks := range map[string]func(string) bool{
		"all": unconnected,
		// Else no new connection gets as far as the callbacks of TLS and VerifyPeer.
		"all but the listener": func(name string) bool { return unconnected(name) && !strings.HasPrefix(name, "Listener.") },
		"VerifyPeer":           func(name string) bool { return name == "VerifyPeer" },
		"Logger":               func(name string) bool { return strings.HasPrefix(name, "Logger.") },
		"addresses":            func(name string) bool { return strings.HasSuffix(name, "Addr") },
		"Conn.Close":           func(name string) bool { return name == "Conn.Close" },
	} {
		for _, role := range []string{"leader", "follower"} {
			t.Run(name+"/"+role, func(t *testing.T) {
				t.Parallel()
				inHostedBubble(t, func(h *hosted) {
					target := h.Leader()
					if role == "follower" {
						target = (target + 1) % outsider
					}
					h.wantUnharmed(target, blocks, func(a *Application) { a.Block(blocks) })
				})
			})
		}
	}
}

// wantUnharmed checks that a member and a client do all that they have to once begin was called. blocks are
// functions that block from then on.
func (h *hosted) wantUnharmed(target int, blocks func(string) bool, begin func(*Application)) {
	n, app := h.Nodes[target], h.apps[target]
	c, err := conclave.Dial(Bounded(h.T), h.clientConfig(h.client, target))
	Must(h.T, err)
	kept, clients := n.FencedLock("kept"), c.FencedLock("client's")
	fence := MustLock(h.T, kept)
	clientFence := MustLock(h.T, clients)
	short := MustSession(h.T, n, Lasting())
	MustLock(h.T, short.FencedLock("short"))

	begin(app)
	begin(h.client)
	var calls sync.WaitGroup
	defer calls.Wait()
	defer h.release()
	h.trace(&calls, n)
	h.connect(&calls, target)
	Must(h.T, n.CloseSession(Bounded(h.T), short.ID())) // an event and a line of the log
	for range 3 {
		Pass(BubbleTTL)
		h.wantHeld("kept", kept, fence)
		h.wantHeld("client's", clients, clientFence)
		for _, a := range []Access{n, c, h.Nodes[(target+1)%outsider], h.Nodes[(target+2)%outsider]} {
			l := a.FencedLock("common")
			MustLock(h.T, l)
			MustUnlock(h.T, l)
		}
	}
	for _, prefix := range []string{"Logger.", "Events.", "Tracer.Begin", "Span.Carrier", "Span.Event", "Span.End"} {
		if blocks(prefix) && app.Blocked(prefix) == 0 {
			h.T.Errorf("%s has blocked no call", prefix)
		}
	}
	if app.Blocked("Listener.Accept")+app.Blocked("TLS.")+app.Blocked("VerifyPeer") == 0 && blocks("VerifyPeer") {
		h.T.Error("no new connection was blocked")
	}
	app.Block(everything)
	h.client.Block(everything)
	h.wantCloses(c, longestClientClose)
	h.Nodes[target] = nil
	h.wantCloses(n, longestClose)
	h.Leader()
	h.WantWorking()
}

// wantHeld checks that a lock is held, here and in the group.
func (h *hosted) wantHeld(name string, l *conclave.FencedLock, want conclave.Fence) {
	h.T.Helper()
	if now, err := l.Fence(); err != nil || now != want {
		h.T.Errorf("%s is held with fence %v, %v; want %v", name, now, err, want)
	}
	for _, i := range h.Running() {
		info, err := h.Nodes[i].FencedLock(name).Info(Bounded(h.T))
		if err != nil || info.Fence != want {
			h.T.Errorf("%s is held with fence %v for member %d, %v; want %v", name, info.Fence, i, err, want)
		}
	}
}

// trace makes calls that block in one method each of the tracer and its spans.
func (h *hosted) trace(calls *sync.WaitGroup, n *conclave.Node) {
	for _, method := range append(methods[conclave.Tracer]("Tracer"), methods[conclave.Span]("Span")...) {
		calls.Go(func() {
			ctx := context.Background()
			l := n.FencedLock(traced + method)
			if _, err := l.Lock(ctx); err == nil {
				_ = l.Unlock(ctx) // the node may be closed by now
			}
		})
	}
}

// connect has clients dial the member: its functions are asked about them.
func (h *hosted) connect(calls *sync.WaitGroup, target int) {
	for range 3 {
		cfg := h.clientConfig(NewApplication(), target)
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 2*BubbleTTL)
			defer cancel()
			c, err := conclave.Dial(ctx, cfg)
			if err == nil {
				err = c.Close(ctx)
			}
			if err != nil && !errors.Is(err, conclave.ErrUnavailable) && !errors.Is(err, conclave.ErrUnknown) {
				h.T.Errorf("a client of the member: %v", err)
			}
		})
	}
}

// wantCloses checks that Close returns in its time.
func (h *hosted) wantCloses(a Access, limit time.Duration) {
	h.T.Helper()
	began, closed := time.Now(), make(chan struct{})
	go func() {
		defer close(closed)
		_ = a.Close(context.Background()) // without connections it cannot be graceful
	}()
	select {
	case <-closed:
		if took := time.Since(began); took > limit {
			h.T.Errorf("Close took %v, want at most %v", took, limit)
		}
	case <-time.After(2 * time.Minute):
		h.T.Error("Close does not return")
	}
}

// Functions that panic, or end their goroutine as a test's FailNow does, cost no more.
func TestApplication_Fails(t *testing.T) {
	for name, fail := range map[string]func(name string){
		"panic": func(name string) { panic(name) },
		"goexit": func(name string) {
			if !strings.HasPrefix(name, "Tracer.") && !strings.HasPrefix(name, "Span.") { // which the caller's goroutine calls
				runtime.Goexit()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inHostedBubble(t, func(h *hosted) {
				none := func(string) bool { return false }
				h.wantUnharmed(h.Leader(), none, func(a *Application) {
					a.Fail(func(name string) {
						if unconnected(name) {
							fail(name)
						}
					})
				})
			})
		})
	}
}

// Open and Dial end with their context while no function of the application returns.
func TestApplication_BlocksFromTheStart(t *testing.T) {
	t.Parallel()
	inHostedBubble(t, func(h *hosted) {
		for _, app := range append(h.apps[outsider:], h.client) {
			app.Block(everything)
		}
		c := h.Configs[outsider]
		c.Listener = h.apps[outsider].Listen(h.Net.Listen(outsider, c.Bind))
		opening := map[string]func(context.Context) error{
			"Open": func(ctx context.Context) error { _, err := conclave.Open(ctx, &c); return err },
			"Dial": func(ctx context.Context) error {
				_, err := conclave.Dial(ctx, h.clientConfig(h.client, 0))
				return err
			},
		}
		for name, open := range opening {
			ended := make(chan error, 1)
			began := time.Now()
			go func() { ended <- open(Within(h.T, 5*time.Second)) }()
			select {
			case err := <-ended:
				if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 10*time.Second {
					h.T.Errorf("%s returned after %v: %v", name, took, err)
				}
			case <-time.After(2 * time.Minute):
				h.T.Errorf("%s does not return", name)
			}
		}
	})
}

// The tests above cover every function that a configuration has.
func TestApplication_HasEachFunction(t *testing.T) {
	t.Parallel()
	inHostedBubble(t, func(h *hosted) {
		c, err := conclave.Dial(Bounded(h.T), h.clientConfig(h.client, 0))
		Must(h.T, err)
		MustLock(h.T, h.Nodes[0].FencedLock(traced+"x")) // which shows the tracer
		MustLock(h.T, c.FencedLock(traced+"y"))
		for config, app := range map[reflect.Type]*Application{
			reflect.TypeFor[conclave.Config]():       h.apps[0],
			reflect.TypeFor[conclave.ClientConfig](): h.client,
		} {
			names, unknown := Functions(config)
			if missing := app.Missing(names); len(missing) > 0 {
				h.T.Errorf("%v: no test blocks the functions %v: add them to Application", config, missing)
			}
			if len(unknown) > 0 {
				h.T.Errorf("%v: the fields %v may have functions: add them to Functions", config, unknown)
			}
		}
		Must(h.T, c.Close(h.T.Context()))
	})
}
