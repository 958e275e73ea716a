package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-go/conclave"
)

type statusView struct {
	ID          conclave.MemberID `json:"id"`
	Name        string            `json:"name"`
	Role        string            `json:"role"`
	Leader      conclave.MemberID `json:"leader"` // zeros: none is known
	Term        uint64            `json:"term"`
	Commit      uint64            `json:"commit"`
	Applied     uint64            `json:"applied"`
	Redundancy  int               `json:"redundancy"` // voters that may fail; negative: no quorum
	Reconciling string            `json:"reconciling"`
	Level       uint32            `json:"featureLevel"` // of the group; 0: a member of an older build answers
	accessView
	Members []memberView `json:"members"`
}

type memberView struct {
	ID          conclave.MemberID `json:"id"`
	Name        string            `json:"name"`
	Addr        string            `json:"addr"`
	Role        string            `json:"role"`
	Leader      bool              `json:"leader"`
	Alive       bool              `json:"alive"`
	Lag         *uint64           `json:"lag"`            // only the leader knows
	LastContact *float64          `json:"lastContact"`    // seconds; null: never
	Build       string            `json:"build"`          // empty: not known
	Level       uint32            `json:"featureLevel"`   // that it supports; 0: not known
	Priority    *int              `json:"leaderPriority"` // null: the member that answers is not connected to it
}

func statusOf(s conclave.Status, a accessView) statusView {
	v := statusView{
		accessView: a,
		ID:         s.ID, Name: s.Name, Role: s.Role.String(), Leader: s.Leader, Term: s.Term, Commit: s.Commit, Applied: s.Applied,
		Redundancy: s.Redundancy, Reconciling: s.Reconciling, Level: s.FeatureLevel,
	}
	for _, m := range s.Members {
		v.Members = append(v.Members, memberOf(s, m))
	}
	return v
}

func memberOf(s conclave.Status, m conclave.Member) memberView {
	v := memberView{
		ID: m.ID, Name: m.Name, Addr: m.Addr, Role: m.Role.String(), Leader: m.ID == s.Leader, Alive: m.Alive, LastContact: seconds(m.LastContact),
		Build: m.Build, Level: m.FeatureLevel,
	}
	if s.Leader == s.ID {
		v.Lag = &m.Lag
	}
	if m.PriorityKnown {
		v.Priority = &m.LeaderPriority
	}
	return v
}

func (p *program) statusCommand() *cobra.Command {
	var a agentHTTP
	var every time.Duration
	cmd := &cobra.Command{
		Use: "status", Short: "Show the group as one of its members sees it",
		Long: "Show the group as one of its members sees it. " + withoutQuorum + " With --watch it shows it again and again until interrupted.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && cmd.Flags().Changed("watch") { // --watch 1s, which is --watch=1s
				if err := cmd.Flags().Set("watch", args[0]); err == nil {
					return nil
				}
			}
			return exactly()(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			show := func() error {
				s, access, o, err := p.status(cmd.Context(), a)
				switch {
				case err != nil:
					return err
				case o != nil:
					return p.showOutage(o)
				}
				return p.showStatus(s, access)
			}
			if every > 0 {
				return p.refresh(cmd.Context(), every, show)
			}
			return show()
		},
	}
	cmd.Flags().DurationVarP(&every, "watch", "w", 0, "show it again and again, at this `interval`; 2s without one")
	cmd.Flags().Lookup("watch").NoOptDefVal = refreshEvery.String()
	a.flags(cmd, "", askUsage)
	return cmd
}

const askUsage = "ask the agent with this `address` as its --http, in place of --addr; it needs no quorum"

// leaderText names the leader that a member knows.
func leaderText(s conclave.Status) string {
	for _, m := range s.Members {
		if m.ID == s.Leader {
			return called(m)
		}
	}
	return "none is known"
}

func (p *program) showStatus(s conclave.Status, a accessView) error {
	return p.one(statusOf(s, a), func(w *tabwriter.Writer) { printStatus(w, s, a) })
}

