package remote

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

var errNoMember = errors.New("no member")

// unconnected returns a client, and the group to which it is not connected.
func unconnected(t *testing.T) (*client.Client, *Group) {
	t.Helper()
	c := client.New(client.Config{TTL: time.Minute, IncarnationTTL: time.Minute, Logger: slog.New(slog.DiscardHandler), Closed: ErrClosed})
	g, err := New(Config{
		Addresses: []string{"127.0.0.1:1"}, Group: "conclave", Insecure: true, Logger: slog.New(slog.DiscardHandler), MaxCalls: 100,
		Dial:  func(context.Context, string) (net.Conn, error) { return nil, errNoMember },
		Ended: c.SessionEnded, Recalled: c.Recalled, Replaced: c.StateReplaced, Woke: func() {}, Sessions: func() []wire.ID { return nil },
		Patience: func() time.Duration { return time.Second }, Left: func() time.Duration { return time.Second },
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Connect(g, g.Registration)
	g.Start()
	return c, g
}

// A call that was not sent when the group ends has no effect, and its error says so: also one that is submitted afterwards, before the client knows.
func TestSubmit_GroupEnds(t *testing.T) {
	for _, why := range []error{ErrDeleted, ErrClosed} {
		t.Run(why.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, g := unconnected(t)
				put := func() error {
					_, err := c.Exec(t.Context(), &wire.Command{Op: &wire.Command_Write{Write: &wire.Write{}}})
					return err
				}
				queued := make(chan error)
				go func() { queued <- put() }()
				synctest.Wait()
				go g.Close(why)
				for what, err := range map[string]error{"queued": <-queued, "submitted later": put()} {
					if !errors.Is(err, why) || client.IsKind(err, client.Unknown) {
						t.Errorf("%s: %v, want %v without effect", what, err, why)
					}
				}
				g.Close(why)
			})
		})
	}
}

// The answers to calls that wait for a registration which the group refuses, and to those that come later.
func TestOutcome_RegistrationRefused(t *testing.T) {
	for _, code := range []wire.Code{wire.Code_BUSY, wire.Code_LEVEL, wire.Code_GROUP_DELETED, wire.Code_INVALID} {
		t.Run(code.String(), func(t *testing.T) {
			g := &Group{tickets: tickets.New[client.Call]()}
			g.tickets.Gate()
			registration, waiting, renewing := new(answered), new(answered), new(answered)
			g.tickets.Add(nil, registration, true)
			g.tickets.Issue(0)
			g.tickets.Add(nil, waiting, false)
			g.renewals = []renewal{{1, renewing}}
			g.outcome(&wire.DeliveredOutcome{Seq: 1, Reply: &wire.Reply{Code: code}})
			for what, c := range map[string]*answered{"registration": registration, "waiting": waiting, "renewal": renewing} {
				if c.code != code || c.sent != (c == registration) {
					t.Errorf("%s: %v, sent: %v", what, c.code, c.sent)
				}
			}
			if len(g.renewals) > 0 || g.tickets.Registered() {
				t.Errorf("%d renewals wait, registered: %v", len(g.renewals), g.tickets.Registered())
			}
		})
	}
}

// answered is a call that notes its outcome.
type answered struct {
	code wire.Code
	sent bool
}

func (a *answered) Deliver(t wire.Ticket, r *wire.Reply, _ bool) {
	a.code, a.sent = r.GetCode(), t.Seq > 0
}
func (*answered) Cancelled(bool)                                  {}
func (*answered) Recheck(wire.Rechecker, wire.Ticket) *wire.Reply { return nil }
func (*answered) Fail(error)                                      {}
