package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/conclave-go/conclave"
)

func (p *program) releaseCommand() *cobra.Command {
	var force bool
	var session string
	cmd := &cobra.Command{
		Use: "release LOCK --force", Aliases: []string{"unlock"}, Args: between(0, "LOCK"), Short: "Take a lock from its holder, by closing the holder's session",
		Long: "Take a lock from its holder, by closing the holder's session: everything else that the session holds is released as well, and its " +
			"process is notified. A process that is paused or partitioned does not notice at once and may act as the holder until its deadline, so " +
			"the protected resource must check the fence. --session closes that session, whatever it holds. A lock that several share has no single holder: " +
			"conclave explain lists their sessions.",
		ValidArgsFunction: p.completeLock,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 == (session != "") {
				return usagef("want either the name of a LOCK or --session")
			}
			return p.call(cmd.Context(), func(ctx context.Context, c groupClient) error {
				if session != "" {
					id, err := conclave.ParseSessionID(session)
					if err != nil {
						return err
					}
					return p.closeSession(ctx, c, id, "session "+session, force)
				}
				e, err := c.Explain(ctx, args[0])
				switch {
				case err != nil:
					return err
				case !e.Held:
					return withCode(exitRefused, fmt.Errorf("lock %q is not held: there is nothing to release", args[0]))
				case e.Shared > 1:
					return withCode(exitRefused, fmt.Errorf("lock %q is shared by %d holders: conclave explain lists their sessions; close one with --session", args[0], e.Shared))
				}
				what := fmt.Sprintf("lock %q, held by %s with fence %s under session %s", args[0], processOf(e.Holder), e.Fence, e.Holder.Session)
				return p.closeSession(ctx, c, e.Holder.Session, what, force)
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "do it")
	cmd.Flags().StringVar(&session, "session", "", "the `ID` of a session to close")
	return cmd
}

// closeSession closes a session if that was asked for by --force.
func (p *program) closeSession(ctx context.Context, c groupClient, id conclave.SessionID, what string, force bool) error {
	if !force {
		return usagef("not released: %s: all that this session holds would be released; --force does it", what)
	}
	if err := c.CloseSession(ctx, id); err != nil {
		return err
	}
	return p.one(map[string]any{"closed": id}, func(w *tabwriter.Writer) { fmt.Fprintf(w, "released %s\n", what) })
}
