package conclave

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"time"

	"github.com/conclave-go/conclave/internal/appcall"
	"github.com/conclave-go/conclave/internal/logqueue"
	"github.com/conclave-go/conclave/internal/memberlog"
	"github.com/conclave-go/conclave/internal/remote"
	"github.com/conclave-go/conclave/internal/wire"
)

// Functions of the application may block, panic or end their goroutine. None of them runs on a
// goroutine on which progress, a renewal or Close depends:
//
//   - Logger: on a goroutine of logqueue, which has lines only while one waits.
//   - Events: on a goroutine of its own, see events.go.
//   - Dial, VerifyPeer, Listener and the callbacks of TLS: each call on a goroutine of its own,
//     see package appcall. KeyLogWriter: on one that has the lines that wait.
//   - Tracer, bodies of loops, and what is passed to a single call: on the caller's goroutine.

// How long the end of a node or client waits for functions of the application that have begun.
const (
	eventGrace = 3 * time.Second
	callGrace  = 3 * time.Second // as in package transport
	logGrace   = time.Second
)

// application calls functions of the application.
type application struct {
	log   *slog.Logger // never blocks, and adds names of members
	names *memberlog.Names
	lines *logqueue.Queue
	calls *appcall.Calls
}

func newApplication(logger *slog.Logger) *application {
	log, lines := logqueue.New(logger)
	log, names := memberlog.New(log)
	return &application{log: log, names: names, lines: lines, calls: &appcall.Calls{Logger: log}}
}

// prepare returns a checked copy that listens, and whose functions heed what the application's
// may not.
func (c *Config) prepare(ctx context.Context) (checked Config, app *application, err error) {
	if c != nil {
		checked = *c
	}
	app = newApplication(checked.Logger)
	checked.Logger, checked.Dial = app.log, app.calls.Dial(checked.Dial)
	if checked.Listener, err = app.listener(ctx, checked.Listener); err == nil {
		checked, err = checked.withDefaults()
	}
	if err == nil {
		err = listen(ctx, &checked)
	}
	if err != nil {
		if checked.Listener != nil {
			checked.Listener.Close() // it is the node's, and there will be no node
		}
		app.failed()
	}
	return checked, app, err
}

// listener returns what to use instead of Config.Listener.
func (a *application) listener(ctx context.Context, l net.Listener) (net.Listener, error) {
	if l == nil {
		return nil, nil
	}
	return a.calls.Listener(ctx, l)
}

// failed waits for what has begun before the node or client failed to open.
func (a *application) failed() {
	a.calls.Wait(callGrace)
	a.lines.Close(logGrace)
}

var errVerifyPeer = errors.New("its VerifyPeer failed")

// verifyPeer adapts VerifyPeer to the layers below. An error refuses the connection.
func (a *application) verifyPeer(verify func(Peer) error) func(remote.Peer) error {
	if verify == nil {
		return nil
	}
	return func(p remote.Peer) error {
		verdict, err := appcall.Do(a.calls, "VerifyPeer", appcall.MaxLate, p.Closed, func() (err error) {
			defer func() {
				if r := recover(); r != nil {
					a.log.Error("panic in VerifyPeer", "member", wire.MemberID(p.Member), "panic", r, "stack", string(debug.Stack()))
					err = errVerifyPeer
				}
			}()
			return appcall.Freeze(verify(peerOf(p)))
		}, nil)
		switch {
		case errors.Is(err, appcall.ErrLate):
			return errors.New("its VerifyPeer has not returned in time")
		case errors.Is(err, appcall.ErrStuck):
			return fmt.Errorf("its VerifyPeer has not returned for %d other connections", appcall.MaxLate)
		case err != nil:
			return errVerifyPeer
		}
		return verdict
	}
}
