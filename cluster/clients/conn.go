package clients

import (
	"context"
	"errors"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wait"
	"github.com/conclave-go/conclave/internal/wire"
)

// conn is the connection of a client. The loop's goroutine owns it, except for conn,
// requests, handled and gathering, and for attach until it is complete.
type conn struct {
	server      *Server
	conn        *transport.ClientConn
	client      uint64
	incarnation wire.ID
	attach      *wire.Attach    // what has come of it; nil: it has been answered
	gathering   bool            // the next frame has another part of attach
	place       int             // in clients.attaching, from 1 on; 0: none
	arrived     uint64          // its number of those that have asked to be attached
	notices     []*wire.Notice  // to be sent
	renewing    uint64          // the number of the last renewal that it has asked for; 0: none since the last tick
	views       bool            // it understands a GroupView
	view        *wire.GroupView // that it has
	requests    requests
	handled     wait.Signal // set when the loop has handled a frame
}

var (
	errClientProtocol = errors.New("unexpected frame")
	errTooManyItems   = errors.New("limit exceeded: more calls, or more to be looked up, than a client has")
	errReattach       = errors.New("a snapshot has replaced the state: attach again")
	errReplaced       = errors.New("replaced by a later connection of the same client")
)

// Serve serves the connection of a client, on the goroutine of the connection.
func (s *Server) Serve(to *transport.ClientConn) {
	peer := to.Peer()
	c := &conn{server: s, conn: to, client: peer.Member, incarnation: peer.Incarnation, handled: wait.NewSignal()}
	c.attach, c.gathering = new(wire.Attach), true
	c.requests.running = make(map[uint64]context.CancelFunc)
	ctx, cancel := context.WithCancel(s.cfg.Lifetime)
	defer c.requests.wait()
	defer cancel()
	err := s.readClient(ctx, c)
	to.Close(err)
	_ = s.fromClient(c, func() { s.detach(c) }) // it fails only if nothing is attached any more
}

// fromClient has the loop run what follows from a frame, or from the end of the connection, in
// the order of these. It blocks until the loop has, so that the frames of one client do not fill
// the queue that it shares with the members.
func (s *Server) fromClient(c *conn, run func()) error {
	select {
	case s.cfg.Queue <- func(*core.Core) { run(); c.handled.Set() }:
	case <-s.cfg.Lifetime.Done():
		return s.cfg.Stopped()
	}
	select {
	case <-c.handled:
		return nil
	case <-s.cfg.Lifetime.Done():
		return s.cfg.Stopped()
	}
}

// readClient reads the frames of a client until the connection fails.
func (s *Server) readClient(ctx context.Context, c *conn) error {
	for {
		f := new(wire.ClientFrame)
		if err := c.conn.Read(f); err != nil {
			return err
		}
		if _, attaches := f.GetBody().(*wire.ClientFrame_Attach); attaches != c.gathering {
			return errClientProtocol
		}
		var run func()
		switch body := f.GetBody().(type) {
		case *wire.ClientFrame_Attach:
			if err := c.gather(body.Attach); err != nil {
				return err
			}
			if c.gathering {
				continue
			}
			run = func() { s.attach(c) }
		case *wire.ClientFrame_Submission:
			if err := checkSubmission(body.Submission); err != nil {
				return err
			}
			submission := c.submission(body.Submission)
			run = func() { s.submit(c, submission) }
		case *wire.ClientFrame_Renew:
			run = func() { c.renews(body.Renew) }
		case *wire.ClientFrame_Request:
			if err := s.beginRequest(ctx, c, body.Request); err != nil {
				return err
			}
			continue
		case *wire.ClientFrame_Cancel:
			c.requests.cancel(body.Cancel)
			continue
		default:
			return errClientProtocol
		}
		if err := s.fromClient(c, run); err != nil {
			return err
		}
	}
}

// checkSubmission refuses what no honest client submits, before its commands are decoded
// anywhere.
func checkSubmission(s *wire.Submission) error {
	if len(s.GetCalls()) > core.MaxClientCalls {
		return errTooManyItems
	}
	command := new(wire.Command)
	for _, c := range s.GetCalls() {
		if err := wire.Check(command, c.GetCommand()); err != nil {
			return err
		}
	}
	return nil
}

// submission is what the client submits, in its own name.
func (c *conn) submission(s *wire.Submission) *wire.Submission {
	return &wire.Submission{
		Member: c.client, Incarnation: c.incarnation[:], Client: true,
		Floor: s.GetFloor(), Calls: s.GetCalls(), Urgent: s.GetUrgent(), Applied: s.GetApplied(),
	}
}
