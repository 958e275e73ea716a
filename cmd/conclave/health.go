package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
)

func (p *program) healthCommand() *cobra.Command {
	var a agentHTTP
	cmd := &cobra.Command{
		Use: "health", Args: exactly(), Short: "Ask an agent's --http address whether it is ready, for a container's health check",
		Annotations: map[string]string{fromEnvironment: "yes"},
		RunE:        func(cmd *cobra.Command, _ []string) error { return p.health(cmd.Context(), a) },
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
	_, err = fmt.Fprintln(p.stdout, text)
	if status != http.StatusOK {
		return withCode(exitUnavailable, fmt.Errorf("the member is not ready: status %d", status))
	}
	return err
}
