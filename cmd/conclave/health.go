package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
)

func (p *program) healthCommand() *cobra.Command {
	var addr string
	cmd := &cobra.Command{
		Use: "health", Args: exactly(), Short: "Ask an agent's --http address whether it is ready, for a container's health check",
		Annotations: map[string]string{fromEnvironment: "yes"},
		RunE:        func(cmd *cobra.Command, _ []string) error { return p.health(cmd.Context(), addr) },
	}
	cmd.Flags().StringVar(&addr, "http", "127.0.0.1:7101", "`address` of the agent's --http")
	return cmd
}

func (p *program) health(ctx context.Context, addr string) error {
	// An agent that listens on all addresses has this one as well.
	for _, wildcard := range []string{"0.0.0.0:", "[::]:"} {
		if port, ok := strings.CutPrefix(addr, wildcard); ok {
			addr = "127.0.0.1:" + port
		}
	}
	if strings.HasPrefix(addr, ":") {
		addr = "127.0.0.1" + addr
	}
	limited, cancel := p.within(ctx)
	defer cancel()
	r, err := http.NewRequestWithContext(limited, http.MethodGet, "http://"+addr+"/readyz?verbose", nil)
	if err != nil {
		return usageError{err}
	}
	direct := &http.Client{Transport: &http.Transport{}} // HTTP_PROXY is for other hosts than the agent's
	answer, err := direct.Do(r)
	if err != nil {
		return withCode(exitUnavailable, fmt.Errorf("%w: is an agent running with --http %s?", cause(ctx, err), addr))
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	if err != nil {
		return err
	}
	_, err = p.stdout.Write(text)
	if answer.StatusCode != http.StatusOK {
		return withCode(exitUnavailable, fmt.Errorf("the member is not ready: status %d", answer.StatusCode))
	}
	return err
}
