package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/conclave-go/conclave"
)

// Without a quorum no client is registered, and no read is confirmed. Members report what they know by themselves all the
// same: the commands that read connect as clients that do nothing else, and exit with 5 if no leader stands behind what
// they print.

// outage is what the addresses report while no member that answers has a leader.
type outage struct {
	reports []conclave.MemberReport
	member  *conclave.MemberReport // whose state is printed: of the reports, the one that has applied most; nil: none has answered
	why     error                  // what was asked before has failed; nil: it has not
}

// withoutQuorum is of the commands that need none.
const withoutQuorum = "Without a quorum it shows what the members that answer know by themselves, and the exit code is 5."

func readOnly(c *conclave.ClientConfig) { c.ReadOnly = true }

// reading runs f with a client. With stale that is one that only reads, and needs no quorum; without a leader the error says
// how old what f has read is.
func (p *program) reading(ctx context.Context, stale bool, f func(c groupClient) error) error {
	if !stale {
		return p.connected(ctx, f)
	}
	var s conclave.Status
	err := p.connected(ctx, func(c groupClient) error {
		err := f(c)
		if answered(err) {
			s, _ = p.seenBy(ctx, c) // if it fails, the member has no leader that is known
		}
		return err
	}, readOnly)
	if leads(s) || !answered(err) && codeOf(err) != exitUnavailable {
		return err
	}
	_, o, failed := p.inspect(ctx, s.ID, err)
	switch {
	case failed != nil:
		return failed
	case o == nil:
		return err
	}
	o.shows(s)
	return withCode(exitUnavailable, errors.New(o.String()))
}

// answered reports whether err is none, or what a member answers: a key that it does not have may exist.
func answered(err error) bool { return err == nil || codeOf(err) == exitRefused }

// readingCall is reading, with the time limit of a call for f.
func (p *program) readingCall(ctx context.Context, stale bool, f func(ctx context.Context, c groupClient) error) error {
	return p.reading(ctx, stale, func(c groupClient) error {
		limited, cancel := p.within(ctx)
		defer cancel()
		return f(limited, c)
	})
}

// seenBy returns the group as the member of a client sees it.
func (p *program) seenBy(ctx context.Context, c groupClient) (conclave.Status, error) {
	limited, cancel := p.within(ctx)
	defer cancel()
	return c.Status(limited)
}

// leads reports whether a leader stands behind what a member shows.
func leads(s conclave.Status) bool { return s.Leader != 0 && s.Redundancy >= 0 }

// see returns the group as a member sees it whose leader a quorum has confirmed, or the outage. A member that has just
// started shows others as dead until it has received their gossip: see waits for that.
func (p *program) see(ctx context.Context) (s conclave.Status, o *outage, err error) {
	for began := time.Now(); ; {
		s, o, err = p.look(ctx)
		if err != nil || o != nil || !slices.ContainsFunc(s.Members, unseen) || time.Since(began) >= gossipPatience {
			return s, o, err
		}
		select {
		case <-time.After(electionPause):
		case <-ctx.Done():
			return s, o, ctx.Err()
		}
	}
}

// unseen reports whether the member that answers may not have received the gossip of m yet.
func unseen(m conclave.Member) bool { return !m.Alive && m.Build == "" }

// look is see at this moment.
func (p *program) look(ctx context.Context) (s conclave.Status, o *outage, err error) {
	err = p.connected(ctx, func(c groupClient) (err error) {
		if s, err = p.seenBy(ctx, c); err != nil || !leads(s) {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, min(p.connection.timeout, leaderPatience))
		defer cancel()
		if _, unconfirmed := c.Client.KV().Index(limited); unconfirmed != nil { // a leader that has just died is known for a while
			s = conclave.Status{}
			return nil
		}
		s, err = p.seenBy(ctx, c)
		return err
	}, readOnly)
	if err == nil && leads(s) || err != nil && codeOf(err) != exitUnavailable {
		return s, nil, err
	}
	r, o, err := p.inspect(ctx, 0, err)
	if r != nil {
		s = r.Status
	}
	return s, o, err
}

