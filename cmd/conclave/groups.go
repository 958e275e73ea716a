package main

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-go/conclave"
)

func (p *program) groupsCommand() *cobra.Command {
	var create, remove, force bool
	cmd := &cobra.Command{
		Use: "groups [NAME]", Args: between(0, "NAME"), Short: "List the groups, create one, or delete one",
		Long: "List the groups: the default one, which --group names, and the further groups on the same members, each with locks, keys, sessions, a log and a leader of its own. " +
			"--further-group makes any other command use one of them.\n\n" +
			"--create creates a further group. If there is one of that name, it does nothing. --delete deletes one permanently; that is refused while it holds a lock, a permit, a leadership, a key, a job or a shard, unless --force is given. " +
			"No group that is created later grants a fence of it again.",
		Example: "  conclave groups tenant-7 --create\n  conclave --further-group tenant-7 locks",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case create && remove:
				return usagef("--create and --delete: want one of them")
			case force && !remove:
				return usagef("--force: want it with --delete")
			case len(args) == 0 && (create || remove):
				return usagef("missing NAME of the group")
			case len(args) == 1 && !create && !remove:
				return usagef("unexpected argument %q: want --create or --delete with a NAME", args[0])
			case create:
				return p.call(cmd.Context(), func(ctx context.Context, c groupClient) error { return p.createGroup(ctx, c, args[0]) })
			case remove:
				return p.call(cmd.Context(), func(ctx context.Context, c groupClient) error { return p.deleteGroup(ctx, c, args[0], force) })
			}
			return p.call(cmd.Context(), func(ctx context.Context, c groupClient) error { return p.listGroups(ctx, c, "") })
		},
	}
	cmd.Flags().BoolVar(&create, "create", false, "create the group")
	cmd.Flags().BoolVar(&remove, "delete", false, "delete the group")
	cmd.Flags().BoolVar(&force, "force", false, "with --delete: with all that it holds")
	return cmd
}

type groupView struct {
	Name    string              `json:"name"`
	Number  uint32              `json:"number"` // 0: the default group
	Created uint64              `json:"created,omitempty"`
	Leader  *conclave.MemberID  `json:"leader"` // null: the member that answers knows none
	Term    uint64              `json:"term"`
	Applied uint64              `json:"applied"`
	Voters  []conclave.MemberID `json:"voters"`
}

// listGroups lists the groups, or the one of that name if it is not empty.
func (p *program) listGroups(ctx context.Context, c groupClient, only string) error {
	names, err := p.memberNames(ctx, c)
	if err != nil {
		return err
	}
	return many(p, 0, "GROUP NUMBER LEADER TERM APPLIED VOTERS", groupsNamed(c.Groups(ctx), only), func(g conclave.GroupInfo) (any, []string) {
		v := groupView{Name: g.Name, Number: g.Number, Created: g.CreateIndex, Term: g.Term, Applied: g.Applied, Voters: g.Voters}
		leader := "-"
		if g.Leader != 0 {
			v.Leader, leader = &g.Leader, names.of(g.Leader)
		}
		voters := make([]string, len(g.Voters))
		for i, id := range g.Voters {
			voters[i] = names.of(id)
		}
		return v, []string{name(g.Name), fmt.Sprint(g.Number), leader, fmt.Sprint(g.Term), fmt.Sprint(g.Applied), strings.Join(voters, ", ")}
	})
}

// groupsNamed are those of all that have that name; "": all.
func groupsNamed(all iter.Seq2[conclave.GroupInfo, error], name string) iter.Seq2[conclave.GroupInfo, error] {
	return func(yield func(conclave.GroupInfo, error) bool) {
		for g, err := range all {
			if (err != nil || name == "" || g.Name == name) && !yield(g, err) {
				return
			}
		}
	}
}

// termOf returns the term of a further group as the member that answers knows it; 0: it knows none, or the name is empty.
func termOf(ctx context.Context, c groupClient, group string) (term uint64) {
	if group == "" {
		return 0
	}
	for g, err := range groupsNamed(c.Groups(ctx), group) {
		if err == nil {
			term = g.Term
		}
	}
	return term
}

// learnLimit bounds how long a command waits for the member that answers to learn of a transfer. It then shows what that knows.
const learnLimit = 5 * time.Second

// awaitLeader waits until the member that answers knows that the member leads the group, or that one leads it in a later term. It is not always the one that was asked
// for the transfer, and may learn of it later.
func awaitLeader(ctx context.Context, c groupClient, group string, before uint64, to conclave.MemberID) {
	limited, done := context.WithTimeout(ctx, learnLimit)
	defer done()
	var pause backoff
	for limited.Err() == nil {
		for g, err := range groupsNamed(c.Groups(limited), group) {
			if err != nil || g.Leader != 0 && (g.Leader == to || g.Term > before) {
				return
			}
		}
		pause.wait(limited)
	}
}

func (p *program) createGroup(ctx context.Context, c groupClient, group string) error {
	if _, err := c.CreateGroup(ctx, group, conclave.GroupConfig{}); err != nil {
		return err
	}
	return p.one(map[string]any{"created": group}, func(w *tabwriter.Writer) {
		fmt.Fprintf(w, "%s is there: use it with --further-group\n", name(group))
	})
}

func (p *program) deleteGroup(ctx context.Context, c groupClient, group string, force bool) error {
	var opts []conclave.DeleteGroupOption
	if force {
		opts = append(opts, conclave.Force())
	}
	if err := c.DeleteGroup(ctx, group, opts...); err != nil {
		return err
	}
	return p.one(map[string]any{"deleted": group}, func(w *tabwriter.Writer) {
		fmt.Fprintf(w, "%s is deleted\n", name(group))
	})
}
