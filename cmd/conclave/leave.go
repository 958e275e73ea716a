package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/conclave-go/conclave"
)

// leavePath is where an agent is asked to leave its group: only the member itself can check that the others have a quorum without it.
const leavePath = "/leave"

// leave has the member leave. As the acts of the console it needs the password, from loopback too: nothing undoes it, and any user of
// the machine reaches the port.
func (s *agentServer) leave(w http.ResponseWriter, r *http.Request) {
	if err := s.crossSite.Check(r); err != nil {
		s.refuseLeave(w, r, http.StatusForbidden, err)
		return
	}
	if s.logins == nil {
		s.refuseLeave(w, r, http.StatusForbidden, errors.New("the agent has no password, without which it leaves at no request: start it with --console-password-file"))
		return
	}
	user, status, err := s.logins.check(w, r)
	if status == http.StatusUnauthorized {
		err = errors.New("this needs the password of the agent's console")
	}
	if err != nil {
		s.refuseLeave(w, r, status, err)
		return
	}
	if node := s.node.Load(); node == nil {
		status, err = http.StatusServiceUnavailable, errOpening
	} else {
		s.log.Info("asked to leave the group", "actor", user, "remote", r.RemoteAddr)
		// It goes on if the operator disconnects.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), leaveLimit)
		defer cancel()
		err = node.Leave(ctx)
		status = statusOfLeave(err)
		if err == nil || errors.Is(err, conclave.ErrUnknown) { // after others the node runs on, or another call has closed it
			s.left <- err
		}
	}
	if err != nil {
		s.log.Warn("not left the group", "actor", user, "remote", r.RemoteAddr, "error", err)
		http.Error(w, err.Error(), status)
		return
	}
	s.log.Info("left the group")
}

// refuseLeave answers a request that does not come from an operator.
func (s *agentServer) refuseLeave(w http.ResponseWriter, r *http.Request, status int, err error) {
	if s.mayRecord(r) {
		s.log.Warn("not left the group", "remote", r.RemoteAddr, "error", err)
	}
	http.Error(w, err.Error(), status)
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
	var a agentHTTP
	cmd := &cobra.Command{
		Use: "leave", Args: exactly(), Short: "Have the agent at an --http address leave its group permanently, and end",
		Long: "Have the agent at an --http address leave its group permanently, and end. It has no effect while the other voters would have no " +
			"quorum. The agent's directory cannot be used again.\n\n" +
			"It needs the password of the agent's console, and an agent that has none refuses every caller. For another member than an agent, " +
			"and for one that is down, see remove.",
		Annotations: map[string]string{fromEnvironment: "yes"},
		RunE:        func(cmd *cobra.Command, _ []string) error { return p.leave(cmd.Context(), a) },
	}
	a.flags(cmd, defaultHTTP, "`address` of the agent's --http")
	return cmd
}

func (p *program) leave(ctx context.Context, a agentHTTP) error {
	password, err := readPassword(a.password)
	if err != nil {
		return err
	}
	if password == nil {
		return usagef("missing the password of the agent's console: --console-password-file or %s", passwordVariable)
	}
	limited, cancel := context.WithTimeout(ctx, leaveLimit+p.connection.timeout)
	defer cancel()
	status, text, err := a.ask(limited, http.MethodPost, leavePath, password)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return refused(status, text)
	}
	return p.one(map[string]any{"left": true}, func(w *tabwriter.Writer) { fmt.Fprintln(w, "the member has left its group") })
}