const (
	// leaderPatience is for how long a leader is awaited since one was heard last: an election, and the start of a group,
	// take less.
	leaderPatience = 5 * time.Second
	// gossipPatience is for how long the gossip of all members is awaited.
	gossipPatience = 3 * time.Second
	// electionPause is the time between two looks at an election.
	electionPause = 100 * time.Millisecond
)

// inspect asks all addresses. It returns the report of a member that has a leader, or else the outage; while an election may
// be under way it asks again. read is the member whose state was read, of which alone it matters whether it has a leader; 0:
// that of any. why is the error of what was asked before.
func (p *program) inspect(ctx context.Context, read conclave.MemberID, why error) (*conclave.MemberReport, *outage, error) {
	cfg, err := p.config()
	if err != nil {
		return nil, nil, err
	}
	limited, cancel := p.within(ctx)
	defer cancel()
	var before []conclave.MemberReport
	for began := time.Now(); ; {
		reports, err := conclave.Inspect(limited, cfg)
		if err != nil && before == nil || ctx.Err() != nil {
			return nil, nil, cause(ctx, errors.Join(err, ctx.Err()))
		}
		if limited.Err() != nil {
			reports = completed(reports, before)
		}
		before = reports
		o := &outage{reports: reports, why: why}
		for i := range reports {
			r := &reports[i]
			switch {
			case r.Err != nil, read != 0 && r.Status.ID != read:
			case r.Leaderless() == "" && r.Status.Leader != 0:
				return r, nil, nil
			case o.member == nil || r.Status.Applied > o.member.Status.Applied:
				o.member = r
			}
		}
		if o.member == nil || o.member.Leaderless() != "" && max(o.member.Health.Contact, time.Since(began)) >= leaderPatience {
			return nil, o, nil
		}
		select {
		case <-time.After(electionPause):
		case <-limited.Done():
		}
		if limited.Err() != nil {
			return nil, o, cause(ctx, ctx.Err())
		}
	}
}

// completed returns reports, with those of before for the addresses that had no time to answer again.
func completed(reports, before []conclave.MemberReport) []conclave.MemberReport {
	of := func(in []conclave.MemberReport, addr string) int {
		return slices.IndexFunc(in, func(r conclave.MemberReport) bool { return r.Addr == addr })
	}
	for _, b := range before {
		switch i := of(reports, b.Addr); {
		case i < 0: // it is stated by a member that had no time to answer
			reports = append(reports, b)
		case errors.Is(reports[i].Err, context.DeadlineExceeded):
			reports[i] = b
		}
	}
	return reports
}

// shows notes that what is printed is what a member has that showed s.
func (o *outage) shows(s conclave.Status) {
	if s.ID == 0 {
		return
	}
	o.member = &conclave.MemberReport{Status: s} // it may not answer any more
	for i, r := range o.reports {
		if r.Err == nil && r.Status.ID == s.ID {
			o.member = &o.reports[i]
		}
	}
}

