package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"github.com/conclave-go/conclave"
)

func (p *program) healthCommand() *cobra.Command {
	var a agentHTTP
	cmd := &cobra.Command{
		Use: "health", Args: exactly(), Short: "Ask an agent's --http address whether it is ready, for a container's health check",
		Long: "Ask an agent's --http address whether it is ready, for a container's health check. With --addr on the command line it asks the members " +
			"there instead, and those that they know, over the members' port; that needs no quorum. The exit code is 5 if one of those asked is not ready, or does not answer.",
		Annotations: map[string]string{fromEnvironment: "yes"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			// CONCLAVE_ADDR may be set for other commands where a probe of the agent has no arguments, and CONCLAVE_HTTP for the agent.
			if p.given(cmd, "addr") && !p.given(cmd, "http") {
				return p.membersHealth(cmd.Context())
			}
			return p.health(cmd.Context(), a)
		},
	}
	cmd.Flags().StringVar(&a.addr, "http", defaultHTTP, "`address` of the agent's --http")
	return cmd
}

func (p *program) health(ctx context.Context, a agentHTTP) error {
	limited, cancel := p.within(ctx)
	defer cancel()
	status, text, err := a.ask(limited, http.MethodGet, "/readyz?verbose", nil)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.stdout, inFlags(text))
	if status != http.StatusOK {
		return withCode(exitUnavailable, fmt.Errorf("the member is not ready: status %d", status))
	}
	return err
}

// healthView is the condition of one member.
type healthView struct {
	addressView
	Live       bool              `json:"live"`
	Ready      bool              `json:"ready"`
	Redundancy int               `json:"redundancy"`
	Contact    *float64          `json:"contact"` // seconds since it has heard a leader; null: not known
	Checks     []healthCheckView `json:"checks"`
}

type healthCheckView struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Text string `json:"text,omitempty"`
}

func healthOf(r conclave.MemberReport) healthView {
	v := healthView{addressView: addressOf(r), Checks: []healthCheckView{}}
	switch h := r.Health; {
	case r.Err != nil:
	case h.Reasons == nil:
		v.Error = "the member runs a build that does not report its health to clients: ask its agent with --http"
	default:
		v.Live, v.Ready, v.Redundancy, v.Contact = h.Live, h.Ready, h.Redundancy, seconds(h.Contact)
		for _, c := range h.Reasons {
			v.Checks = append(v.Checks, healthCheckView{c.Name, c.OK, inFlags(c.Text)})
		}
	}
	return v
}

// membersHealth prints the condition of each member, and reports whether all of them are ready.
func (p *program) membersHealth(ctx context.Context) error {
	cfg, err := p.config()
	if err != nil {
		return err
	}
	limited, cancel := p.within(ctx)
	defer cancel()
	reports, err := conclave.Inspect(limited, cfg)
	if err != nil || ctx.Err() != nil {
		return cause(ctx, errors.Join(err, ctx.Err()))
	}
	var all []healthView
	for _, r := range reports {
		all = append(all, healthOf(r))
	}
	if p.format == "json" {
		err = many(p, 0, "", values(all), func(v healthView) (any, []string) { return v, nil })
	} else {
		for _, v := range all {
			p.printHealth(v)
		}
	}
	if err == nil && slices.ContainsFunc(all, func(v healthView) bool { return !v.Ready }) {
		err = withCode(exitUnavailable, errors.New("a member is not ready, or does not answer"))
	}
	return err
}

// printHealth prints the condition of a member as an agent does for probes.
func (p *program) printHealth(v healthView) {
	if v.ID == nil || v.Error != "" {
		fmt.Fprintf(p.stdout, "%s %s: %s\n", printable(v.Addr), v.Answer, printable(v.Error))
		return
	}
	fmt.Fprintf(p.stdout, "%s %s (%s):\n", printable(v.Addr), name(v.Name), *v.ID)
	for _, c := range v.Checks {
		if c.OK {
			fmt.Fprintf(p.stdout, "[+]%s ok\n", c.Name)
		} else {
			fmt.Fprintf(p.stdout, "[-]%s failed: %s\n", c.Name, printable(c.Text))
		}
	}
}
