package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/conclave-go/conclave"
)

// leavePath is where an agent is asked to leave its group: only the member itself can check that the others have a quorum without it.
const leavePath = "/leave"

// leave has the member leave. As the acts of the console it needs the password, from loopback too: nothing undoes it, and any user of
// the machine reaches the port.
func (s *agentServer) leave(w http.ResponseWriter, r *http.Request) {
	user, isOperator := s.login(r)
	status, err := http.StatusOK, s.crossSite.Check(r)
	switch node := s.node.Load(); {
	case err != nil:
		status = http.StatusForbidden
	case s.password == nil:
		status, err = http.StatusForbidden, errors.New("the agent has no password, without which it leaves at no request: start it with --console-password-file")
	case !isOperator:
		status, err = http.StatusUnauthorized, errors.New("this needs the password of the agent's console")
	case node == nil:
		status, err = http.StatusServiceUnavailable, errors.New("the member waits for its group; its log has the reason")
	default:
		s.log.Info("asked to leave the group", "actor", user, "remote", r.RemoteAddr)
		// It goes on if the operator disconnects.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), leaveLimit)
		defer cancel()
		err = node.Leave(ctx)
		status = statusOfLeave(err)
	}
	if err != nil {
		s.log.Warn("not left the group", "actor", user, "remote", r.RemoteAddr, "error", err)
		http.Error(w, err.Error(), status)
		return
	}
	s.log.Info("left the group")
}

func statusOfLeave(err error) int {
	switch {
	case err == nil:
		return http.StatusOK
	case errors.Is(err, conclave.ErrUnknown):
		return http.StatusInternalServerError
	case errors.Is(err, conclave.ErrUnavailable):
		return http.StatusServiceUnavailable
	}
	return http.StatusConflict // the last voter, or it is being closed
}

func (p *program) leaveCommand() *cobra.Command {
	var addr, password string
	cmd := &cobra.Command{
		Use: "leave", Args: exactly(), Short: "Have the agent at an --http address leave its group permanently, and end",
		Long: "Have the agent at an --http address leave its group permanently, and end. It has no effect while the other voters would have no " +
			"quorum. The agent's directory cannot be used again.\n\n" +
			"It needs the password of the agent's console, and an agent that has none refuses every caller. For another member than an agent, " +
			"and for one that is down, see remove.",
		Annotations: map[string]string{fromEnvironment: "yes"},
		RunE:        func(cmd *cobra.Command, _ []string) error { return p.leave(cmd.Context(), addr, password) },
	}
	httpFlag(cmd, &addr)
	cmd.Flags().StringVar(&password, "console-password-file", "", "`file` with the password of the agent's console")
	return cmd
}

func (p *program) leave(ctx context.Context, addr, file string) error {
	password, err := readPassword(file)
	if err != nil {
		return err
	}
	if password == nil {
		return usagef("missing the password of the agent's console: --console-password-file or %s", passwordVariable)
	}
	limited, cancel := context.WithTimeout(ctx, leaveLimit+p.connection.timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(limited, http.MethodPost, "http://"+reachable(addr)+leavePath, nil)
	if err != nil {
		return usageError{err}
	}
	r.SetBasicAuth(cmp.Or(os.Getenv("USER"), "conclave leave"), string(password)) // the name is for the agent's log
	answer, err := direct().Do(r)
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
		return withCode(exitUnavailable, fmt.Errorf("%w: is an agent running with --http %s?", cause(ctx, err), addr))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", conclave.ErrUnknown, cause(ctx, err))
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	if answer.StatusCode != http.StatusOK {
		return withCode(codeOfLeave(answer.StatusCode), errors.Join(errors.New(strings.TrimSpace(string(text))), err))
	}
	return p.one(map[string]any{"left": true}, func(w *tabwriter.Writer) { fmt.Fprintln(w, "the member has left its group") })
}

func codeOfLeave(status int) int {
	switch status {
	case http.StatusConflict:
		return exitRefused
	case http.StatusServiceUnavailable:
		return exitUnavailable
	case http.StatusInternalServerError:
		return exitUnknown
	}
	return exitFailed
}