func printStatus(w *tabwriter.Writer, s conclave.Status, a accessView) {
	voters, standbys, alive := 0, 0, 0
	for _, m := range s.Members {
		if m.Role == conclave.Voter {
			voters++
		} else {
			standbys++
		}
		if m.Alive {
			alive++
		}
	}
	fmt.Fprintf(w, "leader:\t%s\n", leaderText(s))
	fmt.Fprintf(w, "quorum:\t%s\n", quorumText(s.Redundancy))
	fmt.Fprintf(w, "members:\t%s and %s, %d of these alive\n", count(voters, "voter"), count(standbys, "standby"), alive)
	fmt.Fprintf(w, "log:\tterm %d, committed to index %d, applied to %d\n", s.Term, s.Commit, s.Applied)
	fmt.Fprintf(w, "builds:\t%s\n", buildsText(s))
	if text := prioritiesText(s); text != "" {
		fmt.Fprintf(w, "priorities:\t%s\n", text)
	}
	if s.Reconciling != "" {
		fmt.Fprintf(w, "changing:\t%s\n", inFlags(s.Reconciling))
	}
	printAccess(w, a)
	fmt.Fprintf(w, "as seen by:\t%s %s (%s)\n", s.Role, name(s.Name), s.ID)
}

// quorumText says whether so much redundancy is a quorum.
func quorumText(redundancy int) string {
	switch {
	case redundancy < 0:
		return "NO: nothing is granted, renewed or released until more voters are up"
	case redundancy == 0:
		return "yes, and no further voter may fail"
	case redundancy == 1:
		return "yes, and one more voter may fail"
	}
	return fmt.Sprintf("yes, and %d more voters may fail", redundancy)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// called is a member for people.
func called(m conclave.Member) string {
	return fmt.Sprintf("%s (%s at %s)", name(m.Name), m.ID, name(m.Addr))
}

func (p *program) membersCommand() *cobra.Command {
	var a agentHTTP
	cmd := &cobra.Command{
		Use: "members", Args: exactly(), Short: "List the members with their roles",
		Long: "List the members with their roles. LAG is how many committed entries a member has not acknowledged; only the leader knows: " +
			"give its address with --addr. CONTACT is how long ago the member that answers has received a Raft message from it; one that does not lead has them from the leader, and mostly from no other one. PRIORITY is its --leader-priority, " +
			"if the member that answers is connected to it. BUILD is the version that its process states, and LEVEL the feature level that it supports. " + withoutQuorum,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, _, o, err := p.status(cmd.Context(), a)
			if err != nil {
				return err
			}
			if o != nil {
				if o.member == nil {
					return withCode(exitUnavailable, errors.New(o.String()))
				}
				s = o.member.Status
			}
			each := func(yield func(conclave.Member, error) bool) {
				for _, m := range s.Members {
					if !yield(m, nil) {
						return
					}
				}
			}
			err = many(p, 0, "ID NAME ROLE ALIVE LAG CONTACT ADDRESS PRIORITY LEVEL BUILD", each, func(m conclave.Member) (any, []string) {
				v := memberOf(s, m)
				return v, []string{m.ID.String(), name(m.Name), roleText(v), aliveText(m.Alive), lagText(v), contactText(s, m), name(m.Addr), priorityText(v), levelText(m.FeatureLevel), name(m.Build)}
			})
			if err == nil && o != nil {
				err = withCode(exitUnavailable, errors.New(o.String()))
			}
			return err
		},
	}
	a.flags(cmd, "", askUsage)
	return cmd
}

// prioritiesText counts the members of each leader priority; "": nothing is known but the default.
func prioritiesText(s conclave.Status) string {
	members := make(map[int]int)
	unknown := 0
	for _, m := range s.Members {
		if m.PriorityKnown {
			members[m.LeaderPriority]++
		} else {
			unknown++
		}
	}
	priorities := slices.Sorted(maps.Keys(members))
	if len(priorities) == 0 || len(priorities) == 1 && priorities[0] == 0 {
		return ""
	}
	var parts []string
	for _, priority := range slices.Backward(priorities) {
		parts = append(parts, fmt.Sprintf("%d (%s)", priority, count(members[priority], "member")))
	}
	if unknown > 0 {
		parts = append(parts, fmt.Sprintf("not known (%s)", count(unknown, "member")))
	}
	return strings.Join(parts, ", ")
}

// levelText is a feature level; 0: not known.
func levelText(level uint32) string {
	if level == 0 {
		return "-"
	}
	return fmt.Sprint(level)
}

func priorityText(v memberView) string {
	if v.Priority == nil {
		return "-"
	}
	return fmt.Sprint(*v.Priority)
}

func roleText(v memberView) string {
	if v.Leader {
		return "leader"
	}
	return v.Role
}

