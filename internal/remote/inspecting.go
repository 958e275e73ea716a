package remote

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/wire"
)

// Inspecting: the members at some addresses are asked what each knows by itself. Unlike a Group this connects to all of
// them, and to each once: how it fails is part of the result.

// Inspected is what has come of an address.
type Inspected struct {
	Addr    string            // that was dialed
	Answers map[string][]byte // by kind of request; without those that the member's build does not know
	Err     error             // why there are no answers; nil: there are
}

const (
	// inspectTime bounds the inspection of one address. It is shorter than the time that a handshake may take
	// (transport.Timing), whose end would look like a wrong port.
	inspectTime = 2500 * time.Millisecond
	// leastInspectTime is what an address needs at least: in less than that a silent one may just be far away.
	leastInspectTime = 500 * time.Millisecond
	// maxInspecting bounds the attempts at a time.
	maxInspecting = 16
	// maxInspected bounds what one address may answer, which is retained until all have: what a member knows by itself
	// takes some hundred bytes for each of at most 1,024 members.
	maxInspected = 4 << 20
)

var errInspectedTooLarge = fmt.Errorf("the answer exceeds %d MiB: no member knows that much by itself", maxInspected>>20)

// noAnswer is the error of an address that does not answer in time.
type noAnswer struct {
	within   time.Duration
	resolved time.Duration // after which the name service had answered; 0: it was not asked
	dialed   bool          // there was an address to connect to
}

func (e noAnswer) Error() string {
	within := e.within.Round(time.Millisecond)
	switch {
	case !e.dialed:
		return fmt.Sprintf("no answer of the name service within %v", within)
	case e.within-e.resolved < leastInspectTime:
		return fmt.Sprintf("no answer within %v, of which the name service has taken %v", within, e.resolved.Round(time.Millisecond))
	}
	return fmt.Sprintf("no answer within %v: the process there is paused or overloaded, or the network drops what is sent to it", within)
}

// Timeout is that of [net.Error].
func (noAnswer) Timeout() bool { return true }

// Inspect asks the member at each address for the kinds of requests, which have no body, and blocks until all have answered
// or failed. An address whose host is a name of several members is as many. The order is that of the addresses. The error
// lists every fault of the settings for connections.
func Inspect(ctx context.Context, cfg Config, kinds ...string) ([]Inspected, error) {
	dialer, err := newDialer(&cfg)
	if err != nil {
		return nil, err
	}
	defer dialer.Close()
	i := &inspection{dialer: dialer, kinds: kinds, slots: make(chan struct{}, maxInspecting)}
	found := make([][]Inspected, len(cfg.Addresses))
	var routines sync.WaitGroup
	for n, addr := range cfg.Addresses {
		routines.Go(func() { found[n] = i.address(ctx, addr) })
	}
	routines.Wait()
	var all []Inspected
	for _, f := range found {
		all = append(all, f...)
	}
	return all, nil
}

// inspection is one call of Inspect.
type inspection struct {
	dialer *transport.Dialer
	kinds  []string
	slots  chan struct{} // has a token for each attempt under way
}

// address inspects what an address leads to. The name service and a member share the time.
func (i *inspection) address(ctx context.Context, addr string) []Inspected {
	targets, resolved := []transport.Target{{Addr: addr}}, time.Duration(0)
	if i.dialer.Resolves(addr) {
		i.slots <- struct{}{}
		began := time.Now()
		bounded, cancel := within(ctx, noAnswer{})
		found, err := i.dialer.Resolve(bounded, addr)
		cancel()
		resolved = time.Since(began)
		if <-i.slots; err != nil {
			return []Inspected{{Addr: addr, Err: endOf(ctx, addr, err)}}
		}
		targets = found
	}
	all := make([]Inspected, len(targets))
	var routines sync.WaitGroup
	for n, to := range targets {
		routines.Go(func() {
			i.slots <- struct{}{}
			defer func() { <-i.slots }()
			all[n].Addr = to.Addr
			bounded, cancel := within(ctx, noAnswer{resolved: resolved, dialed: true})
			defer cancel()
			answers, err := i.target(bounded, to)
			all[n].Answers, all[n].Err = answers, endOf(ctx, to.Addr, err)
		})
	}
	routines.Wait()
	return all
}

// within bounds what is left of the inspection of an address: it ends shortly before ctx, whose end says nothing about the
// address, unless there is too little time to say anything.
func within(ctx context.Context, e noAnswer) (context.Context, context.CancelFunc) {
	e.within = inspectTime
	if deadline, ok := ctx.Deadline(); ok {
		if left := e.resolved + time.Until(deadline)*9/10; left >= leastInspectTime {
			e.within = min(e.within, left)
		}
	}
	return context.WithTimeoutCause(ctx, e.within-e.resolved, e)
}

// endOf returns the end of ctx if that is why an address has failed: what else err says, such as that a port may be wrong,
// does not follow from it.
func endOf(ctx context.Context, addr string, err error) error {
	if end := context.Cause(ctx); end != nil && errors.Is(err, end) {
		return fmt.Errorf("inspect %s: %w", addr, client.ContextError(ctx))
	}
	return err
}

// target asks the member at a target. Each connection is that of another client: two to one member would end each other.
func (i *inspection) target(ctx context.Context, to transport.Target) (map[string][]byte, error) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	conn, err := i.dialer.Connect(ctx, to, key, wire.ID{})
	if err != nil {
		return nil, err
	}
	defer conn.Close(nil)
	defer context.AfterFunc(ctx, func() { conn.Close(context.Cause(ctx)) })()
	// The member begins with requests after an Attach. It does not wait for what comes of that.
	conn.Send(&wire.ClientFrame{Body: &wire.ClientFrame_Attach{Attach: new(wire.Attach)}}, 0)
	for n, kind := range i.kinds {
		conn.Send(&wire.ClientFrame{Body: &wire.ClientFrame_Request{Request: &wire.Request{Id: uint64(n), Kind: kind}}}, 0)
	}
	return i.read(conn.Read)
}

// read reads the answers from what next receives.
func (i *inspection) read(next func(proto.Message) error) (map[string][]byte, error) {
	answers, failed, size := make(map[string][]byte), make(map[string]error), 0
	for pending := len(i.kinds); pending > 0; {
		f := new(wire.MemberFrame)
		if err := next(f); err != nil {
			return nil, err
		}
		a := f.GetAnswer()
		if a == nil || a.GetId() >= uint64(len(i.kinds)) {
			continue // what the member delivers to clients
		}
		kind := i.kinds[a.GetId()]
		if size += len(a.GetPart()) + len(a.GetError()); size > maxInspected {
			return nil, errInspectedTooLarge
		}
		answers[kind] = append(answers[kind], a.GetPart()...)
		if a.GetFailure() != wire.Failure_FAILURE_NONE {
			failed[kind] = &RequestError{a.GetFailure(), a.GetError()}
		}
		if a.GetLast() {
			pending--
		}
	}
	for kind, err := range failed { // order: any of them
		var refused *RequestError
		if errors.As(err, &refused) && refused.Failure != wire.Failure_FAILURE_INVALID {
			return nil, err
		}
		delete(answers, kind) // the member's build does not know the kind
	}
	return answers, nil
}
