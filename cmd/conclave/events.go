package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-go/conclave"
)

// followEvery is the default time between two questions for events.
const followEvery = time.Second

func (p *program) eventsCommand() *cobra.Command {
	var a agentHTTP
	var follow bool
	var every time.Duration
	cmd := &cobra.Command{
		Use: "events", Args: exactly(), Short: "Show what an agent has noticed of its group: leaders, members, sessions that ended",
		Long: "Show what the agent at an --http address has noticed since its start, the oldest first: leaders, the redundancy, changes of members, sessions " +
			"that ended but for graceful ends, and what it has lost itself. It keeps the last 256 events about members, and as many about sessions and holds. " +
			"Ends of sessions and losses of one member within a second are one event.\n\n" +
			"With --follow it goes on with what the agent notices then, about sessions a second later, until interrupted, also through a restart of the agent.",
		Annotations: map[string]string{fromEnvironment: "yes"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			f := follower{program: p, agent: a}
			if follow {
				return f.follow(cmd.Context(), every)
			}
			return f.read(cmd.Context(), false)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what the agent notices then")
	cmd.Flags().DurationVar(&every, "interval", followEvery, "with --follow, the time between two questions")
	a.flags(cmd, defaultHTTP, "`address` of the agent's --http")
	return cmd
}

// follower prints the events of an agent, each once.
type follower struct {
	*program
	agent agentHTTP
	run   string // of the agent that has answered; "": none has
	after uint64 // the last event that was printed of it
}

// read prints what is new; settled leaves for later what the agent still counts.
func (f *follower) read(ctx context.Context, settled bool) error {
	query := url.Values{"run": {f.run}, "after": {strconv.FormatUint(f.after, 10)}}
	if settled {
		query.Set("settled", "yes")
	}
	var v historyView
	if err := f.askAgent(ctx, f.agent, eventsPath+"?"+query.Encode(), &v); err != nil {
		return err
	}
	if f.run != "" && f.run != v.Run {
		f.tell("conclave: the agent has started again: what it noticed last before that may be missing")
		f.after = 0
	}
	f.run = v.Run
	for _, e := range v.Events {
		if err := f.print(e); err != nil {
			return err
		}
		f.after = e.Seq
	}
	return nil
}

func (f *follower) print(e noticedView) error {
	if f.format == "json" {
		return newEncoder(f.stdout).Encode(e)
	}
	group := ""
	if e.Group != "" {
		group = fmt.Sprintf("group %s: ", printable(e.Group))
	}
	_, err := fmt.Fprintf(f.stdout, "%s  %s%s\n", e.Time.Local().Format("2006-01-02 15:04:05.000"), group, e.text())
	return err
}

// follow reads again and again until ctx is done. An outage of the agent does not end it once it has answered.
func (f *follower) follow(ctx context.Context, every time.Duration) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	failing := false
	for {
		err := f.read(ctx, true)
		switch {
		case ctx.Err() != nil:
			return cause(ctx, ctx.Err())
		case err != nil && (f.run == "" || !isOutage(err)):
			return err
		case err != nil && !failing:
			f.tell(printable(inFlags(err.Error())))
		}
		failing = err != nil
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return cause(ctx, ctx.Err())
		}
	}
}

// text is an event for people, in one line.
func (e noticedView) text() string {
	member := shortly(e.Member, e.MemberName)
	switch e.Kind {
	case "leader":
		if e.Member == nil {
			return fmt.Sprintf("no leader is known, term %d", e.Term)
		}
		return fmt.Sprintf("%s leads, term %d", member, e.Term)
	case "snapshot":
		return "this member installed a snapshot, and may have missed events"
	case "redundancy":
		return e.redundancy()
	case "member joined":
		return member + " joined as a standby"
	case "member promoted":
		return member + " votes"
	case "member demoted":
		return member + " does not vote any more"
	case "member replaced":
		return fmt.Sprintf("%s votes in place of %s", shortly(e.By, e.ByName), member)
	case "member removed":
		return member + " was removed"
	case "member dead":
		return member + " is dead"
	case "member alive":
		return member + " is alive again"
	case "hold lost":
		return e.lost()
	}
	return e.ended(member)
}

func (e noticedView) redundancy() string {
	switch {
	case e.Redundancy == nil:
		return e.Kind
	case *e.Redundancy < 0:
		return "the quorum is lost"
	case *e.Redundancy == 0:
		return "no more voter may fail"
	}
	return count(*e.Redundancy, "more voter") + " may fail"
}

func (e noticedView) lost() string {
	text := fmt.Sprintf("this member lost %s", name(e.Name))
	if e.Count > 1 {
		text += fmt.Sprintf(" and %d more", e.Count-1)
	}
	if e.Fence != nil {
		text += fmt.Sprintf(", with fence %s", e.Fence)
	}
	return text
}

// ended is the end of sessions; of another kind, as an agent of a newer build may have, its name.
func (e noticedView) ended(member string) string {
	ends := map[string]string{
		"session expired": "expired", "session check": "ended by a check", "session forced": "was closed by force",
		"session superseded": "ended by a restart", "session removed": "ended with the member",
	}
	how, known := ends[e.Kind]
	switch {
	case !known:
		return fmt.Sprintf("%s: %s", name(e.Kind), member)
	case e.Count > 1:
		return fmt.Sprintf("%d sessions of %s: each %s, together they held %d", e.Count, member, how, e.Held)
	}
	session := "session"
	if e.Name != "" {
		session += " " + name(e.Name)
	}
	return fmt.Sprintf("%s of %s %s, held %d", session, member, how, e.Held)
}

// shortly is a member, or a client, for people.
func shortly(id *conclave.MemberID, named string) string {
	if id == nil {
		return "-"
	}
	return name(cmp.Or(named, id.String()))
}
