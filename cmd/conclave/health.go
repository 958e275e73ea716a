package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
)

const defaultHTTP = "127.0.0.1:7101"

func (p *program) healthCommand() *cobra.Command {
	var addr string
	cmd := &cobra.Command{
		Use: "health", Args: exactly(), Short: "Ask an agent's --http address whether it is ready, for a container's health check",
		Annotations: map[string]string{fromEnvironment: "yes"},
		RunE:        func(cmd *cobra.Command, _ []string) error { return p.health(cmd.Context(), addr) },
	}
	httpFlag(cmd, &addr)
	return cmd
}

func httpFlag(cmd *cobra.Command, addr *string) {
	cmd.Flags().StringVar(addr, "http", defaultHTTP, "`address` of the agent's --http")
}

func (p *program) health(ctx context.Context, addr string) error {
	limited, cancel := p.within(ctx)
	defer cancel()
	r, err := http.NewRequestWithContext(limited, http.MethodGet, "http://"+reachable(addr)+"/readyz?verbose", nil)
	if err != nil {
		return usageError{err}
	}
	answer, err := direct().Do(r)
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

// reachable returns the address for a client of an agent with that --http. One that listens on all addresses has loopback as well.
func reachable(addr string) string {
	for _, wildcard := range []string{"0.0.0.0:", "[::]:"} {
		if port, ok := strings.CutPrefix(addr, wildcard); ok {
			return "127.0.0.1:" + port
		}
	}
	if strings.HasPrefix(addr, ":") {
		return "127.0.0.1" + addr
	}
	return addr
}

// direct returns a client that uses no proxy: HTTP_PROXY is for other hosts than the agent's.
func direct() *http.Client { return &http.Client{Transport: &http.Transport{}} }