// String is the report for standard error, in lines.
func (o *outage) String() string {
	var b strings.Builder
	if o.why != nil {
		fmt.Fprintln(&b, o.why)
	}
	fmt.Fprintln(&b, o.summary())
	for _, line := range o.lines() {
		fmt.Fprintf(&b, "%s: %s\n", line[0], line[1])
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// summary says what is the matter in one line.
func (o *outage) summary() string {
	if o.member == nil {
		return "no member answers"
	}
	return fmt.Sprintf("no leader: what is shown is what %s has, and may be old", name(o.member.Status.Name))
}

// lines are the rows about an outage, each with its heading.
func (o *outage) lines() (rows [][2]string) {
	if o.member != nil {
		rows = append(rows, [2]string{"reason", o.reason()}, [2]string{"age", o.ageText()})
	}
	rows = append(rows, [2]string{"next", o.next()})
	for _, r := range o.reports {
		rows = append(rows, [2]string{"address", r.Addr + " " + answerText(r)})
	}
	return rows
}

// reason says why there is no leader.
func (o *outage) reason() string {
	if o.member == nil {
		return "no member answers"
	}
	if why := o.member.Leaderless(); why != "" {
		return why
	}
	return "an election has no winner yet"
}

func (o *outage) age() *float64 {
	if o.member == nil || o.member.Health.Reasons == nil {
		return nil
	}
	return seconds(o.member.Health.Contact)
}

func (o *outage) ageText() string {
	if o.age() == nil {
		return "not known"
	}
	return fmt.Sprintf("%s, or more: a leader was heard then, or this member has started", span(o.member.Health.Contact))
}

// next says what to do.
func (o *outage) next() string {
	if o.member == nil {
		return "start the members, or correct --addr"
	}
	var dead []string
	for _, m := range o.member.Status.Members {
		if m.Role == conclave.Voter && !m.Alive {
			dead = append(dead, fmt.Sprintf("%s at %s", name(m.Name), name(m.Addr)))
		}
	}
	if len(dead) == 0 {
		return "wait for an election, or see the log of each member"
	}
	return fmt.Sprintf("start %s, or repair the network to them; if a majority of the voters is lost permanently, see \"Losing a majority\" in docs/OPERATIONS.md",
		strings.Join(dead, " and "))
}

// What has come of an address.
const (
	hasAnswered = "answered"
	hasRefused  = "refused"
	timedOut    = "timed out"
	hasFailed   = "failed"
)

func answerOf(r conclave.MemberReport) string {
	const refusedOnWindows = syscall.Errno(10061) // WSAECONNREFUSED
	var timeout interface{ Timeout() bool }
	switch {
	case r.Err == nil:
		return hasAnswered
	case errors.Is(r.Err, syscall.ECONNREFUSED), errors.Is(r.Err, refusedOnWindows):
		return hasRefused
	case errors.As(r.Err, &timeout) && timeout.Timeout():
		return timedOut
	}
	return hasFailed
}

func answerText(r conclave.MemberReport) string {
	if r.Err != nil {
		return answerOf(r) + ": " + r.Err.Error()
	}
	leader := "no leader"
	if r.Status.Leader != 0 {
		leader = "its last leader is " + leaderText(r.Status)
	}
	return fmt.Sprintf("%s: %s %s (%s), %s", hasAnswered, r.Status.Role, name(r.Status.Name), r.Status.ID, leader)
}

// outageView is what status prints during an outage, in place of a statusView.
type outageView struct {
	*statusView               // of the member that has applied most; absent if none answers
	Reason      string        `json:"reason"` // why there is no leader
	Age         *float64      `json:"age"`    // seconds, at least; null: not known
	Next        string        `json:"next"`   // what to do, for people
	Addresses   []addressView `json:"addresses"`
}

type addressView struct {
	Addr   string             `json:"addr"`
	Answer string             `json:"answer"` // answered, refused, timed out, or failed
	Error  string             `json:"error,omitempty"`
	ID     *conclave.MemberID `json:"id,omitempty"` // of a member that has answered
	Name   string             `json:"name,omitempty"`
}

func addressOf(r conclave.MemberReport) addressView {
	v := addressView{Addr: r.Addr, Answer: answerOf(r)}
	if r.Err != nil {
		v.Error = inFlags(r.Err.Error())
		return v
	}
	v.ID, v.Name = &r.Status.ID, r.Status.Name
	return v
}

// showOutage prints an outage as the answer to status.
func (p *program) showOutage(o *outage) error {
	v := outageView{Reason: inFlags(o.reason()), Age: o.age(), Next: o.next()}
	if o.member != nil {
		s := statusOf(o.member.Status, p.access())
		v.statusView = &s
	}
	for _, r := range o.reports {
		v.Addresses = append(v.Addresses, addressOf(r))
	}
	err := p.one(v, func(w *tabwriter.Writer) {
		if o.member != nil {
			printStatus(w, o.member.Status, p.access())
		}
		for _, line := range o.lines() {
			fmt.Fprintf(w, "%s:\t%s\n", line[0], printable(inFlags(line[1])))
		}
	})
	if err != nil {
		return err
	}
	if o.why != nil {
		return withCode(exitUnavailable, o.why)
	}
	return withCode(exitUnavailable, errors.New(o.summary()))
}
