package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-go/conclave"
)

const defaultHTTP = "127.0.0.1:7101"

// agentHTTP is where a command asks an agent over HTTP, in place of the group over the members' port: that needs no certificate and no quorum.
type agentHTTP struct {
	addr     string
	password string // file; "": the variable, or none
}

func (a *agentHTTP) flags(cmd *cobra.Command, addr, usage string) {
	cmd.Flags().StringVar(&a.addr, "http", addr, usage)
	cmd.Flags().StringVar(&a.password, "console-password-file", "", "`file` with the password of the agent's console")
}

// longestAnswer of an agent is read, in bytes. Events with the longest names take most.
const longestAnswer = 8 << 20

// ask sends a request and returns the answer's status with its text. ErrUnknown: the agent may have received it.
func (a *agentHTTP) ask(ctx context.Context, method, path string, password []byte) (status int, text string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+reachable(a.addr)+path, nil)
	if err != nil {
		return 0, "", usageError{err}
	}
	if password != nil {
		r.SetBasicAuth(cmp.Or(os.Getenv("USER"), "conclave"), string(password)) // the name is for the agent's log
	}
	// HTTP_PROXY is for other hosts than the agent's. A connection that is kept would outlive this client.
	direct := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := direct.Do(r)
	if err != nil {
		dial := new(net.OpError)
		if method != http.MethodGet && !(errors.As(err, &dial) && dial.Op == "dial") {
			return 0, "", fmt.Errorf("%w: %w", conclave.ErrUnknown, cause(ctx, err))
		}
		return 0, "", withCode(exitUnavailable, fmt.Errorf("%w: is an agent running with --http %s?", cause(ctx, err), a.addr))
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, longestAnswer))
	return answer.StatusCode, strings.TrimSpace(string(body)), err
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

// refused gives an agent's refusal its exit code.
func refused(status int, text string) error {
	code := exitFailed
	switch status {
	case http.StatusConflict:
		code = exitRefused
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		code = exitUnavailable
	case http.StatusInternalServerError:
		code = exitUnknown
	}
	return withCode(code, errors.New(cmp.Or(text, http.StatusText(status))))
}

// status returns the group as a member sees it: one that the connection reaches, or the agent at --http. With an outage
// none that is reached has a leader.
func (p *program) status(ctx context.Context, a agentHTTP) (conclave.Status, accessView, *outage, error) {
	if a.addr == "" {
		s, o, err := p.see(ctx)
		return s, p.access(), o, err
	}
	var v statusView
	err := p.askAgent(ctx, a, statusPath, &v)
	return v.status(), v.accessView, nil, err
}

// askAgent reads what the agent at --http shows to those that may see the console.
func (p *program) askAgent(ctx context.Context, a agentHTTP, path string, v any) error {
	password, err := readPassword(a.password)
	if err != nil {
		return err
	}
	limited, cancel := p.within(ctx)
	defer cancel()
	status, text, err := a.ask(limited, http.MethodGet, path, password)
	if err == nil && status != http.StatusOK {
		err = refused(status, text)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), v)
}

// status is the reverse of statusOf.
func (v statusView) status() conclave.Status {
	s := conclave.Status{
		ID: v.ID, Name: v.Name, Role: roleOf(v.Role), Leader: v.Leader, Term: v.Term, Commit: v.Commit, Applied: v.Applied,
		Redundancy: v.Redundancy, Reconciling: v.Reconciling, FeatureLevel: v.Level,
	}
	for _, m := range v.Members {
		member := conclave.Member{ID: m.ID, Name: m.Name, Addr: m.Addr, Role: roleOf(m.Role), Alive: m.Alive, LastContact: -1,
			Build: m.Build, FeatureLevel: m.Level}
		if m.Priority != nil {
			member.LeaderPriority, member.PriorityKnown = *m.Priority, true
		}
		if m.Lag != nil {
			member.Lag = *m.Lag
		}
		if m.LastContact != nil {
			member.LastContact = time.Duration(*m.LastContact * float64(time.Second))
		}
		s.Members = append(s.Members, member)
	}
	return s
}

func roleOf(text string) conclave.Role {
	if text == conclave.Voter.String() {
		return conclave.Voter
	}
	return conclave.Standby
}
