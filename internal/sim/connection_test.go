package sim

import (
	"time"

	"google.golang.org/protobuf/proto"
)

// connection is a connection between a client and a member, as TCP gives it: frames
// arrive once and in order, or the connection ends. It outlives a partition that is
// short enough. An end learns that the other one is gone after what was on its way, or
// instead of that, or not before keep-alives fail.
type connection struct {
	sim  *simulation
	ends [2]connectionEnd
}

// end is one of the two ends of a connection.
type end int

const (
	clientEnd end = iota
	memberEnd
)

func (e end) other() end { return 1 - e }

type connectionEnd struct {
	process      *process
	open         bool
	receive      func(body []byte)
	lost         func()        // called once, unless this end has closed the connection
	queue        []frame       // on their way to this end
	arriving     bool          // an event for the first of them is scheduled
	inbox        []frame       // arrived, and not read yet
	blockedSince time.Duration // of the link to this end; 0: it is not
}

// frame is an encoded message, or the end of the connection.
type frame struct {
	body []byte
	last bool
}

// keepAliveTimeout is when an end gives up a connection over which nothing arrives.
const keepAliveTimeout = 5 * time.Second

func newConnection(client, member *process) *connection {
	c := &connection{sim: client.sim}
	c.ends[clientEnd] = connectionEnd{process: client, open: true}
	c.ends[memberEnd] = connectionEnd{process: member, open: true}
	return c
}

// send sends a message from one end.
func (c *connection) send(from end, m proto.Message) {
	if !c.ends[from].open {
		return
	}
	body, err := proto.Marshal(m)
	if err != nil {
		c.sim.fail("encode a frame: %v", err)
	}
	c.push(from.other(), frame{body: body})
}

func (c *connection) push(to end, f frame) {
	e := &c.ends[to]
	e.queue = append(e.queue, f)
	if !e.arriving {
		e.arriving = true
		c.sim.schedule(c.sim.between(c.sim.network.minDelay, c.sim.network.maxDelay), func() { c.arrive(to) })
	}
}

// arrive delivers the first frame on its way to an end, unless the link is blocked.
func (c *connection) arrive(to end) {
	e, from := &c.ends[to], c.ends[to.other()].process.n
	e.arriving = false
	if !e.open || e.process.process != e.process || len(e.queue) == 0 {
		e.queue = nil
		return
	}
	pause := c.sim.between(0, c.sim.network.minDelay)
	if net := c.sim.network; net.cut[from][e.process.n] || net.stalledUntil[from][e.process.n] > c.sim.now {
		if e.blockedSince == 0 {
			e.blockedSince = c.sim.now
		}
		if c.sim.now-e.blockedSince > keepAliveTimeout {
			e.queue = []frame{{last: true}}
			c.accept(to)
			return
		}
		pause = 50 * time.Millisecond // until TCP sends it again
	} else {
		e.blockedSince = 0
		c.accept(to)
	}
	if len(e.queue) > 0 {
		e.arriving = true
		c.sim.schedule(pause, func() { c.arrive(to) })
	}
}

// accept moves a frame to the inbox of the process, which reads it once it runs.
func (c *connection) accept(to end) {
	e := &c.ends[to]
	e.inbox = append(e.inbox, e.queue[0])
	e.queue = e.queue[1:]
	e.process.runIfAlive(func() {
		if !e.open {
			return
		}
		f := e.inbox[0]
		e.inbox = e.inbox[1:]
		if !f.last {
			e.receive(f.body)
			return
		}
		e.open = false
		c.finish(to)
		e.lost()
	})
}

// close closes the connection from one end, or ends it as the process of that end ends.
func (c *connection) close(at end) {
	if e := &c.ends[at]; e.open {
		e.open = false
		c.finish(at)
	}
}

// finish lets the other end learn that this one is closed.
func (c *connection) finish(closed end) {
	to := closed.other()
	if !c.ends[to].open {
		return
	}
	switch c.sim.rng.IntN(4) {
	case 0: // reset: what was on its way is lost
		c.ends[to].queue = nil
		c.push(to, frame{last: true})
	case 1: // the host is down, or the packets are lost
		c.ends[to].queue = nil
		c.sim.schedule(c.sim.between(time.Second, keepAliveTimeout), func() { c.push(to, frame{last: true}) })
	default:
		c.push(to, frame{last: true})
	}
}

// cut breaks the connection: both ends learn of it.
func (c *connection) cut() {
	for _, e := range []end{clientEnd, memberEnd} {
		if c.ends[e].open {
			c.ends[e].queue = nil
			c.push(e, frame{last: true})
		}
	}
}
