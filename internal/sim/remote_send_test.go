package sim

import (
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/tickets"
	"github.com/conclave-go/conclave/internal/wire"
)

// What a client sends: commands, renewals and queries.

// send sends the commands that next returns.
func (r *remote) send(next func(tick uint64) tickets.Outgoing) {
	if r.link == nil {
		return
	}
	out := next(r.ticks)
	r.sendLane(out.Urgent, true)
	r.sendLane(out.Ordinary, false)
}

func (r *remote) sendLane(calls []*wire.Call, urgent bool) {
	for calls := range tickets.Split(calls) {
		r.link.conn.send(clientEnd, &wire.ClientFrame{Body: &wire.ClientFrame_Submission{Submission: &wire.Submission{
			Floor: r.tickets.Floor(), Calls: calls, Urgent: urgent, Applied: r.applied,
		}}})
	}
}

// sendRenewal sends the latest renewal: it answers for those before. There is none before the
// registration.
func (r *remote) sendRenewal() {
	if r.link == nil || len(r.renewals) == 0 || !r.tickets.Registered() {
		return
	}
	if r.link.askedAt == 0 {
		r.link.askedAt = max(r.ticks, 1)
	}
	r.link.conn.send(clientEnd, &wire.ClientFrame{Body: &wire.ClientFrame_Renew{Renew: r.renewals[len(r.renewals)-1].number}})
}

func (r *remote) submit(command []byte, c *simCall, urgent bool) {
	r.runIfAlive(func() {
		if r.tickets.Refused() {
			tickets.Answer(c, r.program.incarnation, nil)
			return
		}
		if !r.tickets.Admits(len(command), urgent, clientMaxCalls, 0) {
			c.Fail(tickets.ErrBusy)
			return
		}
		r.tickets.Add(command, c, urgent)
		r.send(r.tickets.Issue)
	})
}

func (r *remote) cancel(c *simCall) { c.Cancelled(!r.tickets.Cancel(c)) }

func (r *remote) renew(on func(*wire.Reply)) {
	if r.tickets.Refused() {
		r.program.registrationExpired(r.program.incarnation)
		on(nil)
		return
	}
	r.program.inFlight++
	r.renewed++
	r.renewals = append(r.renewals, remoteRenewal{r.renewed, func(reply *wire.Reply) {
		r.program.inFlight--
		on(reply)
	}})
	r.sendRenewal()
}

// reregister goes on as another client: one whose registration has expired never returns.
func (r *remote) reregister(expired wire.ID) {
	p := r.program
	if p.incarnation != expired {
		return
	}
	if registered(r.sim.history.oracle, expired) {
		r.sim.fail("client %d gives up a registration that has not expired", r.n)
	}
	r.sim.trace("the registration of client %d has expired", r.n)
	p.registered = false
	p.loseSessions()
	sent, queued := r.tickets.Drain()
	renewals := r.renewals
	r.drawKey()
	r.renewals, r.applied = nil, 0
	r.tickets.Gate()
	registration, call := r.registration()
	r.tickets.Add(registration, call, true)
	if r.link != nil {
		r.drop(r.link)
	}
	for _, call := range sent {
		call.Fail(tickets.ErrUnregistered)
	}
	for _, call := range queued {
		tickets.Answer(call, expired, nil)
	}
	for _, renewal := range renewals {
		renewal.on(nil)
	}
}

func (r *remote) level() uint32 { return min(r.agreed, wire.FeatureLevel) }

func (r *remote) connected() bool { return r.link != nil }

// read asks the member, and each later one until there is an answer.
func (r *remote) read(read *simRead) {
	if r.link == nil {
		r.lastRead++
		r.reads[r.lastRead] = read
		return
	}
	r.ask(read)
}

func (r *remote) ask(read *simRead) {
	r.lastRead++
	r.reads[r.lastRead] = read
	kind, body, err := machine.EncodeQuery(read.query)
	if err != nil {
		r.sim.fail("encode a query: %v", err)
	}
	r.link.conn.send(clientEnd, &wire.ClientFrame{Body: &wire.ClientFrame_Request{Request: &wire.Request{Id: r.lastRead, Kind: kind, Body: body}}})
}

func (r *remote) answered(a *wire.Answer) {
	read := r.reads[a.GetId()]
	if read == nil {
		return
	}
	delete(r.reads, a.GetId())
	kind, _, _ := machine.EncodeQuery(read.query)
	answer, err := machine.DecodeAnswer(kind, a.GetPart())
	if err != nil {
		r.sim.fail("decode an answer: %v", err)
	}
	read.answered(answer)
}