func aliveText(alive bool) string {
	if alive {
		return "yes"
	}
	return "NO"
}

func lagText(v memberView) string {
	if v.Lag == nil {
		return "-"
	}
	return fmt.Sprint(*v.Lag)
}

func contactText(s conclave.Status, m conclave.Member) string {
	switch {
	case m.ID == s.ID:
		return "-"
	case m.LastContact < 0:
		return "never"
	}
	return span(m.LastContact)
}

// find returns the member with that ID, or with that name if it is the only one.
func find(s conclave.Status, idOrName string) (conclave.Member, error) {
	var named []conclave.Member
	for _, m := range s.Members {
		if m.ID.String() == idOrName {
			return m, nil
		}
		if m.Name == idOrName {
			named = append(named, m)
		}
	}
	switch len(named) {
	case 1:
		return named[0], nil
	case 0:
		return conclave.Member{}, withCode(exitRefused, fmt.Errorf("no member of the group has the ID or name %q: see conclave members", idOrName))
	}
	return conclave.Member{}, usagef("%d members are named %q: use the ID of one, see conclave members", len(named), idOrName)
}

func (p *program) transferCommand() *cobra.Command {
	return &cobra.Command{
		Use: "transfer [MEMBER]", Args: between(0, "MEMBER"), Short: "Transfer leadership, to a voter by ID or name or to the most up-to-date one",
		Long: "Transfer leadership, to a voter by ID or name or to the most up-to-date one, and show the status then. With --further-group the leadership is that of the further group, and what is shown is its line of conclave groups.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.call(cmd.Context(), func(ctx context.Context, c groupClient) error {
				var to conclave.Member
				if len(args) == 1 {
					s, err := c.Status(ctx)
					if err == nil {
						to, err = find(s, args[0])
					}
					if err != nil {
						return err
					}
				}
				further := p.connection.further
				before := termOf(ctx, c, further)
				if err := c.TransferLeadership(ctx, to.ID); err != nil {
					return err
				}
				if further != "" {
					awaitLeader(ctx, c, further, before, to.ID)
					return p.listGroups(ctx, c, further)
				}
				s, err := c.Status(ctx)
				if err != nil {
					return err
				}
				return p.showStatus(s, p.access())
			})
		},
	}
}

type configView struct {
	Voters       int     `json:"voters"`
	ReplaceAfter float64 `json:"replaceAfter"` // seconds; 0: never
	RemoveAfter  float64 `json:"removeAfter"`  // seconds; 0: never
}

func (p *program) configCommand() *cobra.Command {
	var voters int
	var replaceAfter, removeAfter time.Duration
	cmd := &cobra.Command{
		Use: "config", Args: exactly(), Short: "Show the group's settings, or change those that are given as flags",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.call(cmd.Context(), func(ctx context.Context, c groupClient) error {
				g, err := c.Client.GroupConfig(ctx) // the default group's, as of all that concerns members
				if err != nil {
					return err
				}
				before := g
				changed := cmd.Flags().Changed
				if changed("voters") {
					g.Voters = voters
				}
				if changed("replace-after") {
					g.ReplaceAfter = replaceAfter
				}
				if changed("remove-after") {
					g.RemoveAfter = removeAfter
				}
				if g != before {
					if err := c.Client.SetGroupConfig(ctx, g); err != nil {
						return err
					}
					if g, err = c.Client.GroupConfig(ctx); err != nil { // what is printed is what the group has
						return withCode(exitUnknown, fmt.Errorf("the group has stored the settings, and did not show them: %w", err))
					}
				}
				return p.one(configView{g.Voters, g.ReplaceAfter.Seconds(), g.RemoveAfter.Seconds()}, func(w *tabwriter.Writer) {
					fmt.Fprintf(w, "voters:\t%d\nreplace-after:\t%s\nremove-after:\t%s\n", g.Voters, period(g.ReplaceAfter), period(g.RemoveAfter))
				})
			})
		},
	}
	cmd.Flags().IntVar(&voters, "voters", 0, "how many members vote: 1, 3, 5 or 7")
	cmd.Flags().DurationVar(&replaceAfter, "replace-after", 0, "when a standby replaces a silent voter; 0: never")
	cmd.Flags().DurationVar(&removeAfter, "remove-after", 0, "when a silent member is removed; 0: never")
	return cmd
}

func period(d time.Duration) string {
	if d == 0 {
		return "never"
	}
	return d.String()
}
