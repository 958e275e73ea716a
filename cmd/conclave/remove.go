package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/conclave-go/conclave"
)

func (p *program) removeCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "remove MEMBER", Args: exactly("MEMBER"), Short: "Remove a member from the group permanently, by ID or name",
		Long: "Remove a member from the group permanently. Its process stops when it hears of that, and its directory cannot be used again. " +
			"A voter that is alive is removed with --force only; without, the command shows what would remain. " +
			"A member cannot remove itself: give the address of another one with --addr.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.call(cmd.Context(), func(ctx context.Context, c groupClient) error {
				s, err := c.Status(ctx)
				if err != nil {
					return err
				}
				m, err := find(s, args[0])
				if err != nil {
					return err
				}
				r := removalOf(s, m)
				if r.Alive && m.Role == conclave.Voter && !force {
					return usagef("not removed: %s is a voter, and alive: %s; --force does it", called(m), r.remains("would remain"))
				}
				if err := c.Client.RemoveMember(ctx, m.ID); err != nil {
					return err
				}
				return p.one(r, func(w *tabwriter.Writer) {
					fmt.Fprintf(w, "%s %s is removed: %s\n", r.Role, called(m), r.remains("remain"))
				})
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "remove also a voter that is alive")
	return cmd
}

// removalView is a member that is removed, and what remains then.
type removalView struct {
	Removed    conclave.MemberID `json:"removed"`
	Role       string            `json:"role"`
	Alive      bool              `json:"alive"`
	Voters     int               `json:"voters"`     // that remain
	Redundancy int               `json:"redundancy"` // then
}

// removalOf foresees a removal, in the view of the member that answers. A standby that is alive replaces a voter.
func removalOf(s conclave.Status, m conclave.Member) removalView {
	r := removalView{Removed: m.ID, Role: m.Role.String(), Alive: m.Alive}
	up, standby := 0, false
	for _, other := range s.Members {
		switch {
		case other.ID == m.ID:
		case other.Role == conclave.Voter:
			r.Voters++
			if other.Alive {
				up++
			}
		case other.Alive:
			standby = true
		}
	}
	if standby && m.Role == conclave.Voter {
		r.Voters++
		up++
	}
	r.Redundancy = up - r.Voters/2 - 1
	return r
}

// remains says what remains, or would.
func (r removalView) remains(verb string) string {
	return fmt.Sprintf("%s %s; quorum: %s", count(r.Voters, "voter"), verb, quorumText(r.Redundancy))
}
